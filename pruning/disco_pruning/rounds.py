"""Pruning rounds: prune a fraction of the off-diagonal sub-rows, finetune, repeat.

Layers that read the same tensor share one exchange, so they are pruned together: the score of a
sub-row is the sum of the L1 norms over those layers, and a pruned channel is not sent at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from disco_pruning.masks import off_diagonal, pruned_sub_rows, set_mask, sub_row_norms
from disco_pruning.ownership import MixingLayer, mixing_layers
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass(frozen=True)
class PruningPlan:
    """The prunable layers of one network for a number of nodes.

    Attributes:
        nodes: Number of nodes.
        layers: All mixing layers; those with a replicated input are never pruned.
    """

    nodes: int
    layers: tuple[MixingLayer, ...]

    @property
    def prunable(self) -> tuple[MixingLayer, ...]:
        """The layers whose input is shared out among the nodes."""
        return tuple(layer for layer in self.layers if layer.in_owners is not None)

    @property
    def exchanges(self) -> tuple[tuple[MixingLayer, ...], ...]:
        """The prunable layers, grouped by the tensor they read."""
        groups: dict[str, list[MixingLayer]] = {}
        for layer in self.prunable:
            groups.setdefault(layer.source, []).append(layer)
        return tuple(tuple(group) for group in groups.values())

    def sparsity(self) -> float:
        """S_comm of the network: pruned over all off-diagonal sub-rows, counted on the weights."""
        pruned = sum(int(pruned_sub_rows(layer).sum()) for layer in self.prunable)
        total = sum(int(_candidates(layer).sum()) for layer in self.prunable)
        return pruned / total if total else 1.0


def plan_pruning(model: nn.Module, nodes: int) -> PruningPlan:
    """Find the layers of `model` to prune for `nodes` nodes.

    Raises:
        DiscoError: See `disco_pruning.ownership.mixing_layers`.
    """
    return PruningPlan(nodes, mixing_layers(model, nodes))


def prune(plan: PruningPlan, sparsity: float) -> None:
    """Prune every exchange to the communication sparsity `sparsity` (0 to 1).

    The sub-rows with the least L1 norm go first; what is pruned already stays so, so that rounds of
    rising sparsity give nested masks. The count is rounded to the nearest whole sub-row.

    Raises:
        DiscoError: The sparsity is out of range or lower than what is pruned already.
    """
    if not 0.0 <= sparsity <= 1.0:
        raise DiscoError(f"a communication sparsity of {sparsity} is out of range: use 0 to 1")
    for group in plan.exchanges:
        keep = _kept_sub_rows(group, sparsity)
        for layer in group:
            set_mask(layer, keep)


def prune_in_rounds(
    model: nn.Module,
    plan: PruningPlan,
    sparsities: Sequence[float],
    finetune: Callable[[nn.Module], None],
) -> Iterator[float]:
    """Prune to each sparsity in turn and finetune after each; yields it when its round is done.

    Args:
        model: The trained dense network; changed in place.
        plan: Its pruning plan.
        sparsities: Rising communication sparsities, each 0 to 1.
        finetune: Trains the network it is given.
    """
    for sparsity in sparsities:
        prune(plan, sparsity)
        finetune(model)
        yield sparsity


def _candidates(layer: MixingLayer) -> Tensor:
    """[in, nodes] bool: the off-diagonal sub-rows of a prunable layer."""
    assert layer.in_owners is not None
    return off_diagonal(layer.in_owners, max(layer.out_owners) + 1)


def _kept_sub_rows(group: tuple[MixingLayer, ...], sparsity: float) -> Tensor:
    """[in, nodes] bool: the sub-rows of one exchange that survive, the diagonal included."""
    norms = torch.stack([sub_row_norms(layer.module.weight, layer.out_owners) for layer in group]).sum(0)
    candidates = _candidates(group[0])
    order = [(float(norms[i, k]), int(i), int(k)) for i, k in candidates.nonzero()]
    count = int(sparsity * len(order) + 0.5)
    already = sum(norm == 0.0 for norm, _, _ in order)
    if count < already:
        raise DiscoError(
            f"layer '{group[0].name}' has {already} of {len(order)} sub-rows pruned already, more "
            f"than a communication sparsity of {sparsity} allows: use rounds of rising sparsity"
        )
    keep = torch.ones_like(candidates)
    for _, i, k in sorted(order)[:count]:
        keep[i, k] = False
    return keep
