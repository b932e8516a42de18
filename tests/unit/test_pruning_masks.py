"""Ownership, sub-row masks and pruning rounds on small networks."""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch (disco-edge[prune])")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from disco_planning.shares import contiguous_owners  # noqa: E402
from disco_pruning import (  # noqa: E402
    MixingLayer,
    Plan,
    attach_masks,
    bake,
    communication_sparsity,
    network_sparsity,
    plan,
    prune,
    prune_in_rounds,
    pruned_sub_rows,
    sub_row_norms,
)
from disco_pruning.masks import kept_sub_rows, off_diagonal, set_mask  # noqa: E402
from disco_pruning.models.resnet8 import ResNet8  # noqa: E402
from disco_targets.errors import DiscoError  # noqa: E402


@pytest.fixture
def network() -> ResNet8:
    torch.manual_seed(1)
    return ResNet8()


def plan_pruning(model: nn.Module, nodes: int) -> Plan:
    return plan(model, torch.zeros(1, 3, 32, 32), nodes)


def naive_zero_sub_rows(weight: np.ndarray, in_owners, out_owners) -> set[tuple[int, int]]:
    """All (input, node) off the diagonal whose weights are zero, by loops over single weights."""
    found = set()
    for i, owner in enumerate(in_owners):
        for k in sorted(set(out_owners)):
            outputs = [o for o, node in enumerate(out_owners) if node == k]
            if k != owner and all((weight[o, i] == 0).all() for o in outputs):
                found.add((i, k))
    return found


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_norms_and_masks_agree_with_loops_over_weights(nodes, groups):
    torch.manual_seed(3)
    conv = nn.Conv2d(6, 8, 3, groups=groups)
    out_owners, in_owners = contiguous_owners(8, nodes), contiguous_owners(6, nodes)
    layer = MixingLayer("conv", conv, "weight", "x", in_owners, out_owners, groups, 0)
    norms, away = sub_row_norms(layer), off_diagonal(layer)
    assert norms.shape == away.shape == (6, nodes)
    whole = torch.zeros(8, 6, 3, 3)  # [out, in] of the ungrouped convolution that does the same
    for o, i in np.ndindex(8, 6):
        if i // (6 // groups) == o // (8 // groups):
            whole[o, i] = conv.weight[o, i % (6 // groups)].detach()
    for i, k in np.ndindex(6, nodes):
        outputs = [o for o in range(8) if out_owners[o] == k]
        assert norms[i, k].item() == pytest.approx(whole[outputs, i].abs().sum().item(), rel=1e-5)
        assert bool(away[i, k]) == (in_owners[i] != k and bool(whole[outputs, i].any()))
    set_mask(layer, ~away)
    for o, i in np.ndindex(8, 6 // groups):
        channel = o // (8 // groups) * (6 // groups) + i
        kept = out_owners[o] == in_owners[channel]
        assert bool((conv.weight[o, i] != 0).all()) == kept
    assert torch.equal(kept_sub_rows(layer), ~away)


@pytest.mark.parametrize("nodes", [2, 3])
@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_sparsity_is_the_fraction_of_zero_sub_rows_of_the_weights(network, nodes, sparsity):
    cut = plan_pruning(network, nodes)
    prune(cut, sparsity)
    for layer in cut.prunable:
        zero = naive_zero_sub_rows(layer.weight.detach().numpy(), layer.in_owners, layer.out_owners)
        total = len(layer.in_owners) * (nodes - 1)
        assert len(zero) == int(sparsity * total + 0.5)
        assert communication_sparsity(layer) == pytest.approx(len(zero) / total)
        assert {(int(i), int(k)) for i, k in pruned_sub_rows(layer).nonzero()} == zero


def test_the_least_sub_rows_go_first_and_layers_of_one_exchange_together(network):
    cut = plan_pruning(network, 2)
    group = cut.exchanges[2]
    scores = sum(sub_row_norms(layer) for layer in group)
    away = off_diagonal(group[0])
    prune(cut, 0.5)
    pruned = [pruned_sub_rows(layer) for layer in group]
    assert torch.equal(pruned[0], pruned[1])
    assert scores[pruned[0]].max() < scores[away & ~pruned[0]].min()


def test_the_diagonal_and_the_stem_are_never_touched(network):
    before = copy.deepcopy(network)
    cut = plan_pruning(network, 2)
    prune(cut, 1.0)
    assert torch.equal(network.stem.weight, before.stem.weight)
    for layer in cut.prunable:
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
    cut = plan_pruning(network, 2)
    train_a_little(network)
    previous, seen = None, []
    for sparsity in prune_in_rounds(network, cut, (0.5, 0.9, 1.0), train_a_little):
        zero = [pruned_sub_rows(layer) for layer in cut.prunable]
        before = [layer.module.weight.detach().clone() for layer in cut.prunable]
        train_a_little(network)
        after = [layer.module.weight for layer in cut.prunable]
        assert all(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
        for layer, mask in zip(cut.prunable, zero, strict=True):
            assert torch.equal(pruned_sub_rows(layer), mask)
        if previous is not None:
            assert all(bool((new | ~old).all()) for new, old in zip(zero, previous, strict=True))
        previous = zero
        seen.append((sparsity, round(network_sparsity(cut), 2)))
    assert seen == [(0.5, 0.5), (0.9, 0.9), (1.0, 1.0)]


def test_a_lower_sparsity_than_before_is_refused(network):
    cut = plan_pruning(network, 2)
    prune(cut, 0.9)
    with pytest.raises(DiscoError, match="rising sparsity"):
        prune(cut, 0.5)
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(DiscoError, match="out of range"):
            prune(cut, wrong)


@pytest.mark.parametrize(
    ("rounds", "options", "message"),
    [
        ((0.5, 1.5), {}, "1.5 is out of range"),
        ((0.9, 0.5), {}, "prunes stages.0.conv1 to a communication sparsity of 0.5, a round before it to 0.9"),
        ((0.5, {"classifier": 0.9}), {}, "to a communication sparsity of 0, a round before it to 0.5"),
        (({"classifier": 0.5}, {"stem": 0.9}), {}, "'stem', which is never pruned"),
        ((0.9, 0.5), {"rank_within": "network"}, "prunes the network to a communication sparsity of 0.5"),
        ((0.5, {"classifier": 0.9}), {"rank_within": "network"}, "need one sparsity"),
    ],
)
def test_rounds_that_cannot_be_are_refused_before_the_first(network, rounds, options, message):
    cut = plan_pruning(network, 2)
    with pytest.raises(DiscoError, match=message):
        prune_in_rounds(network, cut, rounds, lambda _: pytest.fail("a round began"), **options)
    assert network_sparsity(cut) == 0.0


def test_baking_a_copy_gives_plain_positive_zeros_and_leaves_the_original_masked(network):
    cut = plan_pruning(network, 2)
    prune(cut, 0.9)
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
    assert network_sparsity(cut) == pytest.approx(0.9, abs=0.01)


def test_without_communication_the_nodes_are_independent_branches(network):
    """Changing what node 1 holds of any tensor behind the stem leaves node 0's logits alone."""
    prune(plan_pruning(network, 2), 1.0)
    network.eval()
    images = torch.rand(2, 3, 32, 32)
    expected = network(images)
    bake(network)
    with torch.no_grad():
        for layer in plan_pruning(network, 2).layers:
            ours = torch.tensor(layer.out_owners) == 1
            layer.module.weight[ours] += 1.0
    changed = network(images)
    assert torch.equal(changed[:, :5], expected[:, :5])
    assert not torch.isclose(changed[:, 5:], expected[:, 5:]).any()


def test_optimisers_that_exist_go_on_working(network):
    cut = plan_pruning(network, 2)
    optimiser = torch.optim.AdamW(network.parameters(), 1e-2, weight_decay=0.1)

    def step() -> None:
        optimiser.zero_grad()
        functional.cross_entropy(network(torch.rand(4, 3, 32, 32)), torch.arange(4)).backward()
        optimiser.step()

    step()
    prune(cut, 0.9)
    layer = cut.prunable[0]
    zero, before = pruned_sub_rows(layer), layer.weight.detach().clone()
    parameters = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
    assert parameters == {id(parameter) for parameter in network.parameters()}
    step()
    assert torch.equal(pruned_sub_rows(layer), zero)
    assert not torch.equal(layer.weight, before)


def test_state_dicts_carry_masks_and_keep_their_keys(network):
    cut = plan_pruning(network, 2)
    attach_masks(cut)
    keys = list(network.state_dict())
    assert network_sparsity(cut) == 0.0
    prune(cut, 0.9)
    assert list(network.state_dict()) == keys
    other = ResNet8()
    there = plan_pruning(other, 2)
    attach_masks(there)
    other.load_state_dict(network.state_dict())
    assert network_sparsity(there) == network_sparsity(cut)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    assert network_sparsity(there) == network_sparsity(cut)
