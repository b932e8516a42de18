"""Both sides of a connection prove that they know the token before anything else is parsed.

Challenge and response over messages of fixed size (HMAC-SHA256, RFC 2104):

    listener -> caller   greeting, nonce L
    caller -> listener   greeting, nonce C, HMAC(token, "disco caller" L C)
    listener -> caller   1, HMAC(token, "disco listener" L C)   or 0 (refused), 2 (crowded) and zeros

Nonces are fresh on both sides, so that a recorded handshake is worth nothing; the roles differ, so that none can be
sent back. The token itself never travels. Who can change bytes on the way can still take over the connection after
the handshake: TLS is for that.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import stat
import time
from pathlib import Path

from disco_targets.errors import DiscoError

GREETING = b"DISCO\0\0\1"
NONCE_BYTES = 32
PROOF_BYTES = 32
HANDSHAKE_S = 3.0
"""For all of it."""
_REFUSED, _ACCEPTED, _CROWDED = 0, 1, 2
LEAST_TOKEN_BYTES = 16
MOST_TOKEN_BYTES = 4096


class HandshakeError(DiscoError):
    """The other side is none of ours."""


def load_token(path: Path) -> bytes:
    """The token of a file, without the blanks around it.

    Raises:
        DiscoError: It cannot be read, others may read it, or it is too short to be secret.
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.read(MOST_TOKEN_BYTES + 1).strip() if stat.S_ISREG(mode) else b""  # a pipe may be silent
    except OSError as error:
        raise DiscoError(f"token file {path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise DiscoError(f"token file {path} is no regular file: write the token into one")
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise DiscoError(f"token file {path} may be read by others: chmod 600 {path}")
    if not LEAST_TOKEN_BYTES <= len(token) <= MOST_TOKEN_BYTES:
        raise DiscoError(
            f"token file {path} holds {len(token)} bytes, {LEAST_TOKEN_BYTES} to {MOST_TOKEN_BYTES} are a token: "
            f"make one with: (umask 077; head -c 32 /dev/urandom | base64 > {path})"
        )
    return token


def own_token() -> bytes:
    """The token of this user for agents on this machine's loopback; made when it is first asked for."""
    base = os.environ.get("XDG_CONFIG_HOME")
    path = (Path(base) if base else Path.home() / ".config") / "disco-edge" / "token"
    if not path.exists():
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_token(path)
        except OSError as error:
            raise DiscoError(
                f"token file {path} cannot be written: {error.strerror}; name one with --token-file"
            ) from error
    return load_token(path)


def write_token(path: Path) -> None:
    """A fresh token in a file that only this user may read; one that appears meanwhile is kept."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        try:
            os.link(partial, path)
        except FileExistsError:
            return
    finally:
        partial.unlink()


def prove_to_caller(line: socket.socket, token: bytes) -> None:
    """The listening side.

    Raises:
        HandshakeError: The caller does not know the token, or is no disco program.
        OSError: The connection broke or was too slow.
    """
    deadline = time.monotonic() + HANDSHAKE_S
    nonce = secrets.token_bytes(NONCE_BYTES)
    line.settimeout(HANDSHAKE_S)
    line.sendall(GREETING + nonce)
    answer = _receive(line, len(GREETING) + NONCE_BYTES + PROOF_BYTES, deadline)
    theirs = answer[len(GREETING) : len(GREETING) + NONCE_BYTES]
    if not answer.startswith(GREETING):
        raise HandshakeError("it is no disco program of this version")
    if not hmac.compare_digest(answer[-PROOF_BYTES:], _proof(token, b"disco caller", nonce, theirs)):
        line.sendall(bytes([_REFUSED]) + bytes(PROOF_BYTES))
        raise HandshakeError("it does not know the token")
    line.sendall(bytes([_ACCEPTED]) + _proof(token, b"disco listener", nonce, theirs))


def turn_away(line: socket.socket) -> None:
    """The listening side, at any moment before the proof: there are too many callers.

    Raises:
        OSError: The connection broke.
    """
    line.sendall(bytes([_CROWDED]) + bytes(PROOF_BYTES))


def prove_to_listener(line: socket.socket, token: bytes) -> None:
    """The calling side.

    Raises:
        HandshakeError: The listener does not take the token, does not know it itself, or is no agent.
        OSError: The connection broke or was too slow.
    """
    deadline = time.monotonic() + HANDSHAKE_S
    line.settimeout(HANDSHAKE_S)
    opening = _receive(line, len(GREETING) + NONCE_BYTES, deadline)
    if not opening.startswith(GREETING):
        raise HandshakeError("no disco-node of this version answers there: check the port")
    theirs = opening[len(GREETING) :]
    nonce = secrets.token_bytes(NONCE_BYTES)
    line.sendall(GREETING + nonce + _proof(token, b"disco caller", theirs, nonce))
    verdict = _receive(line, 1 + PROOF_BYTES, deadline)
    if verdict[0] == _CROWDED:
        raise HandshakeError("too many connections without a token keep it busy: try again, and see who opens them")
    if verdict[0] != _ACCEPTED:
        raise HandshakeError("it refuses our token: both sides need the same one (token_file, --token-file)")
    if not hmac.compare_digest(verdict[1:], _proof(token, b"disco listener", theirs, nonce)):
        raise HandshakeError("it does not know our token itself: that is not our disco-node")


def _proof(token: bytes, role: bytes, listener_nonce: bytes, caller_nonce: bytes) -> bytes:
    return hmac.new(token, role + listener_nonce + caller_nonce, hashlib.sha256).digest()


def _receive(line: socket.socket, size: int, deadline: float) -> bytes:
    """Exactly so many bytes."""
    data = b""
    while len(data) < size:
        line.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            more = line.recv(size - len(data))
        except TimeoutError as error:
            raise HandshakeError(
                f"it said nothing for {HANDSHAKE_S:g} s: does it hang, or does one side want TLS?"
            ) from error
        if not more:
            raise HandshakeError("it closed the connection during the handshake: does one side want TLS?")
        data += more
    return data
