"""The cluster file: which board is which node, and on which port it answers.

    [[node]]
    board = "qemu-mps2-an386"
    port = "/dev/ttyACM0"        # or any pyserial URL, e.g. "socket://192.168.1.7:4000"
    baud = 921600                # optional, ignored by sockets

The nodes are numbered in the order of the file.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from disco_targets.board import load_board
from disco_targets.errors import DiscoError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_BAUD = 115_200
_KEYS = {"board", "port", "baud"}


@dataclass(frozen=True)
class ClusterNode:
    """One table of a cluster file."""

    node: int
    board: str
    port: str
    """Device, pyserial URL or unix:PATH."""
    baud: int


def load_cluster(path: Path) -> tuple[ClusterNode, ...]:
    """Reads a cluster file.

    Raises:
        DiscoError: Missing or not TOML, unknown or missing keys, an unknown board, a port given
            twice, a baud rate that is no positive whole number.
    """
    if not path.is_file():
        raise DiscoError(f"cluster file {path} does not exist: give emulated, posix or a .toml file")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise DiscoError(f"cluster file {path} cannot be read as TOML: {error}") from error
    unknown = sorted(set(document) - {"node"})
    tables = document.get("node")
    if unknown:
        raise DiscoError(f"{path}: unknown key {unknown[0]!r}; only [[node]] tables are known")
    if not isinstance(tables, list) or not tables:
        raise DiscoError(f"{path}: no [[node]] tables; write one per node with board and port")
    nodes = tuple(_node(index, table, f"{path}: node {index}") for index, table in enumerate(tables))
    _check_ports(nodes, path)
    return nodes


def _node(index: int, table: Any, where: str) -> ClusterNode:
    if not isinstance(table, dict):
        raise DiscoError(f"{where}: expected a [[node]] table with board and port")
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise DiscoError(f"{where}: unknown key {unknown[0]!r}; known: {', '.join(sorted(_KEYS))}")
    board = _text(table, "board", where)
    port = _text(table, "port", where)
    baud = table.get("baud", DEFAULT_BAUD)
    if not isinstance(baud, int) or isinstance(baud, bool) or baud <= 0:
        raise DiscoError(f"{where}: baud is {baud!r}, it must be a positive whole number")
    load_board(board)
    return ClusterNode(index, board, port, baud)


def _text(table: dict[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise DiscoError(f'{where}: {key} is missing or no text; write {key} = "..."')
    return value


def _check_ports(nodes: tuple[ClusterNode, ...], path: Path) -> None:
    seen: dict[str, int] = {}
    for node in nodes:
        if node.port in seen:
            raise DiscoError(
                f"{path}: nodes {seen[node.port]} and {node.node} name the same port {node.port}: "
                "every node has its own"
            )
        seen[node.port] = node.node
