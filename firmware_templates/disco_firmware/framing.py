"""Frames on a byte line: COBS (Cheshire and Baker, 1999) around header, payload and CRC-32.

A zero byte ends each. The layout is that of runtime/include/disco/protocol.h.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from disco_firmware.protocol import FRAME_CRC_BYTES, FRAME_HEADER_BYTES, MAX_PAYLOAD

DELIMITER = b"\0"
OVERHEAD_BYTES = FRAME_HEADER_BYTES + FRAME_CRC_BYTES
WIRE_OVERHEAD_BYTES = OVERHEAD_BYTES + 2
"""What a frame takes on the line beside its payload: header, CRC, COBS code byte, delimiter."""
WIRE_MAX_BYTES = MAX_PAYLOAD + WIRE_OVERHEAD_BYTES
_COBS_BLOCK = 254
_HEADER = struct.Struct("<BBBBBBB")
_CRC = struct.Struct("<I")


class FramingError(ValueError):
    """Bytes between two delimiters that are not a frame."""


def cobs_encode(raw: bytes) -> bytes:
    """Encodes any number of bytes, without the delimiter."""
    return _encode_block(raw) if len(raw) < _COBS_BLOCK else _encode_blocks(raw)


def _encode_block(raw: bytes) -> bytes:
    """What no block of 254 bytes can be in: every zero becomes the distance to the next one."""
    encoded = bytearray(1) + raw
    code = 0
    zero = encoded.find(0, 1)
    while zero > 0:
        encoded[code] = zero - code
        code, zero = zero, encoded.find(0, zero + 1)
    encoded[code] = len(encoded) - code
    return bytes(encoded)


def _encode_blocks(raw: bytes) -> bytes:
    encoded = bytearray()
    segments = raw.split(DELIMITER)
    for number, segment in enumerate(segments):
        while len(segment) >= _COBS_BLOCK:
            encoded.append(0xFF)
            encoded += segment[:_COBS_BLOCK]
            segment = segment[_COBS_BLOCK:]
            if not segment and number == len(segments) - 1:
                return bytes(encoded)
        encoded.append(len(segment) + 1)
        encoded += segment
    return bytes(encoded)


def cobs_decode(encoded: bytes) -> bytes:
    """Reverses `cobs_encode`.

    Raises:
        FramingError: A zero byte, or a code that points behind the end.
    """
    if not encoded or 0 in encoded:
        raise FramingError("empty or with a zero byte")
    return _decode_block(encoded) if len(encoded) <= _COBS_BLOCK else _decode_blocks(encoded)


def _decode_block(encoded: bytes) -> bytes:
    """Where every code but the first stands for a zero."""
    raw = bytearray(encoded)
    at, length = 0, len(raw)
    while at < length:
        code = raw[at]
        raw[at] = 0
        at += code
    if at != length:
        raise FramingError("code points behind the end")
    return bytes(raw[1:])


def _decode_blocks(encoded: bytes) -> bytes:
    raw = bytearray()
    at, length = 0, len(encoded)
    while at < length:
        code = encoded[at]
        end = at + code
        if end > length:
            raise FramingError("code points behind the end")
        raw += encoded[at + 1 : end]
        if code <= _COBS_BLOCK and end != length:
            raw.append(0)
        at = end
    return bytes(raw)


class Frame(NamedTuple):
    """One frame. `opcode` may be any byte: what it means is for the link and its user to say."""

    opcode: int
    source: int
    destination: int
    session: int
    sequence: int
    payload: bytes = b""
    expected: int = 0
    """The sequence number that the sender expects next: acknowledges all before it."""


def encode_frame(frame: Frame) -> bytes:
    """The frame as it goes on the line, delimiter included.

    Raises:
        ValueError: The payload is longer than `MAX_PAYLOAD`.
    """
    if len(frame.payload) > MAX_PAYLOAD:
        raise ValueError(f"payload of {len(frame.payload)} bytes, at most {MAX_PAYLOAD} fit")
    header = _HEADER.pack(
        frame.opcode,
        frame.source,
        frame.destination,
        frame.session,
        frame.sequence,
        frame.expected,
        len(frame.payload),
    )
    covered = header + frame.payload
    return cobs_encode(covered + _CRC.pack(zlib.crc32(covered))) + DELIMITER


def decode_frame(encoded: bytes) -> Frame:
    """Reads what stood between two delimiters.

    Raises:
        FramingError: It is damaged: COBS, length or CRC.
    """
    raw = cobs_decode(encoded)
    if not OVERHEAD_BYTES <= len(raw) <= OVERHEAD_BYTES + MAX_PAYLOAD:
        raise FramingError(f"{len(raw)} bytes")
    covered = raw[:-FRAME_CRC_BYTES]
    opcode, source, destination, session, sequence, expected, length = _HEADER.unpack_from(covered)
    payload = covered[FRAME_HEADER_BYTES:]
    if _CRC.unpack(raw[-FRAME_CRC_BYTES:])[0] != zlib.crc32(covered):
        raise FramingError("CRC")
    if length != len(payload):
        raise FramingError("length")
    return Frame(opcode, source, destination, session, sequence, payload, expected)


class FrameSplitter:
    """Cuts a byte stream at its delimiters and keeps at most one unfinished frame."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Frame | None]:
        """Takes the next bytes; returns the frames they end, None for a damaged one."""
        *ended, rest = data.split(DELIMITER)
        frames: list[Frame | None] = []
        for part in ended:
            encoded = bytes(self._pending + part)
            self._pending.clear()
            if encoded:
                frames.append(_frame_or_none(encoded))
        # One byte more than a frame can have is enough to know that it is damaged.
        self._pending += rest[: WIRE_MAX_BYTES - len(self._pending)]
        return frames


def _frame_or_none(encoded: bytes) -> Frame | None:
    try:
        return decode_frame(encoded)
    except FramingError:
        return None
