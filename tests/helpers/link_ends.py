"""The C link and the Python link behind one interface, and a faulty line between two of them."""

from __future__ import annotations

import ctypes
import random
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from disco_firmware.link import Link
from helpers.c_build import RUNTIME, compile_c

LINE_BYTES = 1 << 18
SHIM = Path(__file__).parents[1] / "c" / "link_shim.c"
SOURCES = tuple(RUNTIME / "src" / name for name in ("link.c", "cobs.c", "crc32.c", "crc32_tables.c"))
STREAM_SOURCES = tuple(RUNTIME / "src" / name for name in ("stream_link.c", "cobs.c", "crc32.c", "crc32_tables.c"))
STREAM_LINES = "-DDISCO_STREAM_LINES=1"


class Stats(ctypes.Structure):
    """disco_link_stats_t."""

    _fields_ = tuple(
        (name, ctypes.c_uint32)
        for name in ("frames_sent", "bytes_sent", "retransmissions", "frames_received", "frames_damaged")
    )
    frames_sent: int
    bytes_sent: int
    retransmissions: int
    frames_received: int
    frames_damaged: int


class End(Protocol):
    """One end of a link in a test. Times are milliseconds."""

    def queue(self, opcode: int, payload: bytes) -> None:
        """Sends as soon as the window has room."""

    def exchange(self, data: bytes, now_ms: int) -> bytes:
        """Takes bytes from the line and returns those for it."""

    def received(self) -> list[tuple[int, bytes]]:
        """All messages so far."""

    def idle(self) -> bool:
        """Nothing waits or is unacknowledged."""

    def stats(self) -> tuple[int, int, int, int]:
        """Frames sent, payload bytes sent, retransmissions, frames received."""


class PythonEnd:
    """The Python link."""

    def __init__(self, own: int, peer: int, session: int) -> None:
        self.link = Link(own, peer)
        self.link.reset(session)
        self._messages: list[tuple[int, bytes]] = []

    def queue(self, opcode: int, payload: bytes) -> None:
        self.link.send(opcode, payload)

    def exchange(self, data: bytes, now_ms: int) -> bytes:
        messages = self.link.receive(data, now_ms / 1000)
        self._messages += [(message.opcode, message.payload) for message in messages]
        return self.link.bytes_to_send(now_ms / 1000)

    def received(self) -> list[tuple[int, bytes]]:
        return self._messages

    def idle(self) -> bool:
        return self.link.idle

    def stats(self) -> tuple[int, int, int, int]:
        counts = self.link.statistics
        return counts.frames_sent, counts.bytes_sent, counts.retransmissions, counts.frames_received


class CEnd:
    """The C link, end `number` (0 or 1) of a loaded shim. Its line may take few bytes at a time."""

    def __init__(self, shim: ctypes.CDLL, number: int, own: int, peer: int, session: int, room: int = LINE_BYTES):
        self._shim, self._number, self._room = shim, number, room
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._messages: list[tuple[int, bytes]] = []
        self._buffer = ctypes.create_string_buffer(LINE_BYTES)
        shim.shim_init(number, own, peer)
        if session:
            shim.shim_reset(number, session)
        shim.shim_take(number, self._buffer, room)

    def queue(self, opcode: int, payload: bytes) -> None:
        self._waiting.append((opcode, payload))

    def exchange(self, data: bytes, now_ms: int) -> bytes:
        self._shim.shim_feed(self._number, data, len(data))
        status = self._shim.shim_poll(self._number, now_ms)
        assert status == 0, status
        while self._waiting and self._shim.shim_ready(self._number):
            opcode, payload = self._waiting.popleft()
            assert self._shim.shim_send(self._number, opcode, payload, len(payload)) == 0
        status = self._shim.shim_poll(self._number, now_ms)
        assert status == 0, status
        return self.take()

    def take(self) -> bytes:
        """Bytes that were written to the line."""
        count = self._shim.shim_take(self._number, self._buffer, self._room)
        return ctypes.string_at(self._buffer, count)

    def received(self) -> list[tuple[int, bytes]]:
        for index in range(len(self._messages), self._shim.shim_messages(self._number)):
            packed = self._shim.shim_message(self._number, index, self._buffer)
            self._messages.append((packed >> 16, ctypes.string_at(self._buffer, packed & 0xFFFF)))
        return self._messages

    def idle(self) -> bool:
        return not self._waiting and bool(self._shim.shim_idle(self._number))

    def stats(self) -> tuple[int, int, int, int]:
        counts = self.all_stats()
        return counts.frames_sent, counts.bytes_sent, counts.retransmissions, counts.frames_received

    def all_stats(self) -> Stats:
        """The C structure."""
        stats: Stats = self._shim.shim_stats(self._number).contents
        return stats


