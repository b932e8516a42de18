"""Opens the Linux nodes of a cluster: agents, slices, lines; and their lines to boards, through this host."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

from disco_firmware.link import Link
from disco_firmware.stream_link import StreamLink
from disco_host.boards import NodeLine
from disco_host.cluster import LINUX, ClusterNode
from disco_host.node.address import Endpoint, is_loopback, parse_endpoint
from disco_host.node.auth import load_token, own_token
from disco_host.node.calls import Keys, call
from disco_host.node.messages import CONTROL, LINE, NATIVE, PEER, Address, Start, Started
from disco_host.node.pump import Pump
from disco_host.node.tls import calling_context
from disco_host.remote.slices import send_slice
from disco_host.remote.watch import Watch
from disco_host.transport import from_socket
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    import socket

    from disco_firmware.bundle import Bundle

HINT = "look at what its disco-node printed (journalctl --user -u 'disco-node@*')"


@dataclass(frozen=True)
class Defaults:
    """For Linux nodes whose cluster file does not say."""

    engine: str
    mode: str


@dataclass(frozen=True)
class LinuxNodes:
    """Linux nodes that can be greeted."""

    lines: tuple[NodeLine, ...]
    watch: Watch
    addresses: dict[int, str]
    """Where the nodes reach each other's agents."""


@dataclass(frozen=True)
class _Node:
    """One Linux node, checked before anything is opened."""

    node: int
    name: str
    endpoint: Endpoint
    keys: Keys
    engine: str
    mode: str
    peer_address: str


@contextlib.contextmanager
def open_linux(
    bundle: Bundle,
    cluster: Sequence[ClusterNode],
    defaults: Defaults,
    relayed: Mapping[tuple[int, int], socket.socket] | None = None,
) -> Iterator[LinuxNodes]:
    """Brings all Linux nodes of a cluster to where they can be greeted; their jobs end with the block.

    Args:
        bundle: What they are to run.
        cluster: All nodes; boards are left out here.
        defaults: Engine and mode where the cluster does not say.
        relayed: For each (board, Linux node) our end of the board's line to that node, taken over here.

    Raises:
        DiscoError: An agent cannot be reached, is busy, refuses the token or the slice, or cannot reach a peer.
    """
    nodes = [_checked(node, defaults) for node in cluster if node.is_linux]
    if len({node.engine for node in nodes}) > 1:
        raise DiscoError("nodes with tflite and with native cannot run together: take one engine for all")
    relayed = relayed or {}
    if relayed and any(node.engine != NATIVE for node in nodes):
        raise DiscoError(
            'boards and Linux nodes in one network need engine = "native", which speaks the boards\' protocol'
        )
    framed = bool(relayed)
    job = secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        watch = Watch()
        stack.callback(watch.close)

        def prepare(node: _Node) -> None:
            watch.add(node.node, node.name, _call(node, CONTROL, job))
            send_slice(watch, bundle, node.node, node.engine, node.mode, framed=framed)

        _all(nodes, prepare, watch)
        lines = []
        for node in nodes:
            transport = from_socket(node.name, _call(node, LINE, job))
            stack.callback(transport.close)
            link = Link if framed else StreamLink
            lines.append(NodeLine(node.node, LINUX, transport, None, HINT, link))
        for (board, peer), board_end in relayed.items():
            far_end = _call(next(node for node in nodes if node.node == peer), PEER, job, board)
            stack.callback(Pump(board_end, far_end).close)
        stack.callback(watch.close)  # before the lines, so that no agent takes their end for a failure
        _all(nodes, lambda node: _start(watch, node, nodes, [b for b, peer in relayed if peer == node.node]), watch)
        yield LinuxNodes(tuple(lines), watch, {node.node: node.peer_address for node in nodes})


def _call(node: _Node, purpose: str, job: str, caller: int | None = None) -> socket.socket:
    try:
        return call(node.endpoint, node.keys, purpose, job, caller)
    except DiscoError as error:
        raise type(error)(f"node {node.node}: {error}") from error


def _start(watch: Watch, node: _Node, nodes: Sequence[_Node], boards: Sequence[int]) -> None:
    """Of two nodes the one with the higher number calls the other."""
    dial = tuple(Address(peer.node, peer.peer_address) for peer in nodes if peer.node < node.node)
    expect = [*boards, *(peer.node for peer in nodes if peer.node > node.node)]
    watch.request(node.node, Start(dial, tuple(expect)), Started)


def _checked(node: ClusterNode, defaults: Defaults) -> _Node:
    endpoint = parse_endpoint(node.port)
    if node.token_file is not None:
        token = load_token(node.token_file)
    elif is_loopback(endpoint):
        token = own_token()
    else:
        raise DiscoError(
            f'node {node.node} ({node.port}) is another machine: write token_file = "..." in its table, the secret '
            "that its disco-node was started with"
        )
    tls = calling_context(node.tls_ca) if node.tls_ca is not None else None
    return _Node(
        node.node,
        node.port,
        endpoint,
        Keys(token, tls),
        node.engine or defaults.engine,
        node.mode or defaults.mode,
        node.peer_address or str(endpoint),
    )


def _all(nodes: Sequence[_Node], action: Callable[[_Node], None], watch: Watch) -> None:
    """Does it for all nodes at once; the error of the first that fails."""
    with ThreadPoolExecutor(max_workers=max(1, len(nodes))) as pool:
        pending = [pool.submit(action, node) for node in nodes]
        try:
            done, _ = wait(pending, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except BaseException:
            watch.close()  # whoever still waits for an agent is released
            raise
