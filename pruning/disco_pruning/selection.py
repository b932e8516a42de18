"""Which sub-rows go: scores, and how many of each layer.

Layers that read the same tensor share one exchange, so they are ranked together: the score of a sub-row is the sum
over those layers, and a channel pruned in all of them is not sent at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor

from disco_pruning.labels import REPLICATED
from disco_pruning.masks import kept_sub_rows, off_diagonal, sub_row_kernels, sub_row_norms
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from disco_pruning.planning import MixingLayer, Plan

Score = Callable[["MixingLayer"], Tensor]
"""[in, nodes] the worth of every sub-row of a layer; the least go first."""
Sparsity = float | Mapping[str, float]
"""One communication sparsity for all layers, or one by layer name (0 for those not named)."""
Ranking = Literal["route", "layer", "network"]
"""Which sub-rows are ranked against each other.

layer: those of a layer, as in the paper.
route: those from one node to another, within a layer. As many are pruned of a layer, but equally many of every route:
    both directions of a link then carry as much, and neither node waits for the busier one.
network: those of all layers, by their score per weight; the sparsity (one number) then holds for the network.
"""


class RandomScore:
    """Random sub-rows, the paper's ablation; reproducible by its seed."""

    def __init__(self, seed: int = 0) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, layer: MixingLayer) -> Tensor:
        """Uniform random numbers, new ones at each call."""
        return torch.rand(off_diagonal(layer).shape, generator=self._generator)


def select(
    plan: Plan, sparsity: Sparsity, score: Score = sub_row_norms, *, rank_within: Ranking = "layer"
) -> list[Tensor]:
    """Choose the sub-rows that stay.

    Args:
        plan: What to prune; its layers are not changed.
        sparsity: Communication sparsity, 0 to 1, of all layers or by layer name.
        score: The worth of a sub-row.
        rank_within: Which sub-rows are ranked against each other.

    Returns:
        For each layer of `plan.prunable`: [in, nodes] bool, False for what is pruned. What was pruned before stays so.
        Counts are rounded to the nearest whole sub-row.

    Raises:
        DiscoError: The sparsity is out of range, names a layer that cannot be pruned, or is lower than what is pruned
            already; or there is no such ranking.
    """
    _check_ranking(rank_within)
    scores = _scores(plan, score, rank_within == "network")
    if rank_within == "network":
        return _keep_globally(plan, [scores[layer.name] for layer in plan.prunable], _of_network(sparsity))
    wanted = _by_layer(plan, sparsity)
    if rank_within == "route":
        scores = {layer.name: _places(layer, scores[layer.name]) for layer in plan.prunable}
    return [_keep(layer, scores[layer.name], wanted[layer.name]) for layer in plan.prunable]


def _check_ranking(rank_within: Ranking) -> None:
    if rank_within not in get_args(Ranking):
        known = ", ".join(get_args(Ranking))
        raise DiscoError(f"sub-rows cannot be ranked within {rank_within!r}: use one of {known}")


def _scores(plan: Plan, score: Score, per_weight: bool) -> dict[str, Tensor]:
    """[in, nodes] by layer name; the same for the layers of one exchange."""
    result: dict[str, Tensor] = {}
    for group in plan.exchanges:
        total = torch.stack([_checked(layer, score(layer)) for layer in group]).sum(0)
        if per_weight:
            total = total / torch.stack([_weights(layer) for layer in group]).sum(0).clamp(min=1)
        result.update((layer.name, total) for layer in group)
    return result


def _checked(layer: MixingLayer, scores: Tensor) -> Tensor:
    expected = off_diagonal(layer).shape
    if scores.shape != expected or bool((scores.isnan() | scores.isneginf()).any()):  # -inf: what is pruned already
        raise DiscoError(
            f"the score of layer '{layer.name}' has shape {list(scores.shape)} or is not a number: it must give "
            f"{list(expected)} (inputs, nodes); if its weights are not finite, train with a lower learning rate"
        )
    return scores.detach().double().cpu()


def _weights(layer: MixingLayer) -> Tensor:
    """[in, nodes] number of weights in each sub-row."""
    return sub_row_kernels(layer).double().cpu() * math.prod(layer.weight.shape[2:])


def check_rounds(plan: Plan, sparsities: Iterable[Sparsity], *, rank_within: Ranking = "layer") -> None:
    """Check all rounds, before the first takes its time.

    Raises:
        DiscoError: A sparsity is out of range, names a layer that cannot be pruned, or is lower than one before; or
            there is no such ranking.
    """
    _check_ranking(rank_within)
    previous: dict[str, float] = {}
    for sparsity in sparsities:
        wanted = {"the network": _of_network(sparsity)} if rank_within == "network" else _by_layer(plan, sparsity)
        for name, value in wanted.items():
            if value < previous.get(name, 0.0):
                raise DiscoError(
                    f"a round prunes {name} to a communication sparsity of {value:g}, a round before it to "
                    f"{previous[name]:g}: what is pruned stays so, use rounds of rising sparsity"
                )
        previous = wanted


