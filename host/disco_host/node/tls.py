"""TLS below the handshake, where certificate files are given: nobody else can read or change a byte."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from disco_host.node.auth import HANDSHAKE_S, HandshakeError
from disco_host.node.pump import Pump
from disco_targets.errors import DiscoError


@dataclass(frozen=True)
class TlsFiles:
    """PEM files of an agent."""

    certificate: Path
    key: Path
    authority: Path
    """Who signed the certificates of the other agents."""


def listening_context(files: TlsFiles) -> ssl.SSLContext:
    """For connections that come in.

    Raises:
        DiscoError: The files cannot be used.
    """
    for path in (files.certificate, files.key):
        _check_regular(path)

    def no_password() -> str:  # instead of OpenSSL's question at the terminal, which an agent may not have
        raise DiscoError(f"key {files.key} is encrypted, and nobody is there to type its password: store it without")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(files.certificate, files.key, no_password)
    except (OSError, ssl.SSLError) as error:
        raise DiscoError(
            f"certificate {files.certificate} with key {files.key} cannot be used: {error.strerror or error}"
        ) from error
    return context


def calling_context(authority: Path) -> ssl.SSLContext:
    """For connections that go out: the other side's certificate must be signed by `authority` and bear its address.

    Raises:
        DiscoError: The file cannot be used.
    """
    _check_regular(authority)
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(authority))
    except (OSError, ssl.SSLError) as error:
        raise DiscoError(f"certificate authority {authority} cannot be used: {error.strerror or error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _check_regular(path: Path) -> None:
    if path.exists() and not path.is_file():  # OpenSSL would wait for a named pipe
        raise DiscoError(f"{path} is no regular file: name a PEM file")


def secured_listener(line: socket.socket, context: ssl.SSLContext) -> socket.socket:
    """The plain end of a connection that came in, which is carried over TLS from here on.

    Raises:
        HandshakeError: The other side does not speak TLS, or not as we do.
    """
    line.settimeout(HANDSHAKE_S)
    try:
        return _pumped(context.wrap_socket(line, server_side=True))
    except (OSError, ssl.SSLError) as error:
        line.close()
        raise HandshakeError(f"no TLS: {_reason(error)}") from error


def secured_caller(line: socket.socket, context: ssl.SSLContext, host: str) -> socket.socket:
    """The plain end of a connection that we opened to `host`.

    Raises:
        HandshakeError: The other side does not speak TLS, or its certificate is not to be trusted.
    """
    line.settimeout(HANDSHAKE_S)
    try:
        return _pumped(context.wrap_socket(line, server_hostname=host))
    except (OSError, ssl.SSLError) as error:
        line.close()
        raise HandshakeError(f"no TLS with it: {_reason(error)}") from error


def _pumped(line: ssl.SSLSocket) -> socket.socket:
    ours, theirs = socket.socketpair()
    Pump(line, theirs)  # ends with either side
    return ours


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "the other side does not speak it"
    return error.strerror or str(error)
