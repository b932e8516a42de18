"""What a model's plan says: which fraction of all channels each node gets, and the range of the network's inputs."""

from __future__ import annotations

import json
import math
from typing import Any

from disco_planning.shares import PLAN_KEY, read_plan
from disco_targets.errors import DiscoError


def planned_shares(model: Any, name: str, nodes: int) -> tuple[float, ...] | None:
    """The shares of the plan that the pruner wrote into an ONNX model; None without plan, for equal ones, or one node.

    Raises:
        DiscoError: The plan is for another number of nodes, or cannot be read.
    """
    text = _plan_text(model)
    if text is None or nodes == 1:
        return None
    plan = read_plan(text, name)
    if plan.nodes != nodes:
        raise DiscoError(
            f"{name} was pruned for {plan.nodes} nodes, not {nodes}: what it sends would hardly be sparse. Use --nodes "
            f"{plan.nodes}, prune it for {nodes}, or cut it all the same with --shares {','.join('1' * nodes)}"
        )
    return plan.shares


def planned_range(model: Any) -> tuple[float, float] | None:
    """The least and the greatest value of the inputs that the pruner exported a model with; None if it is not told."""
    try:
        low, high = (float(limit) for limit in json.loads(_plan_text(model) or "{}")["input_range"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (low, high) if -math.inf < low < high < math.inf else None


def _plan_text(model: Any) -> str | None:
    return next((str(entry.value) for entry in model.metadata_props if entry.key == PLAN_KEY), None)
