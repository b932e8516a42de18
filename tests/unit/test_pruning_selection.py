"""Which sub-rows are chosen: scores, sparsity by layer, global ranking, sparsity files."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch (disco-edge[prune])")

from torch import nn  # noqa: E402

from disco_planning.sparsity_file import FORMAT, VERSION, SparsityPlan, write_sparsity  # noqa: E402
from disco_pruning import (  # noqa: E402
    RandomScore,
    communication_sparsity,
    load_sparsity,
    network_sparsity,
    plan,
    prune,
    pruned_sub_rows,
    sub_row_norms,
)
from disco_pruning.masks import off_diagonal  # noqa: E402
from disco_pruning.selection import select  # noqa: E402
from disco_targets.errors import DiscoError  # noqa: E402


@pytest.fixture
def cut():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 6, 1), nn.Conv2d(6, 10, 3)
    )
    return plan(model, torch.zeros(1, 3, 12, 12), 2)


def test_by_layer_sparsity_leaves_those_not_named_dense(cut):
    prune(cut, {"1": 0.5, "4": 1.0, "0": 0})
    assert [communication_sparsity(layer) for layer in cut.layers] == [1.0, 0.5, 0.0, 1.0]
    prune(cut, {"1": 0.75, "4": 1.0})
    assert communication_sparsity(cut.layer("1")) == 0.75


def test_layers_of_one_tensor_with_sparsities_of_their_own_are_nested():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.a, self.b = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1), nn.Conv2d(8, 4, 1)

        def forward(self, x):
            y = self.stem(x)
            return self.a(y) + self.b(y)

    cut = plan(Two(), torch.zeros(1, 3, 4, 4), 2)
    prune(cut, {"a": 0.25, "b": 0.75})
    a, b = pruned_sub_rows(cut.layer("a")), pruned_sub_rows(cut.layer("b"))
    assert (int(a.sum()), int(b.sum())) == (2, 6)
    assert bool((b | ~a).all())


def test_random_sub_rows_follow_their_seed_and_not_the_weights(cut):
    first = RandomScore(1)
    expected = []
    for layer in cut.prunable:
        scores = first(layer).masked_fill(~off_diagonal(layer), float("inf"))
        expected.append(scores <= scores[off_diagonal(layer)].median())
    prune(cut, 0.5, RandomScore(1))
    assert all(torch.equal(pruned_sub_rows(a), b) for a, b in zip(cut.prunable, expected, strict=True))
    norms = sub_row_norms(cut.layer("1"))
    assert RandomScore(1)(cut.layer("1")).shape == norms.shape
    assert not torch.equal(RandomScore(1)(cut.layer("1")), RandomScore(2)(cut.layer("1")))


def test_a_score_of_the_users_own_decides(cut):
    prune(cut, 0.5, lambda layer: -torch.arange(off_diagonal(layer).numel()).reshape(off_diagonal(layer).shape))
    pruned = pruned_sub_rows(cut.layer("1"))
    assert pruned.any(1).tolist() == [False] * 4 + [True] * 4


def test_a_score_of_another_shape_or_nan_is_refused(cut):
    lowest, nan = (lambda layer, value=value: sub_row_norms(layer) * float(value) for value in ("-inf", "nan"))
    for score in (lambda layer: torch.zeros(3), lowest, nan):
        with pytest.raises(DiscoError, match=r"the score of layer '1' .*\[8, 2\]"):
            prune(cut, 0.5, score)


def test_global_ranking_takes_the_least_weights_wherever_they_are(cut):
    with torch.no_grad():
        cut.layer("3").module.weight.mul_(1e-3)
    prune(cut, 8 / 22, rank_within="network")
    assert [round(communication_sparsity(layer), 2) for layer in cut.prunable] == [0.0, 1.0, 0.0]
    prune(cut, 0.9, rank_within="network")
    assert round(network_sparsity(cut) * 22) == 20
    assert communication_sparsity(cut.layer("3")) == 1.0
    with pytest.raises(DiscoError, match="20 of 22 sub-rows are pruned already"):
        prune(cut, 0.5, rank_within="network")
    with pytest.raises(DiscoError, match="one sparsity"):
        prune(cut, {"1": 0.5}, rank_within="network")


def test_global_ranking_compares_scores_per_weight(cut):
    """A 3x3 layer has sub-rows nine times as large as a 1x1 layer with equal weights: neither goes first for that."""
    with torch.no_grad():
        for index, layer in enumerate(cut.prunable):
            layer.module.weight.fill_(1.0 + 0.01 * index)
    prune(cut, 8 / 22, rank_within="network")
    assert [communication_sparsity(layer) for layer in cut.prunable] == [1.0, 0.0, 0.0]


def test_ranking_within_routes_prunes_every_direction_alike(cut):
    """Node 0's channels weigh least: a layer's ranking prunes them alone, the routes' as many of node 1."""
    with torch.no_grad():
        cut.layer("1").module.weight[:, :4] *= 1e-3
    per_layer, per_route = (select(cut, 0.5, rank_within=within)[0] for within in ("layer", "route"))
    assert (~per_layer).sum(0).tolist() == [0, 4]
    assert (~per_route).sum(0).tolist() == [2, 2]
    of_route = sub_row_norms(cut.layer("1"))[:4, 1]
    assert torch.equal(~per_route[:4, 1], of_route <= of_route.median())


