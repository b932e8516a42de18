"""Writes a node's CMake project, and the sources that all nodes of a bundle share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from disco_firmware.render import render
from disco_targets.board import Board, Chip, Uart

if TYPE_CHECKING:
    from importlib.abc import Traversable

FIRMWARE_DIRECTORY = "firmware"
TOOLCHAIN_FILE = "toolchain-arm-none-eabi.cmake"
STACK_BYTES = 8 * 1024
HOSTED_BSP = "posix"


@dataclass(frozen=True)
class ProjectContext:
    """What the templates of a node's project show."""

    name: str
    core: str
    bsp: str
    node: int
    nodes: int
    chip: Chip | None
    uarts: tuple[Uart, ...]
    """Those in use: host, then peers."""
    stack_bytes: int
    estimate_address: int | None
    """Where the emulator's plugin counts estimated cycles; None where it cannot."""


def write_node_project(board: Board, node: int, nodes: int, directory: Path) -> None:
    """Writes CMakeLists.txt, disco_board.h and, for a microcontroller, link.ld into `directory`."""
    uarts = board.chip.uarts[:nodes] if board.chip is not None else ()
    context = ProjectContext(
        board.name, board.core, board.bsp, node, nodes, board.chip, uarts, STACK_BYTES, board.estimate_address
    )
    names = ["CMakeLists.txt", "disco_board.h", *(["link.ld"] if board.chip is not None else [])]
    for name in names:
        (directory / name).write_text(render(f"{name}.j2", context), encoding="utf-8")


def copy_firmware_sources(boards: Sequence[Board], bundle: Path) -> None:
    """Copies runtime, toolchain file and the board support of `boards` (and of posix) to `bundle`/firmware."""
    target = bundle / FIRMWARE_DIRECTORY
    runtime = files("disco_firmware") / "runtime"
    _copy_tree(runtime / "include", target / "runtime" / "include")
    _copy_tree(runtime / "src", target / "runtime" / "src")
    (target / TOOLCHAIN_FILE).write_bytes((runtime / TOOLCHAIN_FILE).read_bytes())
    for bsp in sorted({"common", HOSTED_BSP, *(board.bsp for board in boards)}):
        _copy_tree(files("disco_targets") / "bsp" / bsp, target / "bsp" / bsp)


def _copy_tree(source: Traversable, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for item in source.iterdir():
        if item.is_dir():
            _copy_tree(item, target / item.name)
        elif item.name.endswith((".c", ".h")):
            (target / item.name).write_bytes(item.read_bytes())
