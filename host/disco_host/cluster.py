"""The cluster file: which board is which node, and on which port it answers.

    [[node]]
    board = "qemu-mps2-an386"
    port = "/dev/ttyACM0"        # or any pyserial URL, e.g. "socket://192.168.1.7:4000"
    baud = 921600                # optional, ignored by sockets

    [[node]]
    board = "linux"
    port = "disco://192.168.1.7:7450"   # where disco-node listens
    token_file = "token"         # relative to this file; optional on this machine
    engine = "tflite"            # or "native"; default: what disco-run is told
    mode = "reference"           # tflite only: its kernels, "xnnpack" or "reference"
    tls_ca = "ca.pem"            # optional: TLS, and who signed the agents' certificates
    peer_address = "10.0.0.7:7450"   # optional: where the other nodes reach it, if elsewhere
    ssh = "pi@192.168.1.7"       # optional: how disco-flash gets there

The nodes are numbered in the order of the file. A board with `port = "emulated"` is started by disco-run, which
carries the bytes between it and Linux nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from disco_firmware.reference import MODES
from disco_host.deploy.ssh import DESTINATION
from disco_host.node.address import SCHEME, parse_endpoint
from disco_host.node.messages import ENGINES
from disco_targets.board import load_board
from disco_targets.errors import DiscoError, UsageError
from disco_targets.toml import check_keys, read_toml

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_BAUD = 115_200
LINUX = "linux"
EMULATED_PORT = "emulated"
_BOARD_KEYS = {"board", "port", "baud"}
_LINUX_KEYS = {"board", "port", "token_file", "engine", "mode", "tls_ca", "peer_address", "ssh"}


@dataclass(frozen=True)
class ClusterNode:
    """One table of a cluster file."""

    node: int
    board: str
    port: str
    """Device, pyserial URL or unix:PATH; of a Linux node disco://HOST:PORT; EMULATED_PORT: disco-run starts it."""
    baud: int = DEFAULT_BAUD
    token_file: Path | None = None
    """Linux nodes: the secret of its agent; None: this user's own."""
    engine: str | None = None
    """Linux nodes: of `disco_host.node.messages.ENGINES`; None: that of the run."""
    mode: str | None = None
    """Linux nodes, tflite: of MODES; None: that of the run."""
    tls_ca: Path | None = None
    peer_address: str | None = None
    """Where the other nodes reach a Linux node; None: as we do."""
    ssh: str | None = None
    """Linux nodes: USER@HOST or HOST for ssh."""

    @property
    def is_linux(self) -> bool:
        """Whether an agent runs it."""
        return self.board == LINUX


def load_cluster(path: Path) -> tuple[ClusterNode, ...]:
    """Reads a cluster file.

    Raises:
        DiscoError: Missing or not TOML, unknown or missing keys, an unknown board, a port given
            twice, a baud rate that is no positive whole number.
    """
    if not path.is_file():
        raise DiscoError(f"cluster file {path} does not exist: give a .toml file or one of the words that --help lists")
    document = read_toml(path, f"cluster file {path}")
    check_keys(document, {"node"}, str(path))
    tables = document.get("node")
    if not isinstance(tables, list) or not tables:
        raise DiscoError(f"{path}: no [[node]] tables; write one per node with board and port")
    nodes = tuple(_node(index, table, f"{path}: node {index}", path.parent) for index, table in enumerate(tables))
    _check_ports(nodes, path)
    return nodes


def _node(index: int, table: Any, where: str, folder: Path) -> ClusterNode:
    if not isinstance(table, dict):
        raise DiscoError(f"{where}: expected a [[node]] table with board and port")
    is_linux = table.get("board") == LINUX
    check_keys(table, _LINUX_KEYS if is_linux else _BOARD_KEYS, where)
    board = _text(table, "board", where)
    port = _text(table, "port", where)
    load_board(board)
    if is_linux:
        return _linux_node(index, table, where, folder)
    baud = table.get("baud", DEFAULT_BAUD)
    if not isinstance(baud, int) or isinstance(baud, bool) or baud <= 0:
        raise DiscoError(f"{where}: baud is {baud!r}, it must be a positive whole number")
    return ClusterNode(index, board, port, baud)


def _linux_node(index: int, table: dict[str, Any], where: str, folder: Path) -> ClusterNode:
    texts = {key: _text(table, key, where) for key in table}
    for key, choices in (("engine", ENGINES), ("mode", MODES)):
        if texts.get(key, choices[0]) not in choices:
            raise DiscoError(f"{where}: {key} is {texts[key]!r}, it must be one of {', '.join(choices)}")
    if not texts["port"].startswith(SCHEME):
        raise DiscoError(f"{where}: port is {texts['port']!r}, that of a Linux node is {SCHEME}HOST:PORT")
    try:
        endpoint = parse_endpoint(texts["port"])
        if "peer_address" in texts:
            parse_endpoint(texts["peer_address"])
    except UsageError as error:
        raise DiscoError(f"{where}: {error}") from error
    if not DESTINATION.fullmatch(texts.get("ssh", LINUX)):
        raise DiscoError(f"{where}: ssh is {texts['ssh']!r}, write USER@HOST; a port goes into ssh's own configuration")
    return ClusterNode(
        index,
        LINUX,
        f"{SCHEME}{endpoint}",
        token_file=folder / texts["token_file"] if "token_file" in texts else None,
        engine=texts.get("engine"),
        mode=texts.get("mode"),
        tls_ca=folder / texts["tls_ca"] if "tls_ca" in texts else None,
        peer_address=texts.get("peer_address"),
        ssh=texts.get("ssh"),
    )


def _text(table: dict[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise DiscoError(f'{where}: {key} is missing or no text; write {key} = "..."')
    return value


def _check_ports(nodes: tuple[ClusterNode, ...], path: Path) -> None:
    seen: dict[str, int] = {}
    for node in nodes:
        if node.port == EMULATED_PORT:
            continue
        if node.port in seen:
            raise DiscoError(
                f"{path}: nodes {seen[node.port]} and {node.node} name the same port {node.port}: "
                "every node has its own"
            )
        seen[node.port] = node.node
