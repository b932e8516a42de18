"""Ownership, sub-row masks and pruning rounds on small networks."""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch (disco-edge[prune])")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from disco_pruning import (  # noqa: E402
    bake,
    communication_sparsity,
    contiguous_owners,
    mixing_layers,
    plan_pruning,
    prune,
    prune_in_rounds,
    pruned_sub_rows,
)
from disco_pruning.masks import off_diagonal, sub_row_norms, weight_mask  # noqa: E402
from disco_pruning.models.resnet8 import ResNet8  # noqa: E402
from disco_targets.errors import DiscoError  # noqa: E402


@pytest.fixture
def network() -> ResNet8:
    torch.manual_seed(1)
    return ResNet8()


def naive_zero_sub_rows(weight: np.ndarray, in_owners, out_owners) -> set[tuple[int, int]]:
    """All (input, node) off the diagonal whose weights are zero, by loops over single weights."""
    found = set()
    for i, owner in enumerate(in_owners):
        for k in sorted(set(out_owners)):
            outputs = [o for o, node in enumerate(out_owners) if node == k]
            if k != owner and all((weight[o, i] == 0).all() for o in outputs):
                found.add((i, k))
    return found


@pytest.mark.parametrize(
    ("channels", "nodes", "sizes"),
    [(16, 2, [8, 8]), (10, 3, [4, 3, 3]), (5, 4, [2, 1, 1, 1]), (3, 1, [3])],
)
def test_shares_are_contiguous_and_the_first_nodes_get_the_remainder(channels, nodes, sizes):
    owners = contiguous_owners(channels, nodes)
    assert list(owners) == sorted(owners)
    assert [owners.count(k) for k in range(nodes)] == sizes


@pytest.mark.parametrize("nodes", [0, -1, 5])
def test_impossible_shares_are_refused(nodes):
    with pytest.raises(DiscoError, match="nodes"):
        contiguous_owners(4, nodes)


def test_the_stem_reads_a_replicated_input_and_is_not_prunable(network):
    plan = plan_pruning(network, 2)
    assert [layer.name for layer in plan.layers if layer.in_owners is None] == ["stem"]
    assert [[layer.name for layer in group] for group in plan.exchanges] == [
        ["stages.0.conv1"],
        ["stages.0.conv2"],
        ["stages.1.conv1", "stages.1.shortcut"],
        ["stages.1.conv2"],
        ["stages.2.conv1", "stages.2.shortcut"],
        ["stages.2.conv2"],
        ["classifier"],
    ]


def test_a_flattened_image_gives_each_channel_its_pixels():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2))
    _, linear = mixing_layers(model, 2)
    assert linear.in_owners == (0,) * 8 + (1,) * 8


def test_an_add_of_different_owners_is_refused():
    class Skewed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 1)

        def forward(self, x):
            return x + self.conv(x)

    with pytest.raises(DiscoError, match="different owners"):
        mixing_layers(Skewed(), 2)


def test_a_layer_without_a_rule_is_named():
    with pytest.raises(DiscoError, match=r"'_1' \(PixelShuffle\) has no ownership rule"):
        mixing_layers(nn.Sequential(nn.Conv2d(3, 4, 1), nn.PixelShuffle(2)), 2)


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_norms_and_masks_agree_with_loops_over_weights(nodes):
    torch.manual_seed(3)
    weight = torch.randn(7, 5, 3, 3)
    out_owners, in_owners = contiguous_owners(7, nodes), contiguous_owners(5, nodes)
    norms = sub_row_norms(weight, out_owners)
    assert norms.shape == (5, nodes)
    for i in range(5):
        for k in range(nodes):
            outputs = [o for o in range(7) if out_owners[o] == k]
            expected = weight[outputs, i].abs().sum().item()
            assert norms[i, k].item() == pytest.approx(expected, rel=1e-5)
    keep = ~off_diagonal(in_owners, nodes)
    mask = weight_mask(keep, out_owners, weight.dim())
    assert mask.shape == (7, 5, 1, 1)
    for o in range(7):
        for i in range(5):
            assert bool(mask[o, i]) == (out_owners[o] == in_owners[i])


