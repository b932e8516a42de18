"""Nodes of the TFLite engine as threads of this process, wired by socket pairs."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from disco_firmware.bundle import Bundle
from disco_firmware.stream_link import StreamLink
from disco_host.boards import NodeLine
from disco_host.lines import link_number, wire
from disco_host.node.engine_tflite import BOARD, serve
from disco_host.node.program import slice_of
from disco_host.node.state import NodeState
from disco_host.transport import from_socket
from disco_targets.errors import DiscoError


@dataclass
class EngineNode:
    """One node: its sockets (host first), its thread, and how it ended."""

    sockets: dict[int, socket.socket]
    state: NodeState
    thread: threading.Thread
    failure: DiscoError | None = None

    def cut_peers(self) -> None:
        """Breaks its lines to all peers."""
        for link, line in self.sockets.items():
            if link > 0:
                line.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def engine_nodes(bundle: Bundle, mode: str) -> Iterator[tuple[tuple[NodeLine, ...], list[EngineNode]]]:
    """The host's lines to all nodes of a bundle, and the nodes; all have ended at the end."""
    nodes: list[EngineNode] = []
    with wire(bundle.manifest.nodes) as wiring:
        nodes += [_start(bundle, place, mode, wiring.node_ends[place]) for place in range(bundle.manifest.nodes)]
        lines = tuple(
            NodeLine(place, BOARD, from_socket(f"node {place}", end), None, "look at its thread", StreamLink)
            for place, end in enumerate(wiring.host_ends)
        )
        try:
            yield lines, nodes
        finally:
            for line in lines:
                line.transport.close()
            for node in nodes:
                node.thread.join(10)
                assert not node.thread.is_alive()


def _start(bundle: Bundle, place: int, mode: str, ends: dict[int, socket.socket]) -> EngineNode:
    peers = {peer: ends[link_number(place, peer)] for peer in range(bundle.manifest.nodes) if peer != place}
    state = NodeState()

    def work() -> None:
        try:
            serve(slice_of(bundle, place, mode), ends[0], peers, state)
        except DiscoError as error:
            node.failure = error
        finally:
            for end in ends.values():
                end.close()

    node = EngineNode(ends, state, threading.Thread(target=work, daemon=True))
    node.thread.start()
    return node
