"""`disco-flash`: parses, calls, reports."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from disco_host.flash import BOARD, POSIX, NodeFirmware, flash
from disco_targets.command import run_command
from disco_targets.errors import EXIT_OK

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXAMPLES = """examples:
  disco-flash bundle
  disco-flash bundle --node 1 --boards posix
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Exit code 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    options = _parser().parse_args(arguments)
    return run_command("disco-flash", lambda _errors: _flash(options))


def _flash(options: argparse.Namespace) -> int:
    _print(flash(options.bundle, options.node, options.boards), Console())
    return EXIT_OK


def _print(built: tuple[NodeFirmware, ...], console: Console) -> None:
    table = Table(title="Firmware, bytes as linked", title_justify="left")
    for name in ("node", "board"):
        table.add_column(name)
    for name in ("flash", "RAM without stack"):
        table.add_column(name, justify="right")
    for firmware in built:
        board, image = firmware.board, firmware.image
        flash, ram = _of(image.flash_bytes, board.flash_bytes), _of(image.ram_bytes, board.ram_bytes)
        table.add_row(str(firmware.node), escape(board.name), flash, ram)
    console.print(table)
    for firmware in built:
        console.print(f"node {firmware.node}: {firmware.image.path}", markup=False, highlight=False, soft_wrap=True)
    for step in dict.fromkeys(firmware.next_step for firmware in built):
        console.print(step, markup=False, highlight=False, soft_wrap=True)


def _of(count: int, limit: int | None) -> str:
    return f"{count:,}" if limit is None else f"{count:,} of {limit:,}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="disco-flash",
        description="Build the firmware of a bundle's nodes, say what it takes and how it gets onto the boards.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="folder that disco-export wrote")
    parser.add_argument("--node", type=int, metavar="K", help="only this node (default: all)")
    boards = "for the boards of the bundle (default), or as processes of this PC"
    parser.add_argument("--boards", choices=(BOARD, POSIX), default=BOARD, help=boards)
    return parser


if __name__ == "__main__":
    sys.exit(main())
