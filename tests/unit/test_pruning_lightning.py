"""The callback for Lightning on one CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch (disco-edge[prune])")
pytest.importorskip("lightning", reason="needs Lightning (disco-edge[lightning])")

from disco_pruning import communication_sparsity, network_sparsity, plan  # noqa: E402
from disco_pruning.lightning import DiscoPruning  # noqa: E402
from disco_targets.errors import DiscoError  # noqa: E402
from helpers.lightning_module import Classifier, batches, trainer  # noqa: E402


def test_it_prunes_while_it_trains_and_keeps_a_checkpoint_of_each_round(tmp_path):
    module = Classifier()
    callback = DiscoPruning(2, {1: 0.5, 3: 1.0}, checkpoints=tmp_path)
    fit = trainer(4, callback)
    fit.fit(module, batches())
    assert network_sparsity(callback.plan) == 1.0
    assert float(fit.callback_metrics["s_comm"]) == 1.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disco_0.0.ckpt", "disco_100.0.ckpt", "disco_50.0.ckpt"]
    keys = [set(torch.load(path, weights_only=False)["state_dict"]) for path in tmp_path.iterdir()]
    assert keys[0] == keys[1] == keys[2]


def test_a_resumed_run_has_the_masks_it_had(tmp_path):
    rounds = {1: 0.5}
    trainer(2, DiscoPruning(2, rounds, checkpoints=tmp_path)).fit(Classifier(), batches())
    module, callback = Classifier(seed=7), DiscoPruning(2, rounds)
    fit = trainer(3, callback)
    fit.fit(module, batches(), ckpt_path=tmp_path / "disco_50.0.ckpt")
    assert fit.current_epoch == 3
    assert network_sparsity(callback.plan) == 0.5


def test_checkpoints_are_named_by_the_sparsity_that_was_asked_for(tmp_path):
    callback = DiscoPruning(2, {0: 0.49}, checkpoints=tmp_path)
    trainer(1, callback).fit(Classifier(), batches())
    assert network_sparsity(callback.plan) == 0.5
    assert [path.name for path in tmp_path.iterdir()] == ["disco_49.0.ckpt"]


@pytest.mark.parametrize(
    ("rounds", "message"),
    [
        ({0: 0.5, 1: 1.5}, "1.5 is out of range"),
        ({1: 0.5, 0: 0.9}, "0.5, a round before it to 0.9"),
        ({0: {"network.0": 0.5}}, "'network.0', which is never pruned"),
        ({0: 0.5, 2: 0.9}, "the round at epoch 2 never comes: the Trainer ends after 2 epochs"),
        ({-1: 0.5}, "epoch -1 never comes"),
    ],
)
def test_rounds_that_cannot_be_are_refused_at_the_start(rounds, message):
    with pytest.raises(DiscoError, match=message):
        trainer(2, DiscoPruning(2, rounds)).fit(Classifier(), batches())


def test_a_part_of_the_module_and_layers_by_name():
    module = Classifier()
    example = torch.zeros(1, 1, 8, 8)
    callback = DiscoPruning(2, {0: {"2": 0.5, "5": 1.0}}, module="network", example_input=example, shares=(0.75, 0.25))
    trainer(1, callback).fit(module, batches())
    assert [layer.name for layer in callback.plan.layers] == ["0", "2", "5"]
    assert callback.plan.layers[0].out_owners == (0,) * 6 + (1,) * 2
    assert [communication_sparsity(layer) for layer in callback.plan.prunable] == [0.5, 1.0]
    assert plan(module.network, example, 2, (0.75, 0.25)).metadata() == callback.plan.metadata()


def test_what_is_missing_is_told():
    with pytest.raises(DiscoError, match=r"no plan before Trainer\.fit"):
        _ = DiscoPruning(2, {}).plan
    with pytest.raises(DiscoError, match="has no module 'net'"):
        trainer(1, DiscoPruning(2, {}, module="net")).fit(Classifier(), batches())
    module = Classifier()
    module.example_input_array = None
    with pytest.raises(DiscoError, match="example_input_array"):
        trainer(1, DiscoPruning(2, {})).fit(module, batches())
