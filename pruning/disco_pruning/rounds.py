"""Pruning in a training loop of your own: prune once, or prune a fraction, finetune, and repeat."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING

import torch
from torch import distributed, nn

from disco_pruning.masks import kept_sub_rows, off_diagonal, pruned_sub_rows, set_mask, sub_row_norms
from disco_pruning.selection import Ranking, Score, Sparsity, check_rounds, select
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from disco_pruning.planning import Plan


def prune(plan: Plan, sparsity: Sparsity, score: Score = sub_row_norms, *, rank_within: Ranking = "layer") -> None:
    """Prune the planned network to a communication sparsity, and keep it so through training.

    What is pruned already stays so: rounds of rising sparsity give nested masks. With `torch.distributed`, call it on
    all ranks: all get the masks of rank 0. Optimisers that exist already go on working.

    Args:
        plan: The plan of the network.
        sparsity: 0 to 1: of every layer, or by layer name (0 for those not named; see `load_sparsity`).
        score: [in, nodes] worth of the sub-rows of a layer: L1 norm by default; `RandomScore(seed)`; any function.
        rank_within: Which sub-rows are ranked against each other: those of a "layer"; those of one "route" from node to
            node, so that both directions of a link carry as much; or those of the "network", by score per weight, to
            the sparsity of the whole.

    Raises:
        DiscoError: The sparsity is out of range, names a layer that cannot be pruned, or is lower than what is pruned
            already.
    """
    keeps = select(plan, sparsity, score, rank_within=rank_within)
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
    rank_within: Ranking = "layer",
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
        rank_within: See `prune`.
        checkpoints: Folder for the state dict of each round, named by `checkpoint_name`. Load one with
            `load_checkpoint`.

    Raises:
        DiscoError: A round cannot be (see `prune`); said before the first of them.
    """
    checked = tuple(sparsities)
    check_rounds(plan, checked, rank_within=rank_within)

    def rounds() -> Iterator[float]:
        for sparsity in checked:
            prune(plan, sparsity, score, rank_within=rank_within)
            finetune(model)
            if checkpoints is not None and _is_first_rank():
                folder = Path(checkpoints)
                folder.mkdir(parents=True, exist_ok=True)
                torch.save(model.state_dict(), folder / f"{checkpoint_name(plan, sparsity)}.pt")
            yield _wanted(plan, sparsity)

    return rounds()


def load_checkpoint(model: nn.Module, plan: Plan, path: str | Path) -> None:
    """Load the state dict of a pruned network, masks included, into `model`, which `plan` was made for.

    Raises:
        DiscoError: The file cannot be read, or is of another network.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise DiscoError(f"the checkpoint {path} cannot be read: {error.strerror}") from error
    except (RuntimeError, UnpicklingError, EOFError, ValueError) as error:
        raise DiscoError(f"{path} is not a checkpoint of prune_in_rounds: load it in your own way") from error
    attach_masks(plan)
    try:
        model.load_state_dict(state)
    except (RuntimeError, TypeError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise DiscoError(f"the checkpoint {path} is of another network or no state dict: {reason}") from error


def network_sparsity(plan: Plan) -> float:
    """S_comm of the network: pruned over all off-diagonal sub-rows of its layers, counted on the weights."""
    pruned = sum(int(pruned_sub_rows(layer).sum()) for layer in plan.prunable)
    total = sum(int(off_diagonal(layer).sum()) for layer in plan.prunable)
    return pruned / total if total else 1.0


def checkpoint_name(plan: Plan, sparsity: Sparsity) -> str:
    """`disco_90.0` where 90 % were asked for; named by the S_comm reached where there is a sparsity for each layer."""
    return f"disco_{100 * _wanted(plan, sparsity):.1f}"


def _wanted(plan: Plan, sparsity: Sparsity) -> float:
    return network_sparsity(plan) if isinstance(sparsity, Mapping) else float(sparsity)


def _is_first_rank() -> bool:
    """Whether this process writes files for all."""
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0