@pytest.mark.parametrize("nodes", [2, 3])
@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_sparsity_is_the_fraction_of_zero_sub_rows_of_the_weights(network, nodes, sparsity):
    plan = plan_pruning(network, nodes)
    prune(plan, sparsity)
    for layer in plan.prunable:
        zero = naive_zero_sub_rows(layer.module.weight.detach().numpy(), layer.in_owners, layer.out_owners)
        total = len(layer.in_owners) * (nodes - 1)
        assert len(zero) == int(sparsity * total + 0.5)
        assert communication_sparsity(layer) == pytest.approx(len(zero) / total)
        assert {(int(i), int(k)) for i, k in pruned_sub_rows(layer).nonzero()} == zero


def test_the_least_sub_rows_go_first_and_layers_of_one_exchange_together(network):
    plan = plan_pruning(network, 2)
    group = plan.exchanges[2]
    scores = sum(sub_row_norms(layer.module.weight, layer.out_owners) for layer in group)
    away = off_diagonal(group[0].in_owners, 2)
    prune(plan, 0.5)
    pruned = [pruned_sub_rows(layer) for layer in group]
    assert torch.equal(pruned[0], pruned[1])
    assert scores[pruned[0]].max() < scores[away & ~pruned[0]].min()


def test_the_diagonal_and_the_stem_are_never_touched(network):
    before = copy.deepcopy(network)
    plan = plan_pruning(network, 2)
    prune(plan, 1.0)
    assert torch.equal(network.stem.weight, before.stem.weight)
    for layer in plan.prunable:
        old = before.get_submodule(layer.name).weight
        for o, i in np.ndindex(*old.shape[:2]):
            if layer.in_owners[i] == layer.out_owners[o]:
                assert torch.equal(layer.module.weight[o, i], old[o, i])


def train_a_little(model: nn.Module) -> None:
    """A few steps with momentum and weight decay, which would move unprotected zeros."""
    optimiser = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=0.01)
    model.train()
    for step in range(3):
        torch.manual_seed(step)
        loss = functional.cross_entropy(model(torch.rand(4, 3, 32, 32)), torch.arange(4))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def test_masks_hold_through_training_and_rounds_are_nested(network):
    plan = plan_pruning(network, 2)
    train_a_little(network)
    previous, seen = None, []
    for sparsity in prune_in_rounds(network, plan, (0.5, 0.9, 1.0), train_a_little):
        zero = [pruned_sub_rows(layer) for layer in plan.prunable]
        before = [layer.module.weight.detach().clone() for layer in plan.prunable]
        train_a_little(network)
        after = [layer.module.weight for layer in plan.prunable]
        assert all(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
        for layer, mask in zip(plan.prunable, zero, strict=True):
            assert torch.equal(pruned_sub_rows(layer), mask)
        if previous is not None:
            assert all(bool((new | ~old).all()) for new, old in zip(zero, previous, strict=True))
        previous = zero
        seen.append((sparsity, round(plan.sparsity(), 2)))
    assert seen == [(0.5, 0.5), (0.9, 0.9), (1.0, 1.0)]


def test_a_lower_sparsity_than_before_is_refused(network):
    plan = plan_pruning(network, 2)
    prune(plan, 0.9)
    with pytest.raises(DiscoError, match="rising sparsity"):
        prune(plan, 0.5)
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(DiscoError, match="out of range"):
            prune(plan, wrong)


def test_baking_a_copy_gives_plain_positive_zeros_and_leaves_the_original_masked(network):
    plan = plan_pruning(network, 2)
    prune(plan, 0.9)
    network.eval()
    baked = bake(copy.deepcopy(network))
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(baked(images), network(images))
    assert type(baked.classifier) is nn.Linear
    assert set(baked.state_dict()) == set(ResNet8().state_dict())
    weight = baked.classifier.weight
    zeros = weight[weight == 0]
    assert len(zeros) > 0
    assert not torch.signbit(zeros).any()
    train_a_little(network)
    assert plan.sparsity() == pytest.approx(0.9, abs=0.01)


def test_without_communication_the_nodes_are_independent_branches(network):
    """Changing what node 1 holds of any tensor behind the stem leaves node 0's logits alone."""
    prune(plan_pruning(network, 2), 1.0)
    network.eval()
    images = torch.rand(2, 3, 32, 32)
    expected = network(images)
    bake(network)
    with torch.no_grad():
        for layer in mixing_layers(network, 2):
            ours = torch.tensor(layer.out_owners) == 1
            layer.module.weight[ours] += 1.0
    changed = network(images)
    assert torch.equal(changed[:, :5], expected[:, :5])
    assert not torch.isclose(changed[:, 5:], expected[:, 5:]).any()
