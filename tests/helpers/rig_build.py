"""Builds node programs for tests: a model by hand, the runtime, a port over inherited sockets."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from helpers import c_build
from helpers.rig_model import ModelSource
from helpers.rig_network import Network

C_FILES = Path(__file__).parents[1] / "c"
PORT = C_FILES / "executor_port.c"
MAIN = C_FILES / "executor_main.c"
FLAGS = ("-O1", *c_build.SANITIZERS)


def build_library(directory: Path) -> Path:
    """The runtime and the port in one archive, with sanitizers."""
    archive = directory / "runtime.a"
    if archive.exists():
        return archive
    directory.mkdir(exist_ok=True)
    objects = []
    for source in [*c_build.RUNTIME_SOURCES, PORT]:
        posix = ("-D_POSIX_C_SOURCE=200809L",) if source == PORT else ()
        target = directory / f"{source.stem}.o"
        objects.append(c_build.compile_c("gcc", [source], target, (*FLAGS, *posix, "-c")))
    subprocess.run([c_build.tool("ar"), "rcs", archive, *objects], check=True, timeout=60)
    return archive


def build_node(source: ModelSource, directory: Path, library: Path) -> Path:
    """The program of one node."""
    model = directory / f"model{source.node}.c"
    model.write_text(source.text())
    return c_build.compile_c("gcc", [model, MAIN, library], directory / f"node{source.node}", FLAGS)


def build_mesh(
    network: Network,
    directory: Path,
    library: Path,
    open_ops: Sequence[int] = (0, 2, 0, 0),
    *,
    joined: bool = False,
) -> list[Path]:
    """The programs of all nodes of a network."""
    sources = [network.program(node, open_ops, joined=joined) for node in range(network.nodes)]
    return [build_node(source, directory, library) for source in sources]
