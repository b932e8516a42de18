"""Engines as processes: what is started for a job, how it is watched and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from disco_host.node.native_build import image_of
from disco_host.processes import ChildProcess
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

BUILD_MODULE = "disco_host.node.native_build"


class Builder:
    """Builds a native slice in a process; see `native_build`."""

    def __init__(self, folder: Path, node: int, nodes: int) -> None:
        self._process = ChildProcess(
            [sys.executable, "-m", BUILD_MODULE, str(folder), str(node), str(nodes)], folder / "build.log"
        )

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

    def __init__(self, command: list[str], log: Path, lines: list[socket.socket]) -> None:
        """Starts it; it inherits `lines`."""
        self._process = ChildProcess(command, log, [line.fileno() for line in lines])

    def epitaph(self) -> str | None:
        """How it ended, None while it runs."""
        return self._process.epitaph(0.0)

    def stopped(self) -> bool:
        """Whether somebody halted it (SIGSTOP, a debugger)."""
        try:
            status = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return False
        return status.rpartition(")")[2].split()[0] in ("T", "t")

    def stop(self) -> None:
        """Ends it, at once: it has nothing to lose."""
        if self._process.running():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.stop()


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
