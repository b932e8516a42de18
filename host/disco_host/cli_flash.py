"""`disco-flash`: parses, calls, reports."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from disco_host.cluster import load_cluster
from disco_host.deploy.agents import Access, AgentStatus, start_agents, stop_agents
from disco_host.flash import BOARD, POSIX, NodeFirmware, flash, flash_boards, pick_nodes
from disco_targets.command import command_parser, run_command, say
from disco_targets.errors import EXIT_OK, UsageError
from disco_targets.tables import report_console, report_table

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXAMPLES = """examples:
  disco-flash bundle
  disco-flash bundle --node 1 --boards posix
  disco-flash bundle --boards cluster.toml
  disco-flash bundle --boards cluster.toml --stop
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Exit code 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    options = _parser().parse_args(arguments)
    return run_command("disco-flash", lambda errors: _flash(options, errors))


def _flash(options: argparse.Namespace, errors: Console) -> int:
    console = report_console()
    access = Access(options.ssh_config, options.python, options.wheel)
    if options.stop and options.wheel is not None:
        raise UsageError("--stop installs nothing: leave --wheel out")
    for_linux = options.stop or access != Access()
    if options.boards in (BOARD, POSIX):
        if for_linux:
            raise UsageError("--stop, --ssh-config, --python and --wheel are for the Linux nodes of --boards FILE.toml")
        _print(flash(options.bundle, options.node, options.boards), console)
        return EXIT_OK
    boards, linux = pick_nodes(options.bundle, load_cluster(Path(options.boards)), options.node)
    if for_linux and not linux:
        raise UsageError(
            "--stop, --ssh-config, --python and --wheel are for Linux nodes, and ssh reaches none of those chosen: "
            'leave them out, or write ssh = "USER@HOST" in the cluster file'
        )
    if options.stop:
        _print_agents(stop_agents(linux, access), console)
        return EXIT_OK
    if boards:
        _print(flash_boards(options.bundle, boards), console)
    agents = start_agents(linux, access, lambda text: say(errors, text))
    _print_agents(agents, console)
    return EXIT_OK


def _print_agents(agents: tuple[AgentStatus, ...], console: Console) -> None:
    for agent in agents:
        say(console, f"node {agent.node} ({agent.where}): {agent.what}")
        if agent.note:
            say(console, f"node {agent.node}: {agent.note}")


def _print(built: tuple[NodeFirmware, ...], console: Console) -> None:
    table = report_table("Firmware, bytes as linked", ("node", "board"), ("flash", "RAM without stack"))
    for firmware in built:
        board, image = firmware.board, firmware.image
        flash, ram = _of(image.flash_bytes, board.flash_bytes), _of(image.ram_bytes, board.ram_bytes)
        table.add_row(str(firmware.node), escape(board.name), flash, ram)
    console.print(table)
    for firmware in built:
        say(console, f"node {firmware.node}: {firmware.image.path}")
    for step in dict.fromkeys(firmware.next_step for firmware in built):
        say(console, step)


def _of(count: int, limit: int | None) -> str:
    return f"{count:,}" if limit is None else f"{count:,} of {limit:,}"


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "disco-flash",
        "Build the firmware of a bundle's nodes and say what it takes; start the agents of Linux nodes.",
        _EXAMPLES,
    )
    add = parser.add_argument
    add("bundle", type=Path, metavar="BUNDLE", help="folder that disco-export wrote")
    add("--node", type=int, metavar="K", help="only this node (default: all)")
    boards = (
        "for the boards of the bundle (default), as processes of this PC, or of a cluster file: over ssh disco-edge is "
        "installed on its Linux nodes, and their agents are started"
    )
    add("--boards", default=BOARD, metavar=f"{BOARD}|{POSIX}|FILE.toml", help=boards)
    linux = parser.add_argument_group("Linux nodes")
    add = linux.add_argument
    add("--stop", action="store_true", help="end their agents; what is installed stays")
    add("--ssh-config", type=Path, metavar="FILE", help="configuration of ssh (default: your own)")
    add("--python", default="python3", metavar="PROGRAM", help="Python 3.10 to 3.12 there (default python3)")
    add("--wheel", type=Path, metavar="FILE.whl", help="what they get (default: this installation)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