def _of_network(sparsity: Sparsity) -> float:
    if isinstance(sparsity, Mapping):
        raise DiscoError("sub-rows ranked over the whole network need one sparsity for it, not one for each layer")
    _check_range(sparsity)
    return sparsity


def _by_layer(plan: Plan, sparsity: Sparsity) -> dict[str, float]:
    if not isinstance(sparsity, Mapping):
        _check_range(sparsity)
        return {layer.name: sparsity for layer in plan.prunable}
    prunable = [layer.name for layer in plan.prunable]
    never = {layer.name for layer in plan.layers}.union(plan.local).difference(prunable)
    for name, value in sparsity.items():
        _check_range(value, f" for layer '{name}'")
        if name in never and value == 0:  # what it has
            continue
        if name not in prunable:
            why = "which is never pruned, as it needs no exchange" if name in never else "which the plan does not have"
            raise DiscoError(
                f"a sparsity is given for layer '{name}', {why}: those that can be pruned are {', '.join(prunable)}"
            )
    return {layer.name: float(sparsity.get(layer.name, 0.0)) for layer in plan.prunable}


def _check_range(sparsity: object, where: str = "") -> None:
    if not isinstance(sparsity, Real):
        raise DiscoError(f"a communication sparsity of {sparsity!r}{where} is not a number: use 0 to 1")
    if not 0.0 <= float(sparsity) <= 1.0:
        raise DiscoError(f"a communication sparsity of {sparsity}{where} is out of range: use 0 to 1")


def _keep(layer: MixingLayer, scores: Tensor, sparsity: float) -> Tensor:
    kept, candidates = kept_sub_rows(layer).cpu(), off_diagonal(layer).cpu()
    keep = _least_pruned(scores.flatten(), kept.flatten(), candidates.flatten(), sparsity, f" of layer '{layer.name}'")
    return keep.reshape(scores.shape)


def _places(layer: MixingLayer, scores: Tensor) -> Tensor:
    """[in, nodes] the order in which `layer` is pruned if all routes are to lose alike.

    What stands for each sub-row is how far up its own route it is; those equally far up are ordered by their scores.
    """
    kept, candidates = kept_sub_rows(layer).cpu(), off_diagonal(layer).cpu()
    senders = torch.tensor(layer.in_owners if layer.in_owners is not None else [REPLICATED] * len(scores))
    worth = scores.masked_fill(~kept, -torch.inf)
    share = torch.zeros_like(worth)
    for sender in set(senders.tolist()):
        for receiver in range(worth.shape[1]):
            route = candidates[:, receiver] & (senders == sender)
            ranked = torch.argsort(torch.argsort(worth[route, receiver], stable=True))
            share[route, receiver] = (ranked.double() + 0.5) / max(1, len(ranked))
    by_worth = torch.argsort(worth.flatten(), stable=True)
    order = by_worth[torch.argsort(share.flatten()[by_worth], stable=True)]
    return torch.argsort(order).reshape(worth.shape).double()


def _keep_globally(plan: Plan, scores: list[Tensor], sparsity: float) -> list[Tensor]:
    kept = [kept_sub_rows(layer).cpu() for layer in plan.prunable]
    candidates = [off_diagonal(layer).cpu() for layer in plan.prunable]
    flat = [torch.cat([part.flatten() for part in parts]) for parts in (scores, kept, candidates)]
    keep = _least_pruned(flat[0], flat[1], flat[2], sparsity)
    parts = torch.split(keep, [part.numel() for part in scores])
    return [part.reshape(like.shape) for part, like in zip(parts, scores, strict=True)]


def _least_pruned(scores: Tensor, kept: Tensor, candidates: Tensor, sparsity: float, where: str = "") -> Tensor:
    """[sub-rows] bool: all but those of the candidates that are pruned already and then those of least score."""
    total, already = int(candidates.sum()), int((candidates & ~kept).sum())
    count = int(sparsity * total + 0.5)
    if count < already:
        raise DiscoError(
            f"{already} of {total} sub-rows{where} are pruned already, more than a communication sparsity of "
            f"{sparsity} allows: use rounds of rising sparsity"
        )
    order = torch.argsort(scores.masked_fill(~kept, -torch.inf), stable=True)  # ties by position
    keep = torch.ones_like(candidates)
    keep[order[candidates[order]][:count]] = False
    return keep
