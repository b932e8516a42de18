"""Frames on a byte line: round trips, damage, any cut of the stream."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_firmware.framing import (
    WIRE_MAX_BYTES,
    WIRE_OVERHEAD_BYTES,
    Frame,
    FrameSplitter,
    FramingError,
    cobs_decode,
    cobs_encode,
    decode_frame,
    encode_frame,
)
from disco_firmware.protocol import MAX_PAYLOAD

BYTE = st.integers(0, 255)
FRAMES = st.builds(Frame, BYTE, BYTE, BYTE, BYTE, BYTE, st.binary(max_size=MAX_PAYLOAD), BYTE)


@pytest.mark.parametrize(
    ("raw", "encoded"),
    [
        (b"", b"\x01"),
        (b"\0", b"\x01\x01"),
        (b"\0\0", b"\x01\x01\x01"),
        (b"\x11\x22\0\x33", b"\x03\x11\x22\x02\x33"),
        (b"\x11\0\0\0", b"\x02\x11\x01\x01\x01"),
        (bytes(range(1, 255)), b"\xff" + bytes(range(1, 255))),
        (b"\0" + bytes(range(1, 255)), b"\x01\xff" + bytes(range(1, 255))),
        (bytes(range(1, 256)), b"\xff" + bytes(range(1, 255)) + b"\x02\xff"),
        (bytes(range(2, 256)) + b"\0", b"\xff" + bytes(range(2, 256)) + b"\x01\x01"),
        (bytes(range(3, 256)) + b"\0\x01", b"\xfe" + bytes(range(3, 256)) + b"\x02\x01"),
    ],
)
def test_cobs_examples(raw: bytes, encoded: bytes) -> None:
    """The examples of the paper and of its Wikipedia page."""
    assert cobs_encode(raw) == encoded
    assert cobs_decode(encoded) == raw


@given(st.binary(max_size=2000))
def test_cobs_round_trip(raw: bytes) -> None:
    encoded = cobs_encode(raw)
    assert 0 not in encoded
    assert len(encoded) <= len(raw) + 1 + len(raw) // 254
    assert cobs_decode(encoded) == raw


@pytest.mark.parametrize("encoded", [b"", b"\x02", b"\x05\x01\x02", b"\x03\x01\0"])
def test_cobs_refuses(encoded: bytes) -> None:
    with pytest.raises(FramingError):
        cobs_decode(encoded)


@given(FRAMES)
def test_frame_round_trip(frame: Frame) -> None:
    wire = encode_frame(frame)
    assert wire.index(0) == len(wire) - 1
    assert len(wire) == len(frame.payload) + WIRE_OVERHEAD_BYTES
    assert decode_frame(wire[:-1]) == frame


def test_a_frame_as_documented() -> None:
    """Byte for byte, with the CRC that zlib gives for its first eleven bytes."""
    wire = encode_frame(Frame(0x20, 0xFE, 1, 7, 3, b"\x01\0\x02\x03"))
    assert wire.hex(" ") == "06 20 fe 01 07 03 03 04 01 07 02 03 4b 77 cb 29 00"


def test_a_longer_payload_is_refused() -> None:
    with pytest.raises(ValueError, match="241 bytes, at most 240"):
        encode_frame(Frame(0, 0, 0, 0, 0, bytes(MAX_PAYLOAD + 1)))


@given(FRAMES, st.data())
def test_any_single_damage_is_seen(frame: Frame, data: st.DataObject) -> None:
    wire = bytearray(encode_frame(frame)[:-1])
    at = data.draw(st.integers(0, len(wire) - 1))
    wire[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FramingError):
        decode_frame(bytes(wire))


@given(st.lists(FRAMES, max_size=5), st.integers(0, 2**32))
def test_the_splitter_does_not_mind_how_a_stream_is_cut(frames: list[Frame], seed: int) -> None:
    stream = b"".join(encode_frame(frame) + b"\0" for frame in frames)
    generator, splitter, got = random.Random(seed), FrameSplitter(), []
    while stream:
        size = generator.randrange(1, 300)
        got += splitter.feed(stream[:size])
        stream = stream[size:]
    assert got == frames


@given(st.binary(max_size=3000))
def test_the_splitter_recovers_from_garbage(garbage: bytes) -> None:
    splitter, frame = FrameSplitter(), Frame(0x42, 1, 0, 9, 4, b"payload")
    splitter.feed(garbage)
    assert len(splitter._pending) <= WIRE_MAX_BYTES
    *_, last = splitter.feed(b"\0" + encode_frame(frame))
    assert last == frame


def test_a_frame_that_never_ends_is_one_damaged_frame() -> None:
    splitter = FrameSplitter()
    for _ in range(100):
        assert splitter.feed(b"\x01" * 100) == []
    assert splitter.feed(b"\0") == [None]
