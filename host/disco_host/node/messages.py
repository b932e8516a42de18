"""What host and agent say to each other, as JSON: one dataclass per message, `type` names it on the line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

CONTROL, LINE, PEER, PROBE = "control", "line", "peer", "probe"
"""What a connection is for."""
NATIVE, TFLITE = "native", "tflite"
ENGINES = (TFLITE, NATIVE)
HALTED = "is halted"
"""What a node does whose engine was stopped by a signal."""
BEAT_S = 0.25
"""How often an agent says what its node does."""


@dataclass(frozen=True)
class Purpose:
    """First message of every connection, from whoever opened it."""

    type: ClassVar[str] = "purpose"
    purpose: str
    """CONTROL, LINE, PEER or PROBE."""
    version: str
    """Of disco-edge."""
    job: str
    """32 hexadecimal digits, drawn by the host."""
    node: int | None
    """PEER: who it is. Else None."""


@dataclass(frozen=True)
class Welcome:
    """The agent's answer: go on."""

    type: ClassVar[str] = "welcome"
    version: str
    machine: str


@dataclass(frozen=True)
class Refusal:
    """Either side: why it cannot go on."""

    type: ClassVar[str] = "refusal"
    what: str


@dataclass(frozen=True)
class Part:
    """One file of a slice."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Prepare:
    """Host to agent: which slice of which bundle is to run, and how."""

    type: ClassVar[str] = "prepare"
    bundle: str
    node: int
    nodes: int
    engine: str
    mode: str
    parts: tuple[Part, ...]
    framed: bool
    """Native: the lines carry the boards' frames, because a board is among the nodes; else those of `StreamLink`."""


@dataclass(frozen=True)
class Need:
    """Agent to host: send these parts, each in frames of raw bytes, in this order."""

    type: ClassVar[str] = "need"
    parts: tuple[int, ...]


@dataclass(frozen=True)
class Prepared:
    """Agent to host: the slice is there, checked and built."""

    type: ClassVar[str] = "prepared"
    uploaded: int
    """How many parts were not in the cache."""


@dataclass(frozen=True)
class Address:
    """Where another node's agent listens."""

    node: int
    address: str
    """HOST:PORT."""


@dataclass(frozen=True)
class Start:
    """Host to agent: connect to some peers, await the connections of others, start the engine."""

    type: ClassVar[str] = "start"
    dial: tuple[Address, ...]
    expect: tuple[int, ...]


@dataclass(frozen=True)
class Started:
    """Agent to host: the engine runs."""

    type: ClassVar[str] = "started"


@dataclass(frozen=True)
class Ping:
    """Host to agent: what time is it? Also says that the host is alive."""

    type: ClassVar[str] = "ping"
    number: int


@dataclass(frozen=True)
class Pong:
    """Agent to host: nanoseconds of the clock that the node's stamps are of."""

    type: ClassVar[str] = "pong"
    number: int
    nanoseconds: int


@dataclass(frozen=True)
class Beat:
    """Agent to host, every `BEAT_S`: what the node does."""

    type: ClassVar[str] = "beat"
    doing: str
    """Of `disco_host.node.state.Doing`, or what the agent itself does."""
    seconds: float
    """For how long."""
    op: int | None = None
    exchange: int | None = None
    peer: int | None = None


@dataclass(frozen=True)
class Probe:
    """Host to agent: measure the link to this node's agent."""

    type: ClassVar[str] = "probe"
    peer: Address


@dataclass(frozen=True)
class Probed:
    """Agent to host: what was measured."""

    type: ClassVar[str] = "probed"
    small_bytes: int
    """Payload of a small message."""
    round_trip_s: float
    """Median of small messages, there and back."""
    round_trip_p95_s: float
    large_bytes: int
    """Payload of a large message."""
    large_round_trip_s: float
    """Median of one large message there and a small answer."""
    one_way_bytes_per_s: float
    both_ways_bytes_per_s: float
    """Sent and received at once, together."""


def kinds(*types: Any) -> dict[str, Any]:
    """For `frames.message_of`."""
    return {kind.type: kind for kind in types}
