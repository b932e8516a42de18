"""Folders that one process holds and others may remove when nobody does: a lock of the kernel says which is which.

The lock ends with its process, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from disco_targets.disk import FREE_SPACE, writing_to

LOCK_NAME = ".disco-in-use"
_PREFIX = "disco-"


def hold(folder: Path) -> IO[bytes] | None:
    """A lock on an existing folder, until it is closed; None when the folder has been removed meanwhile.

    Raises:
        OSError: The lock cannot be written.
    """
    try:
        lock = (folder / LOCK_NAME).open("wb")
    except FileNotFoundError:
        return None
    fcntl.flock(lock, fcntl.LOCK_SH)
    with contextlib.suppress(OSError):
        if os.path.samestat(os.fstat(lock.fileno()), (folder / LOCK_NAME).stat()):
            return lock
    lock.close()
    return None


def remove_unheld(folder: Path) -> bool:
    """Removes a folder that has such a lock and is this user's, unless somebody holds it; whether it did."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        aside = folder.with_name(f".removed-{os.getpid()}-{folder.name}")
        folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


@contextlib.contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """A temporary folder, removed with the block; first those are removed whose processes were killed.

    Args:
        purpose: In its name, as "run" in /tmp/disco-run-u2k1q0.

    Raises:
        OSError: It cannot be made.
        DiscoError: The disk is full, then or within the block.
    """
    advice = f"{FREE_SPACE}, or name a folder on another disk in TMPDIR"
    with writing_to(Path(tempfile.gettempdir()), advice), _held_folder(purpose) as folder:
        yield folder


@contextlib.contextmanager
def _held_folder(purpose: str) -> Iterator[Path]:
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        remove_unheld(left)
    lock = None
    while lock is None:
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-"))
        lock = hold(folder)
    with lock:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
