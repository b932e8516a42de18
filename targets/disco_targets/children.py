"""Child processes that never outlive us, and programs that are not installed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from disco_targets.errors import DiscoError

GRACE_S = 2.0
"""From SIGTERM to SIGKILL: time to remove what is half written (make its target, gcc its temporary files)."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def run_child(
    command: Sequence[str], timeout_s: float | None = None, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Runs a program to its end with nothing to read (or `stdin`), as subprocess.run does with `options`.

    It gets a session of its own, so that the terminal's Ctrl-C reaches only us. When it takes too long, or we are
    interrupted, it is killed with everything that it started; when we are killed, so is it.

    Raises:
        subprocess.TimeoutExpired: After `timeout_s`.
    """
    with subprocess.Popen(
        command,
        start_new_session=True,
        preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - one system call, safe beside other threads
        **{"stdin": subprocess.DEVNULL, **options},
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except BaseException:
            _end_group(process)
            raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=GRACE_S)


def die_with(parent: int) -> Callable[[], None]:
    """Runs in the child between fork and exec: asks the kernel for SIGKILL when our thread ends."""

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # we died before the call
            os._exit(1)

    return prepare


def missing_program(program: str, package: str, purpose: str) -> DiscoError:
    """The error for a program that is not installed."""
    return DiscoError(f"{program} is not installed, it is needed to {purpose}: sudo apt install {package}")
