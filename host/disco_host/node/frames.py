"""Frames of the conversation between host and agent: JSON messages and raw bytes, their length in front.

Header, little-endian: u32 payload length, u8 kind. The length is checked before anything is kept for the payload.
"""

from __future__ import annotations

import json
import math
import socket
import struct
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from disco_targets.errors import DiscoError
from disco_targets.records import record
from disco_targets.text import printable_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HEADER = struct.Struct("<IB")
JSON_KIND, BYTES_KIND = 0, 1
MAX_JSON = 256 * 1024
MAX_BYTES = 256 * 1024
_LIMITS = {JSON_KIND: MAX_JSON, BYTES_KIND: MAX_BYTES}
_READ_BYTES = 64 * 1024


class FrameError(DiscoError):
    """What came is no frame, or no message: nothing after it can be understood either."""


@dataclass(frozen=True)
class Frame:
    """One frame."""

    kind: int
    payload: bytes


class FrameReader:
    """Cuts a byte stream into frames; keeps at most one unfinished frame."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Takes the next bytes; returns the frames that they complete.

        Raises:
            FrameError: A frame is too long or of an unknown kind.
        """
        self._pending += data
        frames = []
        at = 0
        while len(self._pending) - at >= HEADER.size:
            length, kind = HEADER.unpack_from(self._pending, at)
            limit = _LIMITS.get(kind)
            if limit is None:
                raise FrameError(f"a frame of kind {kind} came, which does not exist")
            if length > limit:
                raise FrameError(f"a frame of {length} bytes came, at most {limit} are taken")
            end = at + HEADER.size + length
            if end > len(self._pending):
                break
            frames.append(Frame(kind, bytes(self._pending[at + HEADER.size : end])))
            at = end
        del self._pending[:at]
        return frames

    def end(self) -> None:
        """The stream is over.

        Raises:
            FrameError: In the middle of a frame.
        """
        if self._pending:
            raise FrameError(f"the connection ended in the middle of a frame, after {len(self._pending)} bytes of it")


def pack_json(message: Mapping[str, Any]) -> bytes:
    """A JSON message as a frame."""
    payload = json.dumps(message, separators=(",", ":")).encode()
    if len(payload) > MAX_JSON:
        raise FrameError(f"a message of {len(payload)} bytes cannot be sent, at most {MAX_JSON} are taken")
    return HEADER.pack(len(payload), JSON_KIND) + payload


def pack_bytes(payload: bytes) -> bytes:
    """Raw bytes, at most `MAX_BYTES`, as a frame."""
    return HEADER.pack(len(payload), BYTES_KIND) + payload


def read_frames(line: socket.socket) -> Iterator[Frame]:
    """All frames of a blocking socket until its other end closes; the socket's timeout bounds every wait.

    Raises:
        FrameError: What came is no frame, or ended in the middle of one.
        OSError: The connection broke, or nothing came in time.
    """
    reader = FrameReader()
    while data := line.recv(_READ_BYTES):
        yield from reader.feed(data)
    reader.end()


def read_one(line: socket.socket, limit_s: float) -> Frame | None:
    """One frame within `limit_s`, and not a byte of what follows it; None when the stream is over before it.

    Raises:
        FrameError: What came is no frame, or ended in the middle of one.
        OSError: The connection broke, or nothing came in time.
    """
    reader = FrameReader()
    deadline = time.monotonic() + limit_s
    taken = 0
    wanted = HEADER.size
    header = b""
    while taken < wanted:
        line.settimeout(max(0.001, deadline - time.monotonic()))
        data = line.recv(min(wanted - taken, _READ_BYTES))
        if not data:
            reader.end()
            return None
        taken += len(data)
        if len(header) < HEADER.size:
            header += data
            if len(header) == HEADER.size:
                wanted += HEADER.unpack(header)[0]
        frames = reader.feed(data)  # refuses a length that is too long before any of the payload is read
        if frames:
            return frames[0]
    raise AssertionError("a whole frame was read")


def _whole_number(text: str) -> int:
    number = int(text)
    if not 0 <= number < 1 << 63:
        raise ValueError(f"a number of {len(text)} digits")
    return number


def _number(text: str) -> float:
    number = float(text)
    if not 0 <= number < math.inf:
        raise ValueError(f"the number {text[:20]}")
    return number


def message_of(frame: Frame, kinds: Mapping[str, type[Any]]) -> Any:
    """The message in a frame: an instance of one of `kinds`, by the key "type".

    No number in it is negative, infinite or has more than 63 bits, and its text is printable.

    Raises:
        FrameError: It is none of them, strictly.
    """
    if frame.kind != JSON_KIND:
        raise FrameError("raw bytes came where a message was expected")
    try:
        document = json.loads(frame.payload, parse_int=_whole_number, parse_float=_number, parse_constant=_number)
        document = printable_json(document)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a message is no JSON: {error}") from error
    name = document.pop("type", None) if isinstance(document, dict) else None
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        raise FrameError(f"a message of type {name!r} came, expected {', '.join(sorted(kinds))}")
    try:
        return record(kind, document, f"message {name}")
    except FrameError:
        raise
    except DiscoError as error:
        raise FrameError(str(error)) from error


def pack_message(message: Any) -> bytes:
    """A message (an instance of a dataclass with the attribute `type`) as a frame."""
    return pack_json({"type": message.type, **asdict(message)})
