"""Pruning in a training loop of your own: prune once, or prune a fraction, finetune, and repeat."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import distributed, nn

from disco_pruning.masks import kept_sub_rows, off_diagonal, pruned_sub_rows, set_mask, sub_row_norms
from disco_pruning.selection import Score, Sparsity, select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from disco_pruning.planning import Plan


def prune(plan: Plan, sparsity: Sparsity, score: Score = sub_row_norms, *, rank_globally: bool = False) -> None:
    """Prune the planned network to a communication sparsity, and keep it so through training.

    What is pruned already stays so: rounds of rising sparsity give nested masks. With `torch.distributed`, call it on
    all ranks: all get the masks of rank 0. Optimisers that exist already go on working.

    Args:
        plan: The plan of the network.
        sparsity: 0 to 1: of every layer, or by layer name (0 for those not named; see `load_sparsity`).
        score: [in, nodes] worth of the sub-rows of a layer: L1 norm by default; `RandomScore(seed)`; any function.
        rank_globally: Rank all layers against each other, by score per weight; `sparsity` is then the network's.

    Raises:
        DiscoError: The sparsity is out of range, names an unknown layer, or is lower than what is pruned already.
    """
    keeps = select(plan, sparsity, score, rank_globally=rank_globally)
    for layer, keep in zip(plan.prunable, keeps, strict=True):
        shared = keep.to(layer.weight.device, torch.uint8)
        if distributed.is_available() and distributed.is_initialized():
            distributed.broadcast(shared, 0)
        set_mask(layer, shared.bool())


def attach_masks(plan: Plan) -> None:
    """Put masks in place that prune nothing, so that the keys of the state dict do not change when pruning starts."""
    for layer in plan.prunable:
        set_mask(layer, kept_sub_rows(layer))


def prune_in_rounds(
    model: nn.Module,
    plan: Plan,
    sparsities: Sequence[Sparsity],
    finetune: Callable[[nn.Module], None],
    score: Score = sub_row_norms,
    *,
    rank_globally: bool = False,
    checkpoints: str | Path | None = None,
) -> Iterator[float]:
    """Prune to each sparsity in turn and finetune after each; yields it when its round is done.

    Where a round has one sparsity for each layer, the S_comm reached over all of them is yielded.

    Args:
        model: The trained dense network; changed in place.
        plan: Its plan.
        sparsities: Rising communication sparsities; a single one is one-shot pruning.
        finetune: Trains the network it is given.
        score: See `prune`.
        rank_globally: See `prune`.
        checkpoints: Folder for the state dict of each round, `disco_50.0.pt` at 50 %. Load one with `load_checkpoint`.
    """
    for sparsity in sparsities:
        prune(plan, sparsity, score, rank_globally=rank_globally)
        finetune(model)
        reached = sparsity if isinstance(sparsity, int | float) else network_sparsity(plan)
        if checkpoints is not None and _is_first_rank():
            folder = Path(checkpoints)
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(model.state_dict(), folder / f"{checkpoint_name(reached)}.pt")
        yield reached


def load_checkpoint(model: nn.Module, plan: Plan, path: str | Path) -> None:
    """Load the state dict of a pruned network, masks included, into `model`, which `plan` was made for."""
    attach_masks(plan)
    model.load_state_dict(torch.load(path, weights_only=True))


def network_sparsity(plan: Plan) -> float:
    """S_comm of the network: pruned over all off-diagonal sub-rows of its layers, counted on the weights."""
    pruned = sum(int(pruned_sub_rows(layer).sum()) for layer in plan.prunable)
    total = sum(int(off_diagonal(layer).sum()) for layer in plan.prunable)
    return pruned / total if total else 1.0


def checkpoint_name(sparsity: float) -> str:
    """`disco_90.0` at 90 % communication sparsity."""
    return f"disco_{100 * sparsity:.1f}"


def _is_first_rank() -> bool:
    """Whether this process writes files for all."""
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0
