"""The cycle estimate of emulated boards: a plugin of QEMU's, built here from the project's own source.

While a board runs, the plugin adds up what each executed instruction costs on the board's core, by the tables and
assumptions that disco_targets/emulation/timing_*.c name, in a counter that lies in a piece of the board's memory. The
firmware reads it in place of its instruction counter, so every figure of a run comes in the unit "cycles-estimate". It
is an estimate, for memory without wait states: not cycles of a real board, and no time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from disco_firmware.bundle import BUILD_DIRECTORY
from disco_host.config import CYCLES_ESTIMATE
from disco_targets.children import run_child
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from disco_host.session import NodeFacts
    from disco_targets.board import Board

CORES = ("cortex-m4", "cortex-m7")
"""With a timing model."""
_COMPILERS = ("gcc", "cc", "clang")
_FLAGS = ("-std=c99", "-D_DEFAULT_SOURCE", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")
_BUILD_TIMEOUT_S = 120.0
_HELP_TIMEOUT_S = 30.0


def check_estimate(boards: Sequence[Board]) -> None:
    """Can cycles be estimated for all of them?

    Raises:
        DiscoError: A core has no timing model, or this QEMU takes no plugins.
    """
    for node, board in enumerate(boards):
        if board.core not in CORES or board.shared_memory is None:
            raise DiscoError(
                f"node {node} ({board.name}) has a {board.core}: cycles are estimated for {' and '.join(CORES)} only; "
                "count its instructions (--count instructions)"
            )
    for program in sorted({board.emulator.program for board in boards if board.emulator is not None}):
        help_text = run_child([program, "-help"], _HELP_TIMEOUT_S, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if b"\n-plugin " not in help_text.stdout:
            raise DiscoError(
                f"this {program} was built without plugins, which the cycle estimate needs: install that of "
                "Debian or Ubuntu (sudo apt install qemu-system-arm), or count instructions"
            )


def check_units(facts: Sequence[NodeFacts], count: str) -> None:
    """Do all boards count cycles that were asked for?

    Raises:
        DiscoError: One counts something else: its firmware has not found the plugin's counter.
    """
    for fact in facts:
        if count == CYCLES_ESTIMATE and fact.unit != count:
            raise DiscoError(
                f"node {fact.node} ({fact.board}) counts {fact.unit}, its firmware knows no {count}: export the bundle "
                "again with this version's disco-export"
            )


def build_plugin(bundle: Path) -> Path:
    """Builds the plugin in the bundle's build folder, unless it is there already.

    Returns:
        The shared library; its name says which source it was made from.

    Raises:
        DiscoError: No compiler for this PC, it fails, or the folder cannot be written.
    """
    compiler = next((path for name in _COMPILERS if (path := shutil.which(name)) is not None), None)
    if compiler is None:
        raise DiscoError(
            f"--count {CYCLES_ESTIMATE} builds a plugin of QEMU and needs a C compiler of this PC: sudo apt install gcc"
        )
    with as_file(files("disco_targets") / "emulation") as folder:
        sources = sorted(folder.glob("*.[ch]"))
        digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:16]
        plugin = bundle / BUILD_DIRECTORY / "emulation" / f"cycles-{digest}.so"
        if not plugin.exists():
            _compile(compiler, [source for source in sources if source.suffix == ".c"], plugin)
    return plugin


def _compile(compiler: str, sources: Sequence[Path], plugin: Path) -> None:
    partial = plugin.with_name(f".{plugin.name}.{os.getpid()}.partial")
    try:
        plugin.parent.mkdir(parents=True, exist_ok=True)
        command = [compiler, *_FLAGS, *map(str, sources), "-o", str(partial)]
        result = run_child(command, _BUILD_TIMEOUT_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if result.returncode != 0:
            last = " | ".join(result.stdout.decode(errors="replace").splitlines()[-5:])
            raise DiscoError(f"{compiler} cannot build the cycle estimate's plugin: {last}")
        partial.replace(plugin)
    except subprocess.TimeoutExpired as error:
        raise DiscoError(f"{compiler} did not build the cycle estimate's plugin in {error.timeout:g} s") from error
    except OSError as error:
        raise DiscoError(
            f"the cycle estimate's plugin cannot be built in {plugin.parent}: {error.strerror}; copy the bundle to a "
            "folder that you may write to"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def estimate_arguments(board: Board, plugin: Path, memory: Path) -> list[str]:
    """What makes QEMU estimate cycles: arguments behind those of `emulator_command`.

    Args:
        board: One that `check_estimate` accepts.
        plugin: As built.
        memory: File for the piece of the board's memory in which the counter lies; made here.
    """
    shared, address = board.shared_memory, board.estimate_address
    assert shared is not None  # check_estimate
    assert address is not None
    with memory.open("wb") as file:
        file.truncate(shared.bytes)  # takes no room where nothing is written
    path = _escaped(memory)
    counter = f"core={board.core},memory={path},offset={address - shared.address}"
    return [
        "-object",
        f"memory-backend-file,id=shared,size={shared.bytes},mem-path={path},share=on",
        "-machine",
        "memory-backend=shared",
        "-plugin",
        f"{_escaped(plugin.resolve())},{counter}",
    ]


def _escaped(path: Path) -> str:
    """As a value among QEMU's options, which commas part."""
    return str(path).replace(",", ",,")
