"""Child processes that never outlive us: boards and nodes that a run starts itself."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from disco_targets.children import die_with
from disco_targets.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GRACE_S = 1.0
"""From SIGTERM to SIGKILL, and how long a broken line waits for its process's exit code."""
LOG_LINES = 8


class ChildProcess:
    """A running program with its output in a file.

    It gets a session of its own, so that the terminal's Ctrl-C reaches only us and the whole group
    can be ended; and the kernel kills it when we die in any way.
    """

    def __init__(self, command: Sequence[str], log: Path, inherited: Sequence[int] = ()) -> None:
        """Starts `command`; `inherited` are the descriptors it may use.

        Raises:
            OSError: It cannot be started.
        """
        self.command = tuple(command)
        self.log = log
        with log.open("wb") as output:
            output.write(f"$ {shlex.join(command)}\n".encode())
            output.flush()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=tuple(inherited),
                start_new_session=True,
                # Nothing but one system call, so it is safe beside other threads.
                preexec_fn=die_with(os.getpid()),  # noqa: PLW1509
            )

    @property
    def pid(self) -> int:
        """Process number, which is also that of its group."""
        return self._process.pid

    def running(self) -> bool:
        """False once it has ended."""
        return self._process.poll() is None

    def epitaph(self, patience_s: float = GRACE_S) -> str | None:
        """How it ended and its last words, None while it runs on for a while."""
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return None
        program = Path(self.command[0]).name
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        words = self.last_words
        return f"{program} {how}" + (f": {words}" if words else " without a word")

    def wait(self) -> int:
        """Its exit code, when it has ended."""
        return self._process.wait()

    def halted(self) -> bool:
        """Whether a signal has halted it; a debugger may, for as long as the deadlines allow."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return False
        return status.rpartition(")")[2].split()[0] == "T"

    def tell_end(self, tell: Callable[[], None]) -> None:
        """Calls `tell` from another thread, once, as soon as it has ended or a signal has halted it."""

        def watch() -> None:
            with contextlib.suppress(ChildProcessError):  # somebody else has taken its exit code
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
            tell()

        threading.Thread(target=watch, name="end of a process", daemon=True).start()

    def stop(self) -> None:
        """Ends the process and its group; a second call does nothing."""
        if self._process.returncode is not None:  # its number may belong to others by now
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
                os.killpg(self.pid, signal.SIGCONT)  # a halted one would not end in order
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
                return
        self._process.wait()

    @property
    def last_words(self) -> str:
        """The last lines that it printed; empty when there are none."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[1:]
        return " | ".join(printable(line.expandtabs()) for line in lines[-LOG_LINES:])


def stop_all(children: Sequence[ChildProcess]) -> None:
    """Ends all of them at once rather than one after the other."""
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
    for child in children:
        child.stop()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
