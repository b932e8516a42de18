"""What a node is doing right now, for those who watch it."""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass


class Doing(enum.Enum):
    """Kinds of activity."""

    IDLE = "idle"
    """Between runs."""
    CONNECTING = "connecting"
    """Awaits a peer's greeting."""
    COMPUTING = "computing"
    WAITING = "waiting"
    """For the bytes of an exchange."""
    SENDING = "sending"
    """The peer does not take the bytes of an exchange fast enough."""


@dataclass(frozen=True)
class Activity:
    """One activity, from `since` on."""

    doing: Doing
    since: float
    """Seconds of the node's monotonic clock."""
    op: int | None = None
    """Place in the node's program; of a stage its last op."""
    exchange: int | None = None
    peer: int | None = None
    """With which node."""


class NodeState:
    """Written by the engine, read by any thread: an activity is replaced as a whole, never changed."""

    def __init__(self) -> None:
        """Idle."""
        self._activity = Activity(Doing.IDLE, time.monotonic())

    @property
    def activity(self) -> Activity:
        """The present one."""
        return self._activity

    def set(self, doing: Doing, *, op: int | None = None, exchange: int | None = None, peer: int | None = None) -> None:
        """Begins another activity."""
        self._activity = Activity(doing, time.monotonic(), op, exchange, peer)
