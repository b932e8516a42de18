"""The agent of a Linux node: one TCP port, one job at a time."""

from __future__ import annotations

import contextlib
import errno
import hmac
import platform
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from disco_host.node.address import Endpoint, is_loopback, listen_at
from disco_host.node.auth import HANDSHAKE_S, HandshakeError, prove_to_caller, turn_away
from disco_host.node.calls import Keys, RefusedError
from disco_host.node.frames import FrameError, message_of, pack_message, read_one
from disco_host.node.job import Job, Surroundings
from disco_host.node.messages import BEAT_S, CONTROL, LINE, PEER, PROBE, Purpose, Refusal, Welcome, kinds
from disco_host.node.strangers import Gossip, Strangers
from disco_host.node.tls import TlsFiles, calling_context, listening_context, secured_listener
from disco_targets.errors import DiscoError, UsageError

CROWDED = "there are too many connections without a token"
PATIENCE_S = 2.0
"""How long a new host waits for the end of a job whose host has just gone."""
QUIET_S = 1.5
"""A host that lives answers every heartbeat. One that did not for so long must make room for another one."""
ACCEPT_AGAIN_S = 0.2
"""How long the agent waits for descriptors or memory that it lacks for a connection."""
_JOB = re.compile(r"[0-9a-f]{32}")


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
        self._strangers = Strangers()
        self._gossip = Gossip(log)
        self._closed = threading.Event()
        self._free = threading.Condition()
        self._job: Job | None = None
        self._listener = listen_at(config.listen)
        self.endpoint = Endpoint(config.listen.host, self._listener.getsockname()[1])

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *unused: object) -> None:
        self._closed.set()
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
        failing = False
        while not self._closed.is_set():
            problem = self._take_one()
            if problem and not failing:
                self._gossip.say(f"connections cannot be taken, it goes on trying: {problem}")
            if problem:
                self._closed.wait(ACCEPT_AGAIN_S)
            failing = bool(problem)

    def _take_one(self) -> str:
        """Takes the next connection; says what it lacks for that, if anything."""
        try:
            line, address = self._listener.accept()
            self._let_in(line, Endpoint(address[0], address[1]))
        except ConnectionError:  # the caller was gone before we came
            return ""
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
            if not isinstance(error, OSError) or error.errno not in (errno.EBADF, errno.EINVAL):
                return str(error)
            self._closed.set()  # the listener is
        return ""

    def _let_in(self, line: socket.socket, caller: Endpoint) -> None:
        """Serves a connection in a thread of its own."""
        try:
            handle = self._strangers.admit(line, caller.host)
        except OSError:
            line.close()
            raise
        try:
            threading.Thread(target=self._receive, args=(line, handle, str(caller)), daemon=True).start()
        except RuntimeError:
            self._strangers.leaves(handle)
            line.close()
            raise

    def _receive(self, line: socket.socket, handle: socket.socket, name: str) -> None:
        """One connection, from its first byte on."""
        kept = crowded = False
        try:
            try:
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is not None:
                    line = secured_listener(line, self._tls)
                prove_to_caller(line, self._keys.token)
                frame = read_one(line, HANDSHAKE_S)
            finally:
                crowded = not self._strangers.leaves(handle)
            if crowded:
                raise RefusedError(CROWDED)
            if frame is not None:
                kept = self._dispatch(line, name, message_of(frame, kinds(Purpose)))
        except (DiscoError, OSError) as error:
            self._turn_down(line, name, error, crowded)
        finally:
            if not kept:
                line.close()

    def _turn_down(self, line: socket.socket, name: str, error: DiscoError | OSError, crowded: bool) -> None:
        """Logs why a connection ends, and tells a caller that can understand it."""
        if isinstance(error, OSError):
            self._gossip.say(f"{name}: the connection broke ({error.strerror or error})")
        else:
            self._gossip.say(f"{name} refused: {CROWDED if crowded else error}")
        with contextlib.suppress(OSError):
            if isinstance(error, DiscoError) and not isinstance(error, HandshakeError):
                line.sendall(pack_message(Refusal(str(error))))
            elif crowded:
                turn_away(line)

    def _dispatch(self, line: socket.socket, name: str, purpose: Purpose) -> bool:
        """Serves a connection; whether a job keeps it."""
        ours = version("disco-edge")
        if purpose.version != ours:
            raise RefusedError(
                f"this agent runs disco-edge {ours}, the caller {purpose.version}: install the same version on both"
            )
        if not _JOB.fullmatch(purpose.job):
            raise FrameError("a job's number is not 32 hexadecimal digits")
        if purpose.purpose == CONTROL:
            self._run_job(line, name, purpose.job)
            return False
        if purpose.purpose not in (LINE, PEER, PROBE) or (purpose.purpose == PEER) != (purpose.node is not None):
            raise FrameError(f"a connection for {purpose.purpose!r} of node {purpose.node} does not exist")
        job = self._job
        if job is None or job.over or not hmac.compare_digest(job.number, purpose.job):
            raise RefusedError("the job of this connection does not exist here (any more)")
        job.lines.add(purpose.purpose, purpose.node, line, _welcome())
        return purpose.purpose != PROBE

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
