"""How the nodes' clocks lie to ours, by round trips: a bound that holds, not an estimate.

Node time n was read between the moments a and b of our clock, so the offset n - t lies within half of b - a around
n - (a + b) / 2. The shortest round trip of a burst bounds it best. A burst before and one after the run give the
drift as well; in between the clocks are taken to drift evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class ClockSample:
    """One reading of a node's clock."""

    node_ns: int
    offset_ns: float
    """Node's clock less ours."""
    error_ns: float
    """The offset is at most so far off."""


@dataclass(frozen=True)
class NodeClock:
    """A node's clock during a run."""

    node: int
    offset_ns: float
    """Node's clock less ours, when `reference_ns` was its time."""
    reference_ns: int
    drift_ppm: float
    """How much faster it runs than ours."""
    error_ns: float
    """What it shows, brought to our clock, is at most so far off."""

    def to_host(self, node_ns: float) -> float:
        """A time of the node's clock on ours."""
        return node_ns - self.offset_ns - (node_ns - self.reference_ns) * self.drift_ppm * 1e-6


def sample(asked_ns: int, node_ns: int, answered_ns: int) -> ClockSample:
    """From one round trip on our clock, in nanoseconds."""
    return ClockSample(node_ns, node_ns - (asked_ns + answered_ns) / 2, (answered_ns - asked_ns) / 2)


def node_clock(node: int, before: Sequence[ClockSample], after: Sequence[ClockSample]) -> NodeClock:
    """The clock between two bursts of at least one sample each."""
    first, last = (min(burst, key=lambda one: one.error_ns) for burst in (before, after))
    span = last.node_ns - first.node_ns
    drift = (last.offset_ns - first.offset_ns) / span * 1e6 if span > 0 else 0.0
    return NodeClock(node, first.offset_ns, first.node_ns, drift, max(first.error_ns, last.error_ns))
