"""The planner's sparsity file (disco_planning.sparsity_file), checked against a plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from disco_planning.shares import wrapper_prefix
from disco_planning.sparsity_file import read_sparsity
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from disco_pruning.planning import Plan


def load_sparsity(path: str | Path, plan: Plan) -> dict[str, float]:
    """Read a sparsity file for `plan`, to be given to `prune`.

    Layers that the plan never prunes (the stem, depthwise layers) may be in it and are left out of what is returned;
    layers that the file leaves out stay dense. It may be of a network that wraps the planned one (`0.stem` for `stem`).

    Raises:
        DiscoError: The file cannot be read, is of another form, number of nodes or shares, or names an unknown layer.
    """
    wanted = read_sparsity(Path(path))
    if wanted.nodes != plan.nodes:
        raise DiscoError(
            f"sparsity file {path} is for {wanted.nodes} nodes and the plan for {plan.nodes}: make it again with "
            f"--nodes {plan.nodes}"
        )
    if not wanted.is_for(plan.shares or (1 / plan.nodes,) * plan.nodes):
        raise DiscoError(
            f"sparsity file {path} is for shares of {_shares(wanted.shares)} and the plan for {_shares(plan.shares)}: "
            "their sub-rows are not the same; make the file again with --shares as in the plan"
        )
    known = {layer.name for layer in plan.layers} | set(plan.local)
    prefix = wrapper_prefix(list(wanted.layers), [layer.name for layer in plan.prunable])
    layers = {name.removeprefix(prefix): sparsity for name, sparsity in wanted.layers.items()}
    for name in layers:
        if name not in known:
            raise DiscoError(
                f"sparsity file {path} names layer '{name}', which the network does not have: make it from the file "
                f"that export_onnx wrote of it; it has {', '.join(sorted(known))}"
            )
    prunable = {layer.name for layer in plan.prunable}
    return {name: sparsity for name, sparsity in layers.items() if name in prunable}


def _shares(shares: tuple[float, ...] | None) -> str:
    return "equal size" if shares is None else ", ".join(f"{share:g}" for share in shares)
