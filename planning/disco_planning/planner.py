"""Which sparsity each layer should have: the same everywhere, the equilibrium, or what a latency takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from disco_planning.latency import PAPER, latencies, total_seconds
from disco_planning.units import format_time
from disco_targets.errors import DiscoError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disco_planning.latency import Convention, LayerCost, Sparsities

PROFILES = ("uniform", "equilibrium")
_BISECTIONS = 60


def check_sparsity(value: float, where: str = "sparsity") -> float:
    """`value`; UsageError when it is not in [0, 1]."""
    if not 0 <= value <= 1:
        raise UsageError(f"{where} is {value:g}: it must lie between 0 (everything is sent) and 1 (nothing is)")
    return value


def uniform(costs: Sequence[LayerCost], sparsity: float) -> Sparsities:
    """`sparsity` for each layer that can be pruned, 0 for the others."""
    check_sparsity(sparsity)
    return {cost.layer.name: sparsity if cost.prunable else 0.0 for cost in costs}


def equilibrium(costs: Sequence[LayerCost]) -> Sparsities:
    """The equilibrium sparsity of each layer. Readers of a tensor that is sent once take that of the first."""
    result: dict[str, float] = {}
    paid: dict[int, float] = {}
    for cost in costs:
        if cost.transfer_seconds > 0:
            paid[cost.layer.src] = cost.equilibrium()
        result[cost.layer.name] = paid.get(cost.layer.src, 0.0) if cost.prunable else 0.0
    return result


def for_latency(
    costs: Sequence[LayerCost], seconds: float, profile: str = "uniform", convention: Convention = PAPER
) -> Sparsities:
    """The least sparsity with which the network takes at most `seconds`.

    Args:
        costs: The layers on their cluster.
        seconds: The latency to reach.
        profile: "uniform": the same for each layer. "equilibrium": the same fraction of each layer's equilibrium
            sparsity, and beyond the equilibrium the same fraction of what is left of it to 1.
        convention: As in `layer_costs`.

    Raises:
        DiscoError: Even with nothing sent it takes longer.
    """
    path = _path(costs, profile)

    def total(position: float) -> float:
        return total_seconds(latencies(costs, path(position), convention))

    if total(0.0) <= seconds:
        return path(0.0)
    if total(1.0) > seconds:
        raise DiscoError(
            f"{format_time(seconds)} cannot be reached: with nothing sent the network still takes "
            f"{format_time(total(1.0))}; use more nodes, or a faster system"
        )
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if total(middle) <= seconds else (middle, high)
    return path(high)


def mean_sparsity(costs: Sequence[LayerCost], sparsities: Sparsities) -> float:
    """The mean over the layers that can be pruned; 0 when there is none."""
    values = [sparsities.get(cost.layer.name, 0.0) for cost in costs if cost.prunable]
    return math.fsum(values) / len(values) if values else 0.0


def _path(costs: Sequence[LayerCost], profile: str) -> Callable[[float], Sparsities]:
    """Sparsities that rise with a position from 0 (dense) to 1 (nothing sent)."""
    if profile not in PROFILES:
        raise UsageError(f"profile is {profile!r}: choose one of {', '.join(PROFILES)}")
    if profile == "uniform":
        return lambda position: uniform(costs, position)
    balanced = equilibrium(costs)
    ends = uniform(costs, 1.0)

    def along(position: float) -> Sparsities:
        to_balance, beyond = min(2 * position, 1.0), max(2 * position - 1, 0.0)
        return {name: to_balance * s + beyond * (ends[name] - s) for name, s in balanced.items()}

    return along
