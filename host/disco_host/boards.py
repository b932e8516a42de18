"""The boards of a run: one line to the host per node, whatever is behind it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from disco_firmware.link import Link
from disco_firmware.stream_link import StreamLink
from disco_host.cluster import EMULATED_PORT
from disco_host.transport import Transport, open_port
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from disco_host.cluster import ClusterNode
    from disco_host.processes import ChildProcess


@dataclass(frozen=True)
class NodeLine:
    """How the host reaches one node."""

    node: int
    board: str
    """What the node must say it is."""
    transport: Transport
    process: ChildProcess | None
    """Where we started the board ourselves."""
    hint: str
    """What to look at when it does not answer."""
    link: type[Link] | type[StreamLink] = Link
    """What the node speaks on its line."""


@contextlib.contextmanager
def open_cluster(nodes: Sequence[ClusterNode]) -> Iterator[tuple[NodeLine, ...]]:
    """Opens the ports of a cluster file and closes them again.

    Raises:
        DiscoError: A port cannot be opened; the message says why.
    """
    with contextlib.ExitStack() as stack:
        lines = []
        for node in nodes:
            if node.port == EMULATED_PORT:
                raise DiscoError(
                    f'node {node.node}: port = "{EMULATED_PORT}" is for a network with Linux nodes; else run with '
                    "--boards emulated"
                )
            try:
                transport = open_port(node.port, node.baud)
            except DiscoError as error:
                raise DiscoError(f"node {node.node}: {error}") from error
            stack.callback(transport.close)
            hint = f"is the board at {node.port} powered, flashed (disco-flash) and set to {node.baud} baud?"
            lines.append(NodeLine(node.node, node.board, transport, None, hint))
        yield tuple(lines)
