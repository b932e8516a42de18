"""Opening a connection to an agent: TCP, TLS, proof of the token, purpose."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from importlib.metadata import version

from disco_host.node.address import Endpoint, connect_to
from disco_host.node.auth import HandshakeError, prove_to_listener
from disco_host.node.frames import message_of, pack_message, read_one
from disco_host.node.messages import Purpose, Refusal, Welcome, kinds
from disco_host.node.tls import secured_caller
from disco_targets.errors import DiscoError

ANSWER_S = 6.0
"""Longer than an agent waits for a host that went silent."""
_ANSWERS = kinds(Welcome, Refusal)


class RefusedError(DiscoError):
    """The agent is in order, but does not serve us now."""


@dataclass(frozen=True)
class Keys:
    """What a caller shows and checks."""

    token: bytes
    tls: ssl.SSLContext | None = None


def call(endpoint: Endpoint, keys: Keys, purpose: str, job: str, node: int | None = None) -> socket.socket:
    """A connection to an agent that has agreed to its purpose.

    Raises:
        DiscoError: It cannot be reached, does not know the token, or refuses; the message says which and why.
    """
    try:
        line = connect_to(endpoint)
    except OSError as error:
        raise DiscoError(
            f"{endpoint} cannot be reached: {error.strerror or error}; does disco-node run there?"
        ) from error
    try:
        if keys.tls is not None:
            line = secured_caller(line, keys.tls, endpoint.host)
        prove_to_listener(line, keys.token)
        line.sendall(pack_message(Purpose(purpose, version("disco-edge"), job, node)))
        frame = read_one(line, ANSWER_S)
        if frame is None:
            raise HandshakeError("it closed the connection without an answer")
        answer = message_of(frame, _ANSWERS)
    except OSError as error:
        line.close()
        raise DiscoError(f"{endpoint} does not answer as an agent: {error.strerror or error}") from error
    except DiscoError as error:
        line.close()
        raise type(error)(f"{endpoint}: {error}") from error
    if isinstance(answer, Refusal):
        line.close()
        raise RefusedError(f"{endpoint}: {answer.what}")
    return line
