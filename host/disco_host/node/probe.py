"""Measures a link between two agents: round trips of small and large messages, bytes a second one way and both ways."""

from __future__ import annotations

import socket
import struct
import threading
import time
from statistics import median, quantiles

from disco_host.node.messages import Probed
from disco_targets.errors import DiscoError

SMALL_BYTES = 64
LARGE_BYTES = 256 * 1024
SMALL_ROUNDS = 200
LARGE_ROUNDS = 8
STREAM_S = 0.5
"""How long bytes flow, one way and both ways."""
PATIENCE_S = 10.0
SEND_BUFFER_BYTES = 512 * 1024
_ECHO, _SINK, _BOTH = 0, 1, 2
_REQUEST = struct.Struct("<BII")
"""What to do, bytes that follow in each message, bytes of each answer."""
_CHUNK = 64 * 1024
_MARK = b"\xff"
_END = b"\0"


def answer(line: socket.socket) -> None:
    """The listening side, until the caller closes. What it does is bounded by the caller's patience and ours."""
    _prepare(line)
    try:
        while request := _take(line, _REQUEST.size):
            kind, size, reply = _REQUEST.unpack(request)
            if kind == _ECHO and size <= LARGE_BYTES and reply <= LARGE_BYTES:
                _take(line, size)
                line.sendall(bytes(reply))
            elif kind == _SINK:
                _count(line)
                line.sendall(_END)
            elif kind == _BOTH:
                sender = threading.Thread(target=_pour, args=(line, STREAM_S), daemon=True)
                sender.start()
                _count(line)
                sender.join()
            else:
                return
    except OSError:
        return
    finally:
        line.close()


def measure(line: socket.socket) -> Probed:
    """The calling side.

    Raises:
        DiscoError: The link broke.
    """
    _prepare(line)
    try:
        small = [_round(line, SMALL_BYTES, SMALL_BYTES) for _ in range(SMALL_ROUNDS)]
        large = [_round(line, LARGE_BYTES, SMALL_BYTES) for _ in range(LARGE_ROUNDS)]
        return Probed(
            SMALL_BYTES,
            median(small),
            quantiles(small, n=20)[-1],
            LARGE_BYTES,
            median(large),
            _one_way(line),
            _both_ways(line),
        )
    except OSError as error:
        raise DiscoError(f"the link broke while it was probed: {error.strerror or error}") from error


def _prepare(line: socket.socket) -> None:
    """Not so much waits in the socket that a slow link takes longer for it than we have patience."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    line.settimeout(PATIENCE_S)


def _round(line: socket.socket, size: int, reply: int) -> float:
    start = time.monotonic()
    line.sendall(_REQUEST.pack(_ECHO, size, reply) + bytes(size))
    _take(line, reply)
    return time.monotonic() - start


def _one_way(line: socket.socket) -> float:
    start = time.monotonic()
    line.sendall(_REQUEST.pack(_SINK, 0, 0))
    sent = _pour(line, STREAM_S)
    _take(line, 1)  # everything has arrived
    return sent / (time.monotonic() - start)


def _both_ways(line: socket.socket) -> float:
    received = [0]
    start = time.monotonic()
    line.sendall(_REQUEST.pack(_BOTH, 0, 0))
    counter = threading.Thread(target=lambda: received.__setitem__(0, _count(line)), daemon=True)
    counter.start()
    sent = _pour(line, STREAM_S)
    counter.join()
    return (sent + received[0]) / (time.monotonic() - start)


def _pour(line: socket.socket, seconds: float) -> int:
    """Sends marked chunks for a while, then an empty one; how many bytes that were."""
    chunk = _MARK + bytes(_CHUNK - 1)
    sent = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        line.sendall(chunk)
        sent += len(chunk)
    line.sendall(_END)
    return sent


def _count(line: socket.socket) -> int:
    """Receives chunks until the empty one; how many bytes that were."""
    received = 0
    while _take(line, 1) == _MARK:
        _take(line, _CHUNK - 1)
        received += _CHUNK
    return received


def _take(line: socket.socket, size: int) -> bytes:
    """Exactly so many bytes; none at the end of the stream."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = line.recv_into(view)
        if count == 0:
            if len(view) == size:
                return b""
            raise ConnectionError("end of stream")
        view = view[count:]
    return bytes(data)
