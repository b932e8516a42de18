"""Byte lines between the host and its nodes: non-blocking, with a descriptor that can be selected on.

Serial devices, pyserial URLs and our own unix sockets all end up in one class. Devices and
`socket://` have a descriptor of their own; any other pyserial URL (`rfc2217://`, `loop://`) is
pumped through a socket pair by two threads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from typing import TYPE_CHECKING

import serial

from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Callable

READ_BYTES = 65_536
UNIX_PREFIX = "unix:"


class LineClosedError(Exception):
    """The other end of a line is gone; the session turns it into an error that names the node."""


class Transport:
    """One open line. Never blocks."""

    def __init__(self, name: str, descriptor: int, close: Callable[[], None]) -> None:
        """Takes over a descriptor that `close` releases; it is made non-blocking here."""
        self.name = name
        self._descriptor = descriptor
        self._close: Callable[[], None] | None = close
        os.set_blocking(descriptor, False)

    def fileno(self) -> int:
        """For selectors."""
        return self._descriptor

    def read(self) -> bytes:
        """What has arrived, b"" when nothing has.

        Raises:
            LineClosedError: The other end is gone.
        """
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise LineClosedError(error.strerror) from error
        if not data:
            raise LineClosedError("end of stream")
        return data

    def write(self, data: bytes | memoryview) -> int:
        """Hands over as much as the line takes at once and returns how many bytes that were.

        Raises:
            LineClosedError: The other end is gone.
        """
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise LineClosedError(error.strerror) from error

    def close(self) -> None:
        """Releases the line; a second call does nothing."""
        close, self._close = self._close, None
        if close is not None:
            close()


def from_socket(name: str, line: socket.socket) -> Transport:
    """A line over a connected stream socket, which is closed with it."""
    return Transport(name, line.fileno(), line.close)


def open_port(port: str, baud: int) -> Transport:
    """Opens a serial device, a pyserial URL or unix:PATH.

    Raises:
        DiscoError: It does not exist, is busy, or must not be opened; the message says which.
    """
    if port.startswith(UNIX_PREFIX):
        return _open_unix(port)
    try:
        line = serial.serial_for_url(port, baudrate=baud, timeout=0, write_timeout=0, do_not_open=True)
        if "://" not in port:
            line.exclusive = True
        line.open()
    except Exception as error:  # pyserial lets KeyError, OverflowError, re.error... of an odd URL or rate escape
        raise DiscoError(_open_failure(port, error)) from error
    try:
        descriptor = line.fileno()
    except (OSError, AttributeError):  # io.UnsupportedOperation is an OSError
        return _bridge(port, line)
    _cut_latency(line, port, descriptor)
    return Transport(port, descriptor, line.close)


def _open_unix(port: str) -> Transport:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.setblocking(False)  # it is taken at once, or there are too many before us
    try:
        line.connect(port.removeprefix(UNIX_PREFIX))
    except OSError as error:
        line.close()
        raise DiscoError(_open_failure(port, error)) from error
    return from_socket(port, line)


def _open_failure(port: str, error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number in (errno.EBUSY, errno.EAGAIN, errno.EWOULDBLOCK):
        return f"port {port} is busy: end the other program that holds it (a terminal, another run)"
    if number == errno.ENOENT:
        return f"port {port} does not exist: is the board plugged in and its name right?"
    if number == errno.EACCES:
        return f"port {port} must not be opened by this user: join the group dialout and log in again"
    return f"port {port} cannot be opened: {error}; check its name and its baud rate in the cluster file"


def _cut_latency(line: serial.SerialBase, port: str, descriptor: int) -> None:
    """No 16 ms hold-back in FTDI adapters, no Nagle in sockets; lines that know neither are fine."""
    if port.startswith("socket://"):
        with socket.socket(fileno=os.dup(descriptor)) as alias, contextlib.suppress(OSError):
            alias.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    elif hasattr(line, "set_low_latency_mode"):
        with contextlib.suppress(OSError, ValueError, NotImplementedError):
            line.set_low_latency_mode(True)


def _bridge(port: str, line: serial.SerialBase) -> Transport:
    """Pumps a pyserial object without a descriptor through a socket pair."""
    ours, theirs = socket.socketpair()
    stopped = threading.Event()
    line.timeout = 0.1  # how soon the reading thread notices the end
    line.write_timeout = None

    def inwards() -> None:
        with contextlib.suppress(OSError):  # SerialException is one; the session sees the end
            while not stopped.is_set():
                data = line.read(1)
                data += line.read(getattr(line, "in_waiting", 0))
                if data:
                    theirs.sendall(data)
        with contextlib.suppress(OSError):
            theirs.shutdown(socket.SHUT_RDWR)

    def outwards() -> None:
        with contextlib.suppress(OSError):
            while data := theirs.recv(READ_BYTES):
                line.write(data)

    threads = [threading.Thread(target=work, daemon=True) for work in (inwards, outwards)]

    def close() -> None:
        stopped.set()
        ours.close()
        for thread in threads:
            thread.join(timeout=2)
        theirs.close()
        line.close()

    for thread in threads:
        thread.start()
    return Transport(port, ours.fileno(), close)
