"""How the channels of a layer are shared out: the one rule that pruner, converter and planner must agree on."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from disco_targets.errors import DiscoError, UsageError

PLAN_KEY = "disco.plan"
"""Where the pruner puts its plan into the metadata of an ONNX model, and converter and planner find it."""
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class PlannedCut:
    """What the pruner's plan says of a model as a whole."""

    nodes: int
    shares: tuple[float, ...] | None
    """The fraction of each node; None for equal ones."""
    layers: tuple[str, ...]
    """Names of its mixing layers, where the plan has them."""
    input_range: tuple[float, float] | None = None
    """The least and the greatest value of the inputs that the model was exported with; None where it does not tell."""


def parse_shares(text: str) -> tuple[float, ...]:
    """Fractions that add up to 1 from e.g. "3,1" or "0.75,0.25".

    Raises:
        UsageError: As of `fractions`, or no numbers.
    """
    try:
        sizes = [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"shares {text}: give each node a number above zero, such as 3,1") from None
    return fractions(sizes, len(sizes))


def fractions(shares: Sequence[float], nodes: int) -> tuple[float, ...]:
    """Shares as fractions that add up to 1: ratios such as 3, 1, or fractions already.

    Raises:
        UsageError: Not one for each node, one that is not above zero, or fractions (all below 1) that add up to
            something else, which is a slip rather than a ratio.
    """
    text = ", ".join(f"{share:g}" for share in shares)
    if len(shares) != nodes:
        raise UsageError(f"{len(shares)} shares for {nodes} nodes ({text}): give one for each node")
    total = sum(shares) if all(0 < share < math.inf for share in shares) else 0.0
    if not 0 < total < math.inf:
        raise UsageError(f"shares {text}: give each node a number above zero, such as 3,1")
    if max(shares) < 1 and abs(total - 1) > _TOLERANCE:
        raise UsageError(f"shares {text} add up to {total:g}, not 1: give fractions that do, or a ratio such as 3,1")
    return tuple(share / total for share in shares)


def read_plan(text: str, where: str) -> PlannedCut:
    """The plan in the metadata of an ONNX model (under `PLAN_KEY`).

    Raises:
        DiscoError: It cannot be read; `where` names the model. A range that makes no sense is none: nothing but a
            warning depends on it.
    """
    try:
        plan = json.loads(text)
        nodes, shares = int(plan["nodes"]), plan["shares"]
        names = tuple(str(layer["name"]) for layer in plan.get("layers", ()))
        shared = None if shares is None else fractions([float(x) for x in shares], nodes)
        return PlannedCut(nodes, shared, names, _input_range(plan.get("input_range")))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, UsageError) as error:
        raise DiscoError(
            f"the plan in {where} ({PLAN_KEY}) cannot be read: export the model again, or give --shares"
        ) from error


def _input_range(limits: Any) -> tuple[float, float] | None:
    try:
        low, high = (float(limit) for limit in limits)
    except (ValueError, TypeError, OverflowError):
        return None
    return (low, high) if -math.inf < low < high < math.inf else None


def wrapper_prefix(names: Sequence[str], planned: Sequence[str]) -> str:
    """What a module around the planned network put in front of the names of its layers: "0." of "0.stem"; else ""."""
    first = planned[0] if planned else ""
    prefixes = ["", *(name.removesuffix(first) for name in names if name.endswith(f".{first}"))]
    return next((prefix for prefix in prefixes if {prefix + name for name in planned} <= set(names)), "")


def contiguous_owners(channels: int, nodes: int, shares: Sequence[float] | None = None) -> tuple[int, ...]:
    """The node of each channel: contiguous shares, as equal as possible or as near to `shares` as possible.

    Args:
        channels: How many to share out.
        nodes: Among how many nodes.
        shares: The fraction of each node, adding up to 1; equal by default.

    The remainder goes to the nodes with the largest fraction left over, the first ones of equals. Every node gets a
    channel if there are enough.
    """
    wanted = [channels * share for share in shares] if shares else [channels / nodes] * nodes
    least = 1 if channels >= nodes else 0
    sizes = [max(least, int(_exact(size))) for size in wanted]
    while sum(sizes) < channels:
        sizes[_largest([want - size for want, size in zip(wanted, sizes, strict=True)])] += 1
    while sum(sizes) > channels:  # what small shares got in excess
        excess = [size - want if size > least else -channels for want, size in zip(wanted, sizes, strict=True)]
        sizes[_largest(excess)] -= 1
    return tuple(node for node, size in enumerate(sizes) for _ in range(size))


def _largest(gaps: list[float]) -> int:
    """The first place of the largest."""
    exact = [_exact(gap) for gap in gaps]
    return exact.index(max(exact))


def _exact(size: float) -> float:
    """Without the noise of fractions such as 1/3, which must not decide a tie."""
    return round(size, 9)
