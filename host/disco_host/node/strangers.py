"""Connections that have not proved the token yet: how many there may be, and how much is said about them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable

MOST_STRANGERS = 32
LOG_EVERY_S = 1.0


class Strangers:
    """Those at the door, in the order in which they came. Who comes when it is full takes another one's place."""

    def __init__(self) -> None:
        """Nobody is there."""
        self._lock = threading.Lock()
        self._lines: dict[socket.socket, str] = {}

    def admit(self, line: socket.socket, host: str) -> socket.socket:
        """One more, from an address; who has most connections loses its oldest when there are too many.

        Returns:
            Our own handle of the connection, for `leaves`.

        Raises:
            OSError: No descriptor is left.
        """
        handle = line.dup()  # TLS takes the first one away
        with self._lock:
            if len(self._lines) >= MOST_STRANGERS:
                ((crowd, _),) = Counter(self._lines.values()).most_common(1)
                oldest = next(one for one, address in self._lines.items() if address == crowd)
                del self._lines[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RD)  # whoever waits for its bytes sees the end
            self._lines[handle] = host
        return handle

    def leaves(self, handle: socket.socket) -> bool:
        """It has proved the token, or is refused; False when it had lost its place already."""
        with self._lock:
            stayed = self._lines.pop(handle, None) is not None
        handle.close()
        return stayed


class Gossip:
    """A log that strangers cannot flood: at most one line in `LOG_EVERY_S`."""

    def __init__(self, log: Callable[[str], None]) -> None:
        """`log` is told."""
        self._log = log
        self._lock = threading.Lock()
        self._next = 0.0
        self._kept = 0
        """How many wait for that moment."""
        self._last = ""

    def say(self, text: str) -> None:
        """At once, or with the number of the others when the next line is due."""
        with self._lock:
            wait = self._next - time.monotonic()
            if not self._kept and (wait <= 0 or not self._start_timer(wait)):
                self._write(text)
                return
            self._kept += 1
            self._last = text

    def _start_timer(self, wait: float) -> bool:
        timer = threading.Timer(wait, self._flush)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # the system lends no more threads
            return False
        return True

    def _flush(self) -> None:
        with self._lock:
            others = f" (and {self._kept - 1} others since the last line)" if self._kept > 1 else ""
            self._kept = 0
            self._write(self._last + others)

    def _write(self, text: str) -> None:
        self._next = time.monotonic() + LOG_EVERY_S
        self._log(text)
