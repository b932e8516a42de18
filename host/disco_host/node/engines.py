"""Engines as processes: what is started for a job, how it is watched and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from disco_host.node.frames import FrameReader, message_of
from disco_host.node.messages import Beat, kinds
from disco_host.node.native_build import FRAMED, STREAM, image_of
from disco_host.node.peers import ReportedError
from disco_host.processes import ChildProcess
from disco_targets.errors import EXIT_OK, DiscoError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BUILD_MODULE = "disco_host.node.native_build"
TFLITE_MODULE = "disco_host.node.engine_process"


class Builder:
    """Builds a native slice in a process; see `native_build`."""

    def __init__(self, folder: Path, node: int, nodes: int, *, framed: bool) -> None:
        command = [sys.executable, "-m", BUILD_MODULE, str(folder), str(node), str(nodes), FRAMED if framed else STREAM]
        self._process = ChildProcess(command, folder / "build.log")

    def wait(self) -> None:
        """Until it is done.

        Raises:
            DiscoError: It failed.
        """
        if code := self._process.wait():
            words = self._process.last_words or f"exit code {code}"
            raise DiscoError(f"its slice cannot be built: {words.removeprefix('build: ')}")

    def stop(self) -> None:
        """Ends it with its compilers."""
        self._process.stop()


class Engine:
    """A running engine, which holds the job's lines."""

    def __init__(
        self, command: list[str], log: Path, lines: list[socket.socket], state: socket.socket | None = None
    ) -> None:
        """Starts it; it inherits `lines`. `state`: our end of the line on which it says what it does."""
        self._process = ChildProcess(command, log, [line.fileno() for line in lines])
        self._state = state
        self._reader = FrameReader()
        self._said: Beat | None = None
        self._heard = 0.0
        if state is not None:
            state.setblocking(False)

    def epitaph(self) -> str | None:
        """How it ended, None while it runs."""
        return self._process.epitaph(0.0)

    def in_order(self) -> bool:
        """Whether it ended because its host's line did, or after it had told the host why."""
        return not self._process.running() and self._process.wait() in (EXIT_OK, ReportedError.exit_code)

    def tell_end(self, tell: Callable[[], None]) -> None:
        """Calls `tell` from another thread, once, as soon as it has ended or was halted."""
        self._process.tell_end(tell)

    def said(self) -> Beat | None:
        """What it last said that it does, as of now; None where it does not say."""
        with contextlib.suppress(BlockingIOError):
            while self._state is not None and (data := self._state.recv(1 << 16)):
                for frame in self._reader.feed(data):
                    self._said, self._heard = message_of(frame, kinds(Beat)), time.monotonic()
        if self._said is None:
            return None
        return replace(self._said, seconds=self._said.seconds + time.monotonic() - self._heard)

    def stopped(self) -> bool:
        """Whether somebody halted it."""
        return self._process.halted()

    def stop(self) -> None:
        """Ends it, at once: it has nothing to lose."""
        if self._process.running():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.stop()
        if self._state is not None:
            self._state.close()


def native_engine(
    folder: Path, node: int, log: Path, host: socket.socket, peers: Mapping[int, socket.socket]
) -> Engine:
    """Starts a slice that was built."""
    image = image_of(folder, node)
    if image is None:
        raise DiscoError("its slice was removed from the cache: run again")
    command = [str(image), "--board", "linux", "--host", f"fd:{host.fileno()}"]
    for peer, line in sorted(peers.items()):
        command += ["--peer", f"{peer}=fd:{line.fileno()}"]
    return Engine(command, log, [host, *peers.values()])


def tflite_engine(
    folder: Path, node: int, mode: str, log: Path, host: socket.socket, peers: Mapping[int, socket.socket]
) -> Engine:
    """Starts a slice's stages in TFLite."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", TFLITE_MODULE, str(folder / "parts"), "--node", str(node), "--mode", mode]
    command += ["--host", str(host.fileno()), "--state", str(theirs.fileno())]
    for peer, line in sorted(peers.items()):
        command += ["--peer", f"{peer}={line.fileno()}"]
    with theirs:
        return Engine(command, log, [host, theirs, *peers.values()], ours)
