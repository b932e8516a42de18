"""What the replay computes with: tasks of nodes, streams of bytes between them, and the links that carry them.

Nothing here knows where the tasks come from. Times are seconds, sizes bytes, nodes and tasks counted from 0.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Arrival:
    """The first `bytes` of a stream have come in."""

    stream: int
    bytes: int


@dataclass(frozen=True)
class Task:
    """A piece of work of one node; a node does its tasks in order and looks at its links between two of them."""

    label: str
    seconds: float
    needs: tuple[Arrival, ...] = ()
    """What it waits for."""
    handed_over: tuple[int, ...] = ()
    """Streams of the node that must be with their link, to the last byte, before it is this task's turn."""


@dataclass(frozen=True)
class Part:
    """The next bytes of a stream, which are final when a task of the sender has ended."""

    bytes: int
    task: int


@dataclass(frozen=True)
class Stream:
    """Bytes that go from one node to another, in order."""

    label: str
    sender: int
    receiver: int
    parts: tuple[Part, ...]
    """At least one, each of at least a byte, with rising tasks."""
    opened_by: int | None = None
    """The receiver's task at whose turn it gives leave to send; None: no leave is needed."""

    @property
    def bytes(self) -> int:
        """All of it."""
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True)
class Protocol:
    """How streams are cut into frames. Sizes are those on the line, start and stop bits left out."""

    data_bytes: int
    """Of a stream in one frame, at most."""
    overhead_bytes: int = 0
    """Of a frame beside them."""
    window: int | None = None
    """Frames under way before one must be acknowledged. With a window a frame leaves when it is full, when it ends its
    stream or when fewer than `eager` are under way; without one (None) everything leaves when it is final, and nothing
    is acknowledged."""
    acknowledgement_bytes: int = 0
    """The frame that only acknowledges: for when none leaves that could do so besides."""
    credit_bytes: int = 0
    """The frame that gives leave to send."""
    eager: int = 1
    """Fewer than so many frames under way hold back no frame that is not full."""


@dataclass(frozen=True)
class Link:
    """The line between two nodes."""

    ends: tuple[int, int]
    bytes_per_second: float
    latency_s: float = 0.0
    """From the last bit sent to the receiver's knowing of the frame."""
    frame_s: float = 0.0
    """The line is taken so much longer by every frame."""
    full_duplex: bool = True
    """False: both directions share the line."""
    burst_bytes: float = 0.0
    """What a token bucket saves up during a pause and lets pass at once, each direction; 0 on a plain wire."""


@dataclass(frozen=True)
class Graph:
    """A whole run."""

    nodes: tuple[tuple[Task, ...], ...]
    streams: tuple[Stream, ...]
    """Those of one pair of nodes leave in this order."""
    links: tuple[Link, ...]
    protocol: Protocol
