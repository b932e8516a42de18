"""Slices that were sent to this node, kept by a hash of what they are.

No name from the network becomes a path: a part has one of few fixed names, a folder is called by a hash computed here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from disco_firmware.bundle import sha256_of
from disco_firmware.reference import MODES
from disco_host.node.messages import NATIVE, TFLITE, Part, Prepare
from disco_targets.disk import writing_to
from disco_targets.errors import DiscoError
from disco_targets.scratch import LOCK_NAME, hold, remove_unheld

MOST_PARTS = 1000
MOST_BYTES = 512 * 1024 * 1024
"""Of one slice."""
PART_NAME = "stage{}.tflite"
"""Of stage k of a node, for tflite."""
KEPT = 32
"""Slices; the one that was not used for the longest time goes first."""
_NAMES = {
    NATIVE: re.compile(r"disco_model\.[ch]|disco_channels\.h"),
    TFLITE: re.compile(r"bundle\.json|stage[0-9]{1,4}\.tflite"),
}
ABANDONED_S = 600.0
"""A slice without a lock that is so old was left before anybody held it."""
_ADVICE = "free some space on this node, or keep its slices elsewhere (disco-node --cache)"
_HASH = re.compile(r"[0-9a-f]{64}")
_BUNDLE_ID = re.compile(r"[0-9a-f]{32}")
_MOST_NODES = 256


def default_cache() -> Path:
    """Below this user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "disco-edge" / "slices"


def check_request(request: Prepare) -> None:
    """Before anything of it is used.

    Raises:
        DiscoError: Something that no host of ours asks for.
    """
    names = _NAMES.get(request.engine)
    if names is None:
        raise DiscoError(f"engine {request.engine!r} is unknown here, known: {', '.join(sorted(_NAMES))}")
    if request.mode not in MODES:
        raise DiscoError(f"kernels {request.mode!r} are unknown here, known: {', '.join(MODES)}")
    if not _BUNDLE_ID.fullmatch(request.bundle):
        raise DiscoError("the bundle's id is not 32 hexadecimal digits")
    if not 0 <= request.node < request.nodes <= _MOST_NODES:
        raise DiscoError(f"node {request.node} of {request.nodes} does not exist")
    if not 0 < len(request.parts) <= MOST_PARTS:
        raise DiscoError(f"a slice of {len(request.parts)} parts came, 1 to {MOST_PARTS} are taken")
    for part in request.parts:
        if not names.fullmatch(part.name) or not _HASH.fullmatch(part.sha256) or part.size < 0:
            raise DiscoError("a part of the slice has a name, a size or a hash that no part has")
    if len({part.name for part in request.parts}) != len(request.parts):
        raise DiscoError("two parts of the slice have the same name")
    if sum(part.size for part in request.parts) > MOST_BYTES:
        raise DiscoError(f"the slice is larger than {MOST_BYTES} bytes")


class Slice:
    """One slice in the cache, whole or not yet; it stays there until `close`."""

    def __init__(self, cache: Path, request: Prepare, runtime: str) -> None:
        """Of a request that was checked; `runtime` names what the slice is built with.

        Raises:
            OSError: The cache cannot be written.
            DiscoError: The disk is full.
        """
        key = [request.bundle, request.node, request.nodes, request.engine, request.framed, runtime]
        key += [[part.name, part.size, part.sha256] for part in request.parts]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        self.request = request
        self.folder = cache / digest
        self.parts = self.folder / "parts"
        with writing_to(cache, _ADVICE):
            self._in_use = _hold(self.folder)
            self.parts.mkdir(exist_ok=True)
        _trim(cache)

    def close(self) -> None:
        """Lets it be removed."""
        self._in_use.close()

    def missing(self) -> tuple[int, ...]:
        """Which parts are not there, or are no longer what they were."""
        return tuple(
            place for place, part in enumerate(self.request.parts) if _hash_of(self.parts / part.name) != part.sha256
        )

    def store(self, part: Part, chunks: Iterable[bytes]) -> None:
        """Writes a part from its bytes, of which exactly `part.size` are taken from `chunks`.

        Raises:
            DiscoError: They are not what was announced, or the disk is full.
        """
        partial = self.parts / f".{part.name}.{os.getpid()}"
        digest = hashlib.sha256()
        left = part.size
        try:
            with writing_to(self.parts, _ADVICE), partial.open("wb") as file:
                for chunk in chunks if left else ():
                    left -= len(chunk)
                    if left < 0:
                        raise DiscoError(f"more bytes of {part.name} came than the {part.size} announced")
                    digest.update(chunk)
                    file.write(chunk)
                    if left == 0:
                        break
            if left or digest.hexdigest() != part.sha256:
                raise DiscoError(f"{part.name} was changed on its way to this node (its hash is another): run again")
            partial.replace(self.parts / part.name)
        finally:
            partial.unlink(missing_ok=True)


def _hash_of(path: Path) -> str | None:
    try:
        return sha256_of(path)
    except OSError:
        return None


def _hold(folder: Path) -> IO[bytes]:
    """Makes a folder, or takes one that is there; agents of one user share the cache. Nobody removes it meanwhile."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        if (lock := hold(folder)) is not None:
            os.utime(folder)
            return lock


def _trim(cache: Path) -> None:
    """Removes what was not used for the longest time, and is not in use."""
    ages = []
    for folder in cache.iterdir():
        with contextlib.suppress(OSError):  # another agent removed it
            if _HASH.fullmatch(folder.name):
                ages.append((folder.stat().st_mtime, folder))
    too_many = len(ages) - KEPT
    for age, folder in sorted(ages):
        if too_many <= 0:
            return
        if time.time() - age > ABANDONED_S:
            with contextlib.suppress(OSError):
                (folder / LOCK_NAME).touch()  # without one it could never be removed
        too_many -= remove_unheld(folder)
