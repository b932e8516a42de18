"""A full disk, told as what it is: the system's own error of a write names no file."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from disco_targets.errors import DiscoError

FREE_SPACE = "free some space there"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_ROOM = 1 << 16
"""Bytes. A file system with less free is full for all that is written here."""


@contextlib.contextmanager
def writing_to(place: Path, advice: str = FREE_SPACE) -> Iterator[None]:
    """A full disk within the block becomes one clear error; what is inside of another such block is told by that one.

    Args:
        place: The folder or file that is written, told where the system's error names no file.
        advice: What to do.

    Raises:
        DiscoError: The disk is full.
    """
    try:
        yield
    except OSError as error:
        if not is_full(error, place):
            raise
        raise DiscoError(full_disk(error, place, advice)) from error


def is_full(error: OSError, place: Path | None = None) -> bool:
    """Whether the disk is full (or a quota used up), told by an error of a write to `place`."""
    if error.errno in _FULL:
        return True
    if error.errno is not None or place is None:
        return False
    with contextlib.suppress(OSError):  # numpy tells how many bytes were not written, and no number of an error
        return shutil.disk_usage(place).free < _NO_ROOM
    return False


def full_disk(error: OSError, place: Path | None = None, advice: str = FREE_SPACE) -> str:
    """What to say of such an error."""
    where = error.filename if error.filename is not None else place
    return f"the disk is full{'' if where is None else f' at {where}'}: {advice}"