def test_ranking_within_routes_prunes_as_many_of_a_layer_and_nests(cut):
    """5 of 8 sub-rows: the odd one is the least worth of what is next on either route; what is pruned stays so."""
    pruned = torch.zeros_like(off_diagonal(cut.layer("1")))
    for sparsity, counts in ((3 / 8, {1, 2}), (5 / 8, {2, 3}), (6 / 8, {3})):
        prune(cut, sparsity, rank_within="route")
        now = pruned_sub_rows(cut.layer("1"))
        assert set(now.sum(0).tolist()) == counts
        assert not (pruned & ~now).any()
        pruned = now
    with pytest.raises(DiscoError, match="within 'node': use one of route, layer, network"):
        prune(cut, 0.9, rank_within="node")


def test_unequal_routes_lose_in_proportion():
    """Three nodes own 4, 2 and 2 channels: half of what each sends to each goes."""
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3))
    cut = plan(model, torch.zeros(1, 3, 8, 8), 3, (2, 1, 1))
    pruned = ~select(cut, 0.5, rank_within="route")[0]
    sent_by = [pruned[:4].sum(0).tolist(), pruned[4:6].sum(0).tolist(), pruned[6:].sum(0).tolist()]
    assert sent_by == [[0, 2, 2], [1, 0, 1], [1, 1, 0]]


@pytest.mark.parametrize(
    ("sparsity", "message"),
    [
        ({"2x": 0.5}, "layer '2x', which the plan does not have: those that can be pruned are 1, 3, 4"),
        ({"0": 0.5}, "layer '0', which is never pruned.*can be pruned are 1, 3, 4"),
        ({"2": 0.5}, "layer '2', which is never pruned"),
        ("0.9", "sparsity of '0.9' is not a number"),
        ({"1": "0.9"}, "sparsity of '0.9' for layer '1' is not a number"),
        ({"1": 1.5}, r"1\.5 for layer '1' is out of range"),
        (-0.1, "out of range"),
        (float("nan"), "out of range"),
    ],
)
def test_sparsities_that_make_no_sense_are_refused(cut, sparsity, message):
    with pytest.raises(DiscoError, match=message):
        prune(cut, sparsity)


def test_a_refused_sparsity_changes_nothing(cut):
    prune(cut, {"4": 1.0})
    with pytest.raises(DiscoError, match="rising"):
        prune(cut, 0.5)
    assert [communication_sparsity(layer) for layer in cut.prunable] == [0.0, 0.0, 1.0]


def test_a_sparsity_file_of_the_planner(cut, tmp_path):
    path = tmp_path / "sparsity.json"
    layers = {"0": 0, "1": 0.5, "2": 0.25, "3": 0.875, "4": 1}
    write_sparsity(path, SparsityPlan("model", "system", 2, layers))
    prune(cut, load_sparsity(path, cut))
    assert [communication_sparsity(layer) for layer in cut.prunable] == [0.5, 0.875, 1.0]


def _file(nodes: int, layers: dict[str, float]) -> str:
    document = {"format": FORMAT, "version": VERSION, "model": "", "system": "", "nodes": nodes, "layers": layers}
    return json.dumps(document)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        ("{", "is not a sparsity file"),
        ("[]", "is not a sparsity file"),
        (_file(3, {}), "for 3 nodes and the plan for 2: make it again with --nodes 2"),
        (_file(2, {"9": 0.5}), "names layer '9', which the network does not have"),
        (_file(2, {"1": 2}), "the sparsity of layer '1' is 2"),
    ],
)
def test_a_wrong_sparsity_file_is_told(cut, tmp_path, content, message):
    path = tmp_path / "sparsity.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DiscoError, match=message):
        load_sparsity(path, cut)


def test_a_sparsity_file_of_other_shares_is_told(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3))
    uneven = plan(model, torch.zeros(1, 3, 8, 8), 2, (3, 1))
    path = tmp_path / "sparsity.json"
    write_sparsity(path, SparsityPlan("model", "system", 2, {"1": 0.5}, (0.75, 0.25)))
    assert load_sparsity(path, uneven) == {"1": 0.5}
    with pytest.raises(DiscoError, match=r"for shares of 0\.75, 0\.25 and the plan for equal size"):
        load_sparsity(path, plan(model, torch.zeros(1, 3, 8, 8), 2))
