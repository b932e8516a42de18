"""Reports, pictures of masks, baselines and checkpoints."""

from __future__ import annotations

import re

import pytest

from helpers import prunable_models as models

torch = pytest.importorskip("torch", reason="needs PyTorch (disco-edge[prune])")

from torch import nn  # noqa: E402

from disco_pruning import (  # noqa: E402
    format_report,
    from_scratch,
    independent_branches,
    load_checkpoint,
    network_sparsity,
    plan,
    plot_mask,
    prune,
    prune_in_rounds,
    pruned_sub_rows,
    report,
)
from disco_pruning.report import mask_matrix  # noqa: E402
from disco_targets.errors import DiscoError  # noqa: E402


@pytest.mark.parametrize("nodes", [2, 4])
def test_weight_sparsity_is_that_of_the_paper_for_equal_shares(nodes):
    """S_wt = S_comp = S_comm (N - 1) / N."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 1))
    cut = plan(model, torch.zeros(1, 3, 9, 9), nodes)
    prune(cut, 0.75)
    stem, *layers, network = report(cut)
    assert (stem.name, stem.sub_rows, stem.s_wt) == ("0", 0, 0.0)
    for row, layer in zip(layers, cut.prunable, strict=True):
        assert row.s_comm == 0.75
        assert row.s_wt == row.s_comp == pytest.approx(0.75 * (nodes - 1) / nodes)
        assert row.s_wt == pytest.approx(float((layer.weight == 0).float().mean()))
    assert network.macs == sum(row.macs for row in (stem, *layers)) == 49 * 216 + 25 * 576 + 25 * 64
    assert network.s_comp == pytest.approx(sum(row.s_comp * row.macs for row in layers) / network.macs)


def test_a_grouped_convolution_is_counted_by_its_zero_weights():
    model, example = models.build("grouped")
    cut = plan(model, example, 2)
    prune(cut, 1.0)
    for row, layer in zip(report(cut), cut.layers, strict=False):
        assert row.s_wt == pytest.approx(float((layer.weight == 0).float().mean())), row.name


def test_the_table_has_a_line_for_each_layer_and_the_accuracy():
    model, example = models.build("ds_cnn")
    cut = plan(model, example, 2)
    prune(cut, 1.0)
    lines = format_report(report(cut), accuracy=0.915).splitlines()
    assert len(lines) == 1 + len(cut.layers) + 2
    assert re.match(r"stem\.0 +0 +0 +- +0\.0%", lines[1])
    assert re.match(r"network +\d+ +\d+ +100\.0% ", lines[-2])
    assert lines[-1] == "accuracy 91.5%"


def test_the_mask_matrix_is_block_diagonal_without_communication():
    model, example = models.build("attention")
    cut = plan(model, example, 2)
    layer = cut.layer("qkv")
    prune(cut, 1.0)
    matrix = mask_matrix(layer)
    assert matrix.shape == (72, 24)
    # Sorted by node, though query, key and value of a node lie apart.
    assert bool((matrix[:36, :12] == 2).all())
    assert bool((matrix[36:, 12:] == 2).all())
    assert int(matrix.count_nonzero()) == 2 * 36 * 12


def test_the_mask_matrix_shows_what_is_received():
    model, example = models.build("grouped")
    cut = plan(model, example, 2)
    prune(cut, 0.5)
    layer = cut.layer("squeeze")
    matrix = mask_matrix(layer)
    received = int(((matrix == 1).any(0)).sum())
    assert received == len(pruned_sub_rows(layer)) - int(pruned_sub_rows(layer).sum())
    assert int((mask_matrix(cut.layer("mixes")) != 0).sum()) == int(
        (cut.layer("mixes").weight != 0).any(3).any(2).sum()
    )


def test_a_picture_of_a_mask(tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib (disco-edge[plot])")
    model, example = models.build("ds_cnn")
    cut = plan(model, example, 2)
    prune(cut, 0.5)
    for layer in cut.layers:
        plot_mask(layer, tmp_path / "mask.png")
    assert (tmp_path / "mask.png").read_bytes()[:4] == b"\x89PNG"
    for wrong in (tmp_path / "none" / "mask.png", tmp_path / "mask.xyz"):
        with pytest.raises(DiscoError, match="cannot be written"):
            plot_mask(cut.layers[0], wrong)


def test_independent_branches_are_untrained_and_never_communicate():
    model, example = models.build("mobilenet")
    prune(plan(model, example, 2), 0.5)
    branches = independent_branches(model, example, 2)
    assert network_sparsity(plan(branches, example, 2)) == 1.0
    assert network_sparsity(plan(model, example, 2)) < 1.0
    trained = dict(model.named_parameters())
    for name, parameter in branches.named_parameters():
        if parameter.dim() > 1:
            assert not torch.equal(parameter, trained[name]), name


def test_the_dense_baseline_has_no_masks():
    model, example = models.build("mobilenet")
    prune(plan(model, example, 2), 0.5)
    fresh = from_scratch(model)
    assert set(fresh.state_dict()) == set(models.MobileNet().state_dict())
    assert network_sparsity(plan(fresh, example, 2)) == 0.0


def test_parameters_that_cannot_be_drawn_anew_are_told():
    with pytest.raises(DiscoError, match=r"module '' \(Attention\) has parameters and no reset_parameters\(\)"):
        independent_branches(models.Attention(), torch.zeros(1, 5, 7), 2)


def test_a_checkpoint_of_each_round_can_be_loaded(tmp_path):
    model, example = models.build("ds_cnn")
    cut = plan(model, example, 2)

    def finetune(network: nn.Module) -> None:
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(0.01)

    rounds = list(prune_in_rounds(model, cut, (0.5, {"classifier": 1.0, "last.0": 1.0, "blocks.1.0": 0.5}), finetune,
                                  checkpoints=tmp_path / "rounds"))  # fmt: skip
    assert rounds == [0.5, network_sparsity(cut)]
    names = sorted(path.name for path in (tmp_path / "rounds").iterdir())
    assert names == ["disco_50.0.pt", f"disco_{100 * rounds[1]:.1f}.pt"]
    other, _ = models.build("ds_cnn", seed=3)
    load_checkpoint(other, plan(other, example, 2), tmp_path / "rounds" / names[1])
    images = torch.rand_like(example)
    assert torch.equal(other(images), model(images))


def test_a_checkpoint_is_named_by_the_sparsity_that_was_asked_for(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 5, 1), nn.Conv2d(5, 4, 1))
    cut = plan(model, torch.zeros(1, 3, 4, 4), 2)
    assert list(prune_in_rounds(model, cut, (0.9,), lambda _: None, checkpoints=tmp_path)) == [0.9]
    assert network_sparsity(cut) == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["disco_90.0.pt"]


def test_a_checkpoint_that_cannot_be_loaded_is_told_and_changes_nothing(tmp_path):
    model, example = models.build("ds_cnn")
    cut = plan(model, example, 2)
    (tmp_path / "text.pt").write_text("no checkpoint")
    (tmp_path / "empty.pt").touch()
    keys = set(model.state_dict())
    with pytest.raises(DiscoError, match=r"none\.pt cannot be read: No such file"):
        load_checkpoint(model, cut, tmp_path / "none.pt")
    for name in ("text.pt", "empty.pt"):
        with pytest.raises(DiscoError, match=f"{name} is not a checkpoint"):
            load_checkpoint(model, cut, tmp_path / name)
    assert set(model.state_dict()) == keys
    for content in ({"x": torch.zeros(1)}, [1, 2]):
        torch.save(content, tmp_path / "other.pt")
        with pytest.raises(DiscoError, match="is of another network or no state dict"):
            load_checkpoint(model, cut, tmp_path / "other.pt")
