"""Which fraction of all channels each node gets where nothing else is asked for: as the model was pruned."""

from __future__ import annotations

from typing import Any

from disco_planning.shares import PLAN_KEY, read_plan
from disco_targets.errors import DiscoError


def planned_shares(model: Any, name: str, nodes: int) -> tuple[float, ...] | None:
    """The shares of the plan that the pruner wrote into an ONNX model; None without plan, for equal ones, or one node.

    Raises:
        DiscoError: The plan is for another number of nodes, or cannot be read.
    """
    text = next((entry.value for entry in model.metadata_props if entry.key == PLAN_KEY), None)
    if text is None or nodes == 1:
        return None
    plan = read_plan(text, name)
    if plan.nodes != nodes:
        raise DiscoError(
            f"{name} was pruned for {plan.nodes} nodes, not {nodes}: what it sends would hardly be sparse. Use --nodes "
            f"{plan.nodes}, prune it for {nodes}, or cut it all the same with --shares {','.join('1' * nodes)}"
        )
    return plan.shares
