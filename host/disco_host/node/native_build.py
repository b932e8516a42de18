"""Builds a slice's C project with this machine's compiler, in a process that can be ended with its compilers.

The C runtime is that of the installed package; the slice brings the network alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from disco_firmware.build import build_node
from disco_firmware.bundle import sha256_of
from disco_firmware.project import HOSTED_BSP, copy_firmware_sources, write_node_project
from disco_targets.board import load_board
from disco_targets.command import run_command
from disco_targets.disk import writing_to
from disco_targets.errors import EXIT_OK

if TYPE_CHECKING:
    from importlib.abc import Traversable

FRAMED, STREAM = "framed", "stream"
"""What the lines of a build carry, for the process's command line."""
_BUILT = "built"
"""Holds the hash of the program: after a power cut a file may be there without its bytes."""


def image_of(folder: Path, node: int) -> Path | None:
    """The program of a slice that was built already, and is still what was built."""
    image = _build_directory(folder) / f"node{node}"
    try:
        whole = (folder / _BUILT).read_text(encoding="ascii", errors="replace") == sha256_of(image)
    except OSError:
        return None
    return image if whole else None


def _build_directory(folder: Path) -> Path:
    return folder / "project" / "build"


def runtime_hash() -> str:
    """Of all sources that a build takes from the installed packages."""
    digest = hashlib.sha256()
    firmware, targets = files("disco_firmware"), files("disco_targets")
    for folder in (
        firmware / "runtime",
        firmware / "templates",
        targets / "bsp" / "common",
        targets / "bsp" / HOSTED_BSP,
    ):
        _add(digest, folder)
    return digest.hexdigest()


def _add(digest: hashlib._Hash, folder: Traversable) -> None:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            _add(digest, item)
        else:
            digest.update(item.name.encode() + hashlib.sha256(item.read_bytes()).digest())


def build(folder: Path, node: int, nodes: int, *, framed: bool) -> None:
    """Builds what lies in FOLDER/parts, once for all who ask at the same time; `framed` as in `messages.Prepare`.

    Raises:
        DiscoError: No compiler, or it fails.
    """
    with writing_to(folder), (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if image_of(folder, node) is not None:
            return
        project = folder / "project"
        shutil.rmtree(project, ignore_errors=True)  # what an interrupted build, or a power cut, has left of it
        source = project / f"node{node}"
        source.mkdir(parents=True, exist_ok=True)
        for part in sorted((folder / "parts").glob("disco_*")):
            shutil.copy(part, source)
        write_node_project(load_board(HOSTED_BSP), node, nodes, source)
        copy_firmware_sources((), project)
        image = build_node(project, node, port=HOSTED_BSP, stream_lines=not framed, build_dir=_build_directory(folder))
        (folder / _BUILT).write_text(sha256_of(image.path), encoding="ascii")


def _main() -> int:
    folder, node, nodes, lines = sys.argv[1:]

    def action(_: object) -> int:
        build(Path(folder), int(node), int(nodes), framed=lines == FRAMED)
        return EXIT_OK

    return run_command("build", action)


if __name__ == "__main__":
    sys.exit(_main())
