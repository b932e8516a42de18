"""What a model's plan says: which fraction of all channels each node gets, and the range of the network's inputs."""

from __future__ import annotations

from typing import Any

from disco_planning.shares import PLAN_KEY, PlannedCut, read_plan
from disco_targets.errors import DiscoError


def planned_shares(model: Any, name: str, nodes: int) -> tuple[float, ...] | None:
    """The shares of the plan that the pruner wrote into an ONNX model; None without plan, for equal ones, or one node.

    Raises:
        DiscoError: The plan is for another number of nodes, or cannot be read.
    """
    plan = None if nodes == 1 else _plan(model, name)
    if plan is None:
        return None
    if plan.nodes != nodes:
        raise DiscoError(
            f"{name} was pruned for {plan.nodes} nodes, not {nodes}: what it sends would hardly be sparse. Use --nodes "
            f"{plan.nodes}, prune it for {nodes}, or cut it all the same with --shares {','.join('1' * nodes)}"
        )
    return plan.shares


def planned_range(model: Any, name: str) -> tuple[float, float] | None:
    """The least and the greatest value of the inputs that the pruner exported a model with; None if it is not told.

    A plan that cannot be read tells nothing: one node, or shares that are given, do without it.
    """
    try:
        plan = _plan(model, name)
    except DiscoError:
        return None
    return None if plan is None else plan.input_range


def _plan(model: Any, name: str) -> PlannedCut | None:
    return next((read_plan(str(entry.value), name) for entry in model.metadata_props if entry.key == PLAN_KEY), None)
