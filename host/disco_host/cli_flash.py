"""`disco-flash`: builds the firmware of a bundle's nodes and says where it is and what it takes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from disco_firmware.build import FirmwareImage, build_node
from disco_firmware.bundle import load_bundle
from disco_targets.board import Board, load_board
from disco_targets.errors import DiscoError, UsageError, exit_code


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Exit code 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    options = _parser().parse_args(arguments)
    try:
        _flash(options, Console())
    except (DiscoError, KeyboardInterrupt) as error:
        code = exit_code(error)
        Console(stderr=True).print(
            f"disco-flash: {str(error) or 'interrupted'}", markup=False, highlight=False, soft_wrap=True
        )
        return code
    return 0


def _flash(options: argparse.Namespace, console: Console) -> None:
    manifest = load_bundle(options.bundle).manifest
    if options.node is not None and not 0 <= options.node < manifest.nodes:
        raise UsageError(f"--node {options.node}: the bundle has nodes 0 to {manifest.nodes - 1}")
    nodes = range(manifest.nodes) if options.node is None else [options.node]
    table = Table(title="Firmware, sizes as linked", title_justify="left")
    for name in ("node", "board", "flash bytes", "of", "RAM bytes", "of", "file"):
        table.add_column(name, justify="right" if "bytes" in name or name == "of" else "left", overflow="fold")
    boards = []
    for node in nodes:
        board = load_board("posix" if options.boards == "posix" else manifest.targets[node])
        image = build_node(options.bundle, node, port=options.boards)
        table.add_row(*_row(node, board, image))
        boards.append(board)
    console.print(table)
    for board in dict.fromkeys(boards):
        console.print(_what_next(board), highlight=False)


def _row(node: int, board: Board, image: FirmwareImage) -> tuple[str, ...]:
    flash, ram = (f"{value:,}" if value is not None else "-" for value in (board.flash_bytes, board.ram_bytes))
    return str(node), board.name, f"{image.flash_bytes:,}", flash, f"{image.ram_bytes:,}", ram, str(image.path)


def _what_next(board: Board) -> str:
    if board.emulator is not None:
        return f"{board.name} is emulated: nothing to flash, disco-run --boards emulated starts it."
    if board.chip is None:
        return f"{board.name} runs as a process: nothing to flash, disco-run --boards posix starts it."
    return f"{board.name}: no flash method is known for this board; write the .elf above with the board's own tool."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="disco-flash",
        description="Build the firmware of a bundle's nodes.",
        epilog="examples:\n  disco-flash bundle\n  disco-flash bundle --node 1 --boards posix\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="folder written by disco-export")
    parser.add_argument("--node", type=int, metavar="K", help="only this node (default: all)")
    parser.add_argument(
        "--boards",
        choices=("board", "posix"),
        default="board",
        help="build for the boards of the bundle, or as processes of this PC",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
