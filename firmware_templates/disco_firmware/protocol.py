"""The messages between host and nodes: runtime/include/disco/protocol.h in Python.

A test compares the two. Integers are little-endian. Every message class packs itself and unpacks
bytes from the line; bytes that do not fit raise `MessageError`, which says which message and how.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import astuple, dataclass, fields
from typing import Any, ClassVar, Generic, TypeVar

PROTOCOL_VERSION = 4
MODEL_ABI = 4
ADDRESS_HOST = 0xFE
ADDRESS_ANY = 0xFF
FRAME_HEADER_BYTES = 7
FRAME_CRC_BYTES = 4
MAX_PAYLOAD = 240
STREAM_MAX_PAYLOAD = 0xFFFF
LINK_WINDOW = 4
LINK_EAGER = 2
BUNDLE_ID_BYTES = 16
RUN_CHECKSUMS = 1
OP_RECORD_BYTES = 48
ROUTE_RECORD_BYTES = 32
NO_INDEX = 0xFFFF
"""Op or exchange of an `ErrorReport` that concerns none."""
NO_PEER = 0xFF
LITTLE_ENDIAN = 1
"""`Welcome.endianness` of every node so far."""


class Opcode(enum.IntEnum):
    """What a frame carries."""

    ACK = 0x01
    NAK = 0x02
    HELLO = 0x10
    WELCOME = 0x11
    CONNECT = 0x12
    CONNECTED = 0x13
    INPUT = 0x20
    RUN = 0x21
    OUTPUT = 0x30
    OPS = 0x31
    ROUTES = 0x32
    DONE = 0x33
    STAGES = 0x34
    STEPS = 0x35
    ERROR = 0x3F
    PEER_HELLO = 0x40
    CREDIT = 0x41
    CHANNELS = 0x42


UNSEQUENCED = frozenset({Opcode.ACK, Opcode.NAK, Opcode.HELLO, Opcode.WELCOME})
"""Frames without a sequence number of their own: neither acknowledged nor retransmitted."""


class Status(enum.IntEnum):
    """Status codes of the C runtime (status.h)."""

    OK = 0
    BUSY = 1
    ERR_ARGUMENT = 2
    ERR_TIMEOUT = 3
    ERR_PROTOCOL = 4
    ERR_VERSION = 5
    ERR_BUNDLE = 6
    ERR_PEER = 7
    ERR_UNSUPPORTED = 8
    ERR_PORT = 9
    ERR_LINE = 10


class Unit(enum.IntEnum):
    """What one tick of a node's counter is (port.h)."""

    INSTRUCTIONS = 0
    CYCLES = 1
    NANOSECONDS = 2
    CYCLES_ESTIMATE = 3

    @property
    def label(self) -> str:
        """As written in reports and JSON."""
        return {0: "instructions", 1: "cycles", 2: "ns", 3: "cycles-estimate"}[self.value]


class MessageError(ValueError):
    """A payload that is not a message of its opcode."""


_Self = TypeVar("_Self", bound="_Fixed")


class _Fixed:
    """A message of fixed size: the fields of the dataclass in the order of `layout`."""

    layout: ClassVar[struct.Struct]

    def pack(self) -> bytes:
        """The payload."""
        return self.layout.pack(*vars(self).values())  # in the order of the fields; astuple would copy each

    @classmethod
    def unpack(cls: type[_Self], payload: bytes) -> _Self:
        """Reads a payload.

        Raises:
            MessageError: It has another size.
        """
        _expect(cls.__name__, len(payload), cls.layout.size)
        return cls(*cls.layout.unpack(payload))


def _expect(name: str, got: int, expected: int) -> None:
    if got != expected:
        raise MessageError(f"{name} of {got} bytes, expected {expected}")


def _struct(layout: str) -> struct.Struct:
    return struct.Struct("<" + layout)


@dataclass(frozen=True)
class Hello(_Fixed):
    """Host to node: forget everything, this is the session."""

    session: int
    version: int = PROTOCOL_VERSION
    layout = _struct("HBx")

    def pack(self) -> bytes:
        """The payload."""
        return self.layout.pack(self.version, self.session)

    @classmethod
    def unpack(cls, payload: bytes) -> Hello:
        """Reads a payload; `MessageError` for another size."""
        _expect("Hello", len(payload), cls.layout.size)
        version, session = cls.layout.unpack(payload)
        return cls(session=session, version=version)