def build_shim(folder: Path, *, stream: bool = False) -> ctypes.CDLL:
    """Compiles the C link, or the one over a stream, into a shared library, undefined behaviour trapped."""
    flags = ["-shared", "-fPIC", "-O1", "-g", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    sources = SOURCES
    if stream:
        sources, flags = STREAM_SOURCES, [*flags, STREAM_LINES]
    library = ctypes.CDLL(str(compile_c("gcc", [SHIM, *sources], folder / "link_shim.so", flags)))
    library.shim_feed.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    library.shim_take.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    library.shim_poll.argtypes = [ctypes.c_int, ctypes.c_uint32]
    library.shim_send.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
    library.shim_send_control.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
    library.shim_message.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p]
    for name in ("shim_take", "shim_messages", "shim_link_bytes"):
        getattr(library, name).restype = ctypes.c_size_t
    library.shim_stats.restype = ctypes.POINTER(Stats)
    for name in ("disco_cobs_encode", "disco_cobs_decode"):
        getattr(library, name).argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        getattr(library, name).restype = ctypes.c_size_t
    library.disco_crc32.argtypes = [ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t]
    library.disco_crc32.restype = ctypes.c_uint32
    return library


@dataclass
class FaultyLine:
    """One direction of a line: each byte is dropped, damaged, repeated or held back with probability `rate`."""

    rate: float
    random: random.Random
    faults: int = 0
    _held: list[tuple[int, bytes]] = field(default_factory=list)

    def carry(self, data: bytes, now_ms: int) -> bytes:
        """What arrives now, in order: a held byte holds back all that follow it."""
        for byte in data:
            self._held.append(self._spoil(byte, now_ms))
        arrived = bytearray()
        while self._held and self._held[0][0] <= now_ms:
            arrived += self._held.pop(0)[1]
        return bytes(arrived)

    def _spoil(self, byte: int, now_ms: int) -> tuple[int, bytes]:
        if self.random.random() >= self.rate:
            return now_ms, bytes([byte])
        self.faults += 1
        fault = self.random.randrange(4)
        if fault == 0:
            return now_ms, b""
        if fault == 1:
            return now_ms, bytes([byte ^ (1 << self.random.randrange(8))])
        if fault == 2:
            return now_ms, bytes([byte, byte])
        return now_ms + self.random.randrange(1, 40), bytes([byte])


def carry_all(one: End, other: End, rate: float, seed: int, limit_ms: int = 600_000) -> tuple[int, int]:
    """Runs both ends, a millisecond a turn, until all is acknowledged; returns the faults and the time taken.

    Fails when that takes longer than `limit_ms` of simulated time.
    """
    there, back = (FaultyLine(rate, random.Random(seed + n)) for n in range(2))
    to_one = to_other = b""
    for now_ms in range(limit_ms):
        to_other = there.carry(one.exchange(to_one, now_ms), now_ms)
        to_one = back.carry(other.exchange(to_other, now_ms), now_ms)
        if one.idle() and other.idle():
            return there.faults + back.faults, now_ms
    raise AssertionError(f"not done after {limit_ms} ms")
