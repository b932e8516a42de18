"""The agent of a Linux node: one TCP port, one job at a time."""

from __future__ import annotations

import contextlib
import errno
import hmac
import platform
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from disco_host.node.address import Endpoint, is_loopback, listen_at
from disco_host.node.auth import HANDSHAKE_S, HandshakeError, prove_to_caller
from disco_host.node.calls import Keys, RefusedError
from disco_host.node.frames import FrameError, message_of, pack_message, read_one
from disco_host.node.job import Job, Surroundings
from disco_host.node.messages import BEAT_S, CONTROL, LINE, PEER, PROBE, Purpose, Refusal, Welcome, kinds
from disco_host.node.tls import TlsFiles, calling_context, listening_context, secured_listener
from disco_targets.errors import DiscoError, UsageError

MOST_STRANGERS = 32
"""Connections that have not proved the token yet; more are closed at once."""
PATIENCE_S = 2.0
"""How long a new host waits for the end of a job whose host has just gone."""
QUIET_S = 1.5
"""A host that lives answers every heartbeat. One that did not for so long must make room for another one."""


@dataclass(frozen=True)
class AgentConfig:
    """What an agent is started with."""

    listen: Endpoint
    token: bytes
    cache: Path
    token_given: bool = True
    """False: this user's own, which is for loopback alone."""
    tls: TlsFiles | None = None


class Agent:
    """Listens from its making on; a context manager."""

    def __init__(self, config: AgentConfig, log: Callable[[str], None]) -> None:
        """`log` is told, in one line each, what happens.

        Raises:
            UsageError: Others could reach it, and no token was given.
            DiscoError: The port is in use, the certificates cannot be used, the cache cannot be written.
        """
        if not config.token_given and not is_loopback(config.listen):
            raise UsageError(
                f"{config.listen} can be reached by other machines: give the token that they have to know with "
                "--token-file, or listen at 127.0.0.1"
            )
        try:
            config.cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise DiscoError(f"slices cannot be kept in {config.cache}: {error.strerror}") from error
        self._tls = listening_context(config.tls) if config.tls is not None else None
        calling = calling_context(config.tls.authority) if config.tls is not None else None
        self._keys = Keys(config.token, calling)
        self._log = log
        self._around = Surroundings(self._keys, config.cache, log)
        self._strangers = threading.BoundedSemaphore(MOST_STRANGERS)
        self._free = threading.Condition()
        self._job: Job | None = None
        self._listener = listen_at(config.listen)
        self.endpoint = Endpoint(config.listen.host, self._listener.getsockname()[1])

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *unused: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends `serve` in another thread
        self._listener.close()
        with self._free:
            job = self._job
        if job is not None:
            job.end()
        with self._free:
            self._free.wait_for(lambda: self._job is None, 5.0)

    def serve(self) -> None:
        """Serves until it is interrupted or closed."""
        while True:
            try:
                line, address = self._listener.accept()
            except ConnectionError:  # the caller was gone before we came
                continue
            except OSError as error:
                if error.errno in (errno.EBADF, errno.EINVAL):  # closed
                    return
                raise
            if not self._strangers.acquire(blocking=False):
                line.close()
                continue
            name = str(Endpoint(address[0], address[1]))
            threading.Thread(target=self._receive, args=(line, name), daemon=True).start()

    def _receive(self, line: socket.socket, name: str) -> None:
        """One connection, from its first byte on."""
        try:
            try:
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is not None:
                    line = secured_listener(line, self._tls)
                prove_to_caller(line, self._keys.token)
                line.settimeout(HANDSHAKE_S)
                frame = read_one(line)
            finally:
                self._strangers.release()
            if frame is None:
                line.close()
            else:
                self._dispatch(line, name, message_of(frame, kinds(Purpose)))
        except DiscoError as error:
            self._log(f"{name} refused: {error}")
            if not isinstance(error, HandshakeError):
                with contextlib.suppress(OSError):
                    line.sendall(pack_message(Refusal(str(error))))
            line.close()
        except OSError as error:
            self._log(f"{name}: the connection broke ({error.strerror or error})")
            line.close()

    def _dispatch(self, line: socket.socket, name: str, purpose: Purpose) -> None:
        """Serves a connection, which belongs to a job from then on."""
        ours = version("disco-edge")
        if purpose.version != ours:
            raise RefusedError(
                f"this agent runs disco-edge {ours}, the caller {purpose.version}: install the same version on both"
            )
        if purpose.purpose == CONTROL:
            self._run_job(line, name, purpose.job)
            return
        if purpose.purpose not in (LINE, PEER, PROBE):
            raise FrameError(f"a connection for {purpose.purpose!r} does not exist")
        job = self._job
        if job is None or job.over or not hmac.compare_digest(job.number.encode(), purpose.job.encode()):
            raise RefusedError("the job of this connection does not exist here (any more)")
        job.lines.add(purpose.purpose, purpose.node, line, _welcome())

    def _run_job(self, line: socket.socket, name: str, number: str) -> None:
        job = self._admit(line, name, number)
        try:
            self._log(f"job of {name} begins")
            line.sendall(_welcome())
            job.serve()
        except OSError:
            job.end()  # the host has gone already
        finally:
            with self._free:
                self._job = None
                self._free.notify_all()
            self._log(f"job of {name} is over after {time.monotonic() - job.since:.1f} s: ready for the next one")

    def _admit(self, line: socket.socket, name: str, number: str) -> Job:
        with self._free:
            until = time.monotonic() + PATIENCE_S
            while (job := self._job) is not None:
                quiet = time.monotonic() - job.heard
                if quiet >= QUIET_S and not job.over:  # its host may be gone without a word, and this one is here
                    self._log(f"job of {job.owner} ends: nothing was heard of its host for {quiet:.1f} s")
                    threading.Thread(target=job.end, daemon=True).start()
                    until = time.monotonic() + QUIET_S
                left = until - time.monotonic() if quiet < BEAT_S * 2 or job.over else QUIET_S - quiet
                if left <= 0:
                    raise RefusedError(
                        f"busy with a job of {job.owner} for {time.monotonic() - job.since:.0f} s: wait for its end, "
                        "or end it there"
                    )
                self._free.wait(left)
            self._job = Job(self._around, line, number, name)
            return self._job


def _welcome() -> bytes:
    return pack_message(Welcome(version("disco-edge"), platform.machine()))