@dataclass(frozen=True)
class Welcome(_Fixed):
    """Node to host: who sits on this line. Rates and sizes are 0 where unknown."""

    version: int
    model_abi: int
    node: int
    node_count: int
    unit: int
    endianness: int
    ticks_per_second: int
    clock_hz: int
    resolution_ticks: int
    free_ram_bytes: int
    stack_bytes: int
    max_payload: int
    link_count: int
    bundle_id: bytes
    board: str
    core: str
    layout = _struct("HHBBBBIIIIIHBx16s32s16s")

    def pack(self) -> bytes:
        """The payload."""
        values = astuple(self)
        return self.layout.pack(*values[:-2], self.board.encode(), self.core.encode())

    @classmethod
    def unpack(cls, payload: bytes) -> Welcome:
        """Reads a payload; `MessageError` for another size or a name that is no text."""
        _expect("Welcome", len(payload), cls.layout.size)
        names = (field.name for field in fields(cls))
        values: dict[str, Any] = dict(zip(names, cls.layout.unpack(payload), strict=True))
        return cls(**values | {name: _text(values[name]) for name in ("board", "core")})


def _text(padded: bytes) -> str:
    text = padded.rstrip(b"\0").decode("ascii", errors="replace")
    if not (text.isascii() and text.isprintable()):
        raise MessageError(f"a name in Welcome is no text: {padded!r}")
    return text


@dataclass(frozen=True)
class Connect(_Fixed):
    """Host to node: greet your peers within the deadline."""

    deadline_ms: int
    layout = _struct("I")


@dataclass(frozen=True)
class Run(_Fixed):
    """Host to node: run the model on the inputs sent before; the deadline is that of each wait."""

    inference: int
    deadline_ms: int
    flags: int = 0
    layout = _struct("III")


@dataclass(frozen=True)
class Done(_Fixed):
    """Node to host, last message of a run: ticks at its start and end, the most stack in use so far (0: unknown)."""

    inference: int
    stack_used_bytes: int
    start: int
    end: int
    layout = _struct("IIQQ")


@dataclass(frozen=True)
class ErrorReport(_Fixed):
    """Node to host: why a run or a greeting failed; `NO_INDEX` and `NO_PEER` mean none."""

    status: int
    op: int
    exchange: int
    peer: int
    missing_bytes: int
    waited_ms: int
    layout = _struct("HHHBxII")


@dataclass(frozen=True)
class PeerHello(_Fixed):
    """Node to node: who I am and what I was built from."""

    bundle_id: bytes
    node: int
    node_count: int
    version: int = PROTOCOL_VERSION
    layout = _struct("16sBBH")


@dataclass(frozen=True)
class Credit(_Fixed):
    """Node to node: exchanges 0 .. opened-1 of this inference may be sent to me."""

    inference: int
    opened: int
    layout = _struct("IH")


@dataclass(frozen=True)
class OpRecord(_Fixed):
    """One op of a run, in ticks of the node's unit; interrupts are taken out of `compute`."""

    start: int
    end: int
    compute: int
    wait: int
    send: int
    checksum: int
    layout = _struct("QQQQQI4x")


@dataclass(frozen=True)
class RouteRecord(_Fixed):
    """One send of a run; `retransmitted` counts frames sent again on its link in the session."""

    first_queued: int
    last_packed: int
    payload_bytes: int
    frames: int
    retransmitted: int
    layout = _struct("QQIII4x")


@dataclass(frozen=True)
class StepRecord(_Fixed):
    """One step of an op of a run (see manifest.steps_of), on a node whose program records them."""

    compute: int
    """Ticks of the node's unit, 2**32 - 1 where they were more."""
    layout = _struct("I")


@dataclass(frozen=True)
class StageRecord(_Fixed):
    """One stage of a run on a node that runs stages, in ticks of its unit.

    From `start` on the node prepares the stage's inputs with what it computed, waits for the halo, scatters that into
    the inputs, computes, gathers what is sent and sends it, till `end`.
    """

    start: int
    end: int
    prepare: int
    wait: int
    scatter: int
    compute: int
    gather: int
    send: int
    layout = _struct("QQQQQQQQ")


_Part = TypeVar("_Part", bound="_Fragment")


