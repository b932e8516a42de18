"""Which fraction of all channels each node gets: as asked for, as the model was pruned, or the same for all."""

from __future__ import annotations

import json
import math
from typing import Any

from disco_planning.shares import PLAN_KEY
from disco_targets.errors import DiscoError, UsageError


def parse_shares(text: str) -> tuple[float, ...]:
    """Fractions that add up to 1 from e.g. "3,1" or "0.75,0.25".

    Raises:
        UsageError: Not numbers above zero.
    """
    try:
        sizes = [float(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or not all(size > 0 for size in sizes) or sum(sizes) == math.inf:
        raise UsageError(f"--shares {text}: give each node a number above zero, such as 3,1")
    return tuple(size / math.fsum(sizes) for size in sizes)


def check_shares(shares: tuple[float, ...] | None, nodes: int) -> None:
    """UsageError unless there is one for each node (or none)."""
    if shares is not None and len(shares) != nodes:
        raise UsageError(f"--shares has {len(shares)} shares for {nodes} nodes: give one for each node")


def planned_shares(model: Any, name: str, nodes: int) -> tuple[float, ...] | None:
    """The shares of the plan that the pruner wrote into an ONNX model; None without plan, for equal ones, or one node.

    Raises:
        DiscoError: The plan is for another number of nodes, or cannot be read.
    """
    text = next((entry.value for entry in model.metadata_props if entry.key == PLAN_KEY), None)
    if text is None or nodes == 1:
        return None
    try:
        plan = json.loads(text)
        planned, shares = int(plan["nodes"]), plan["shares"]
        fractions = None if shares is None else tuple(float(share) for share in shares)
    except (ValueError, KeyError, TypeError) as error:
        raise DiscoError(
            f"the plan in {name} ({PLAN_KEY}) cannot be read: export the model again, or give --shares"
        ) from error
    if planned != nodes:
        raise DiscoError(
            f"{name} was pruned for {planned} nodes, not {nodes}: what it sends would hardly be sparse. Use --nodes "
            f"{planned}, prune it for {nodes}, or cut it all the same with --shares {','.join('1' * nodes)}"
        )
    if fractions is not None and (len(fractions) != nodes or not all(0 < share <= 1 for share in fractions)):
        raise DiscoError(f"the plan in {name} has no share for each of {nodes} nodes: give --shares")
    return fractions
