"""Where an agent listens: HOST:PORT, as an option, in cluster files (disco://HOST:PORT) and between agents."""

from __future__ import annotations

import ipaddress
import queue
import re
import socket
import threading
from dataclasses import dataclass
from typing import Any

from disco_targets.errors import DiscoError, UsageError

SCHEME = "disco://"
DEFAULT_PORT = 7450
CONNECT_S = 2.0
RESOLVE_S = 5.0
_PORT = re.compile("[0-9]{1,5}")
_Addresses = list[tuple[int, int, int, str, "tuple[str, int] | tuple[str, int, int, int]"]]


@dataclass(frozen=True)
class Endpoint:
    """A host and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """HOST, HOST:PORT or [IPV6]:PORT, with or without disco:// before it.

    Raises:
        UsageError: It is none of these.
    """
    plain = text.removeprefix(SCHEME)
    host, colon, port = plain.rpartition(":")
    if not colon or (port.endswith("]") and plain.startswith("[")):
        host, port = plain, str(DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or not _PORT.fullmatch(port) or int(port) > 65535:
        raise UsageError(f"{text!r} is no address: write HOST:PORT, for example 192.168.1.7:{DEFAULT_PORT}")
    return Endpoint(host, int(port))


def is_loopback(endpoint: Endpoint) -> bool:
    """Whether nobody but this machine can reach it.

    Raises:
        DiscoError: The name is unknown.
    """
    return all(ipaddress.ip_address(str(address[4][0]).split("%")[0]).is_loopback for address in _resolve(endpoint))


def listen_at(endpoint: Endpoint) -> socket.socket:
    """A listening socket.

    Raises:
        DiscoError: The port is in use, or not to be had.
    """
    family, _, _, _, address = _resolve(endpoint)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(64)
    except OSError as error:
        listener.close()
        raise DiscoError(
            f"{endpoint} cannot be listened at: {error.strerror}; is another disco-node running there? End it, or "
            "choose another port with --listen"
        ) from error
    return listener


def connect_to(endpoint: Endpoint, timeout_s: float = CONNECT_S) -> socket.socket:
    """A connection, without the delay of Nagle's algorithm, to the first address of a name that takes it.

    Raises:
        DiscoError: The name is unknown.
        OSError: Nobody listens there, or nobody answers in time.
    """
    refused: OSError | None = None
    for family, _, _, _, address in _resolve(endpoint):
        line = socket.socket(family, socket.SOCK_STREAM)
        try:
            line.settimeout(timeout_s)
            line.connect(address)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:  # a name may have IPv6 addresses, too, at which the agent does not listen
            line.close()
            refused = refused or error
        except BaseException:
            line.close()
            raise
        else:
            return line
    assert refused is not None  # a name has an address
    raise refused


def _resolve(endpoint: Endpoint) -> _Addresses:
    """Raises DiscoError when the name is unknown, or nobody says within `RESOLVE_S`."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:  # in a thread of its own: the system's resolver takes no deadline
        try:
            answers.put(socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM))
        except (OSError, ValueError) as error:  # ValueError: it cannot be a name, as "a..b"
            answers.put(error)

    threading.Thread(target=ask, name="resolver", daemon=True).start()
    try:
        found: _Addresses | OSError | ValueError = answers.get(timeout=RESOLVE_S)
    except queue.Empty:
        raise DiscoError(
            f"{endpoint}: no name server said within {RESOLVE_S:g} s where {endpoint.host} is: write its address "
            "instead of its name"
        ) from None
    if isinstance(found, Exception):
        why = found.strerror if isinstance(found, OSError) else "it cannot be a name"
        raise DiscoError(f"{endpoint}: the name {endpoint.host} is unknown ({why})") from found
    return found