@dataclass(frozen=True)
class _Fragment:
    """A part of a byte stream: which one, from which byte on, the bytes."""

    index: int
    offset: int
    data: bytes
    layout: ClassVar[struct.Struct] = _struct("HxxI")
    HEADER_BYTES: ClassVar[int] = 8

    def pack(self) -> bytes:
        """The payload."""
        return self.layout.pack(self.index, self.offset) + self.data

    @classmethod
    def unpack(cls: type[_Part], payload: bytes) -> _Part:
        """Reads a payload; `MessageError` when it is too short."""
        if len(payload) < cls.HEADER_BYTES:
            raise MessageError(f"{cls.__name__} of {len(payload)} bytes, shorter than its header")
        index, offset = cls.layout.unpack_from(payload)
        return cls(index, offset, payload[cls.HEADER_BYTES :])

    @classmethod
    def split(cls: type[_Part], index: int, stream: bytes, max_payload: int = MAX_PAYLOAD) -> list[_Part]:
        """The whole stream in messages as large as a frame of the link takes."""
        step = max_payload - cls.HEADER_BYTES
        return [cls(index, at, stream[at : at + step]) for at in range(0, len(stream), step)]


class InputPart(_Fragment):
    """Host to node: a part of input tensor `index`, int8 [h][w][c]."""


class OutputPart(_Fragment):
    """Node to host: a part of the node's own channels of output `index`, int8 [h][w][own]."""


@dataclass(frozen=True)
class Channels:
    """Node to node: the next bytes of the stream [h][w][channels] of one exchange.

    The line carries the lowest bits of each number, as a check: what comes next is known.
    """

    inference: int
    """Modulo 256."""
    exchange: int
    """Modulo 256."""
    offset: int
    """Of the first byte, modulo 65536."""
    data: bytes
    layout: ClassVar[struct.Struct] = _struct("BBH")
    HEADER_BYTES: ClassVar[int] = 4

    def pack(self) -> bytes:
        """The payload."""
        return self.header(self.inference, self.exchange, self.offset) + self.data

    @classmethod
    def header(cls, inference: int, exchange: int, offset: int) -> bytes:
        """What stands before the data."""
        return cls.layout.pack(inference % 256, exchange % 256, offset % 65536)

    @classmethod
    def unpack(cls, payload: bytes) -> Channels:
        """Reads a payload; `MessageError` when it is too short."""
        if len(payload) < cls.HEADER_BYTES:
            raise MessageError(f"Channels of {len(payload)} bytes, shorter than its header")
        inference, exchange, offset = cls.layout.unpack_from(payload)
        return cls(inference, exchange, offset, payload[cls.HEADER_BYTES :])


_Record = TypeVar("_Record", bound=_Fixed)
_RecordsT = TypeVar("_RecordsT", bound="_Records[Any]")


@dataclass(frozen=True)
class _Records(Generic[_Record]):
    """Node to host: the records of number `first`, `first` + 1, ... of one inference."""

    inference: int
    first: int
    records: tuple[_Record, ...]
    kind: ClassVar[type[_Fixed]]
    layout: ClassVar[struct.Struct] = _struct("IHH")

    def pack(self) -> bytes:
        """The payload."""
        header = self.layout.pack(self.inference, self.first, len(self.records))
        return header + b"".join(record.pack() for record in self.records)

    @classmethod
    def unpack(cls: type[_RecordsT], payload: bytes) -> _RecordsT:
        """Reads a payload; `MessageError` when its size does not fit its count."""
        header, record = cls.layout.size, cls.kind.layout
        if len(payload) < header:
            raise MessageError(f"{cls.__name__} of {len(payload)} bytes, shorter than its header")
        inference, first, count = cls.layout.unpack_from(payload)
        _expect(f"{cls.__name__} with {count} records", len(payload), header + count * record.size)
        return cls(inference, first, tuple(cls.kind(*values) for values in record.iter_unpack(payload[header:])))


class OpRecords(_Records[OpRecord]):
    """Node to host: the records of some ops."""

    kind = OpRecord


class RouteRecords(_Records[RouteRecord]):
    """Node to host: the records of some sends."""

    kind = RouteRecord


class StageRecords(_Records[StageRecord]):
    """Node to host: the records of some stages."""

    kind = StageRecord


class StepRecords(_Records[StepRecord]):
    """Node to host: the records of some steps."""

    kind = StepRecord
