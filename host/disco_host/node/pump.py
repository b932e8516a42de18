"""Carries bytes between two streams: a TLS connection and the plain socket that engines know, or two lines."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass

BUFFER_BYTES = 256 * 1024
"""At most so many are on their way in each direction; then the sender has to wait."""
_READ_BYTES = 64 * 1024


class _End:
    """One stream, never blocking; `None` and 0 mean: not now."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.wants_write = False
        """TLS: it can go on when it may write, whatever it was asked for."""
        line.setblocking(False)

    def read(self) -> bytes | None:
        self.wants_write = False
        try:
            return self.line.recv(_READ_BYTES)
        except ssl.SSLWantWriteError:
            self.wants_write = True
            return None
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
            return None
        except OSError:
            return b""

    def write(self, data: bytearray) -> int | None:
        """None: the stream is broken."""
        try:
            return self.line.send(data)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError:
            return None


@dataclass
class _Way:
    """One direction."""

    source: _End
    sink: _End
    buffer: bytearray
    over: bool = False


class Pump:
    """Carries bytes both ways in a thread of its own until one side ends; then closes both."""

    def __init__(self, one: socket.socket, other: socket.socket, ended: Callable[[], None] | None = None) -> None:
        """Takes over both sockets; `ended` is called (in the thread) when they are closed."""
        self._ends = (_End(one), _End(other))
        self._ended = ended
        self._wake, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="pump", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends it; a second call does nothing."""
        with contextlib.suppress(OSError):
            self._waker.send(b"x")
        self._thread.join()

    def _run(self) -> None:
        one, other = self._ends
        ways = (_Way(one, other, bytearray()), _Way(other, one, bytearray()))
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._wake, selectors.EVENT_READ)
                for end in self._ends:
                    selector.register(end.line, selectors.EVENT_READ)
                while not any(way.over and not way.buffer for way in ways):
                    if not all(_carry(way) for way in ways):
                        return
                    if self._wake in self._select(selector, ways):
                        return
        finally:
            for end in self._ends:
                with contextlib.suppress(OSError):
                    end.line.shutdown(socket.SHUT_RDWR)
                end.line.close()
            self._wake.close()
            self._waker.close()
            if self._ended is not None:
                self._ended()

    def _select(self, selector: selectors.BaseSelector, ways: tuple[_Way, _Way]) -> list[object]:
        """Sleeps until something can be carried; which sockets are ready."""
        pending = False  # TLS may hold bytes that no descriptor shows
        for way in ways:
            back = next(w for w in ways if w.sink is way.source)
            events = 0
            if not way.over and len(way.buffer) < BUFFER_BYTES:
                events |= selectors.EVENT_READ
                pending = pending or (isinstance(way.source.line, ssl.SSLSocket) and way.source.line.pending() > 0)
            if back.buffer or way.source.wants_write:
                events |= selectors.EVENT_WRITE
            self._watch(selector, way.source.line, events)
        return [key.fileobj for key, _ in selector.select(0 if pending else None)]

    @staticmethod
    def _watch(selector: selectors.BaseSelector, line: socket.socket, events: int) -> None:
        registered = line in selector.get_map()
        if events and registered:
            selector.modify(line, events)
        elif events:
            selector.register(line, events)
        elif registered:
            selector.unregister(line)


def _carry(way: _Way) -> bool:
    """Reads and writes what is possible now; False when the sink is broken."""
    if not way.over and len(way.buffer) < BUFFER_BYTES:
        data = way.source.read()
        if data:
            way.buffer += data
        elif data is not None:
            way.over = True
    if way.buffer:
        written = way.sink.write(way.buffer)
        if written is None:
            return False
        del way.buffer[:written]
    return True
