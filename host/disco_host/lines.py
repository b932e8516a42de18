"""Starts or opens the boards of a run and gives one line to each node.

Emulated boards and processes get their lines as inherited sockets: nothing is left in the file system, and no port can be taken.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from disco_firmware.build import FirmwareImage, build_node
from disco_firmware.bundle import Bundle
from disco_host.cluster import ClusterNode
from disco_host.processes import ChildProcess, missing_program, stop_all
from disco_host.transport import Transport, from_socket, open_port
from disco_targets.board import Board, load_board
from disco_targets.errors import DiscoError

PeerLine = Callable[[int, int], tuple[socket.socket, socket.socket]]
"""Makes the line between two nodes (lower, higher): the two ends, in that order."""


@dataclass(frozen=True)
class NodeLine:
    """The line to one node, and the process behind it when we started it."""

    node: int
    transport: Transport
    process: ChildProcess | None


def direct_line(lower: int, higher: int) -> tuple[socket.socket, socket.socket]:
    """A socket pair."""
    return socket.socketpair()


@contextlib.contextmanager
def emulated(bundle: Bundle, logs: Path, peer_line: PeerLine = direct_line) -> Iterator[tuple[NodeLine, ...]]:
    """One QEMU process per node, ended with the block.

    Raises:
        DiscoError: A target has no emulator, or QEMU or a compiler is missing.
    """
    boards = [load_board(name) for name in bundle.manifest.targets]
    for node, board in enumerate(boards):
        if board.emulator is None:
            raise DiscoError(
                f"node {node} was exported for {board.name}, which is not emulated: export for a qemu- target, or run with --boards posix"
            )
        if shutil.which(board.emulator.program) is None:
            raise missing_program(board.emulator.program, board.emulator.apt_package, "emulate the boards")
    images = [build_node(bundle.path, node) for node in range(len(boards))]
    commands = [_qemu(board, image) for board, image in zip(boards, images, strict=True)]
    with _started(commands, logs, peer_line) as lines:
        yield lines


@contextlib.contextmanager
def posix(
    bundle: Bundle, logs: Path, peer_line: PeerLine = direct_line, *, sanitize: bool = False
) -> Iterator[tuple[NodeLine, ...]]:
    """One process of the C runtime per node, ended with the block."""
    images = [build_node(bundle.path, node, port="posix", sanitize=sanitize) for node in range(bundle.manifest.nodes)]
    with _started([_process(image) for image in images], logs, peer_line) as lines:
        yield lines


@contextlib.contextmanager
def cluster(bundle: Bundle, nodes: Sequence[ClusterNode]) -> Iterator[tuple[NodeLine, ...]]:
    """Opens the ports of real boards.

    Raises:
        DiscoError: The file has another number of nodes or other boards than the bundle, or a port cannot be opened.
    """
    targets = bundle.manifest.targets
    if len(nodes) != len(targets):
        raise DiscoError(f"the cluster file has {len(nodes)} nodes, the bundle is for {len(targets)}: write one [[node]] table per node")
    for node, target in zip(nodes, targets, strict=True):
        if node.board != target:
            raise DiscoError(f"node {node.node} is {node.board} in the cluster file, but the bundle was exported for {target}")
    with contextlib.ExitStack() as stack:
        lines = []
        for node in nodes:
            transport = open_port(node.port, node.baud)
            stack.callback(transport.close)
            lines.append(NodeLine(node.node, transport, None))
        yield tuple(lines)


Command = Callable[[int, Sequence[tuple[int, int]]], list[str]]
"""(host line, [(peer, line)]) as descriptors -> command."""


def _qemu(board: Board, image: FirmwareImage) -> Command:
    def command(host: int, peers: Sequence[tuple[int, int]]) -> list[str]:
        assert board.emulator is not None
        line = [board.emulator.program, "-M", board.emulator.machine, "-display", "none", "-monitor", "none"]
        line += [*board.emulator.arguments, "-kernel", str(image.path)]
        for name, descriptor in [("host", host), *((f"peer{peer}", fd) for peer, fd in peers)]:
            line += ["-chardev", f"socket,id={name},fd={descriptor}", "-serial", f"chardev:{name}"]
        return line

    return command


def _process(image: FirmwareImage) -> Command:
    def command(host: int, peers: Sequence[tuple[int, int]]) -> list[str]:
        line = [str(image.path), "--host", f"fd:{host}"]
        for peer, descriptor in peers:
            line += ["--peer", f"{peer}=fd:{descriptor}"]
        return line

    return command


@contextlib.contextmanager
def _started(commands: Sequence[Command], logs: Path, peer_line: PeerLine) -> Iterator[tuple[NodeLine, ...]]:
    count = len(commands)
    with contextlib.ExitStack() as stack:
        inside: list[list[tuple[int, socket.socket]]] = [[] for _ in range(count)]
        for lower in range(count):
            for higher in range(lower + 1, count):
                ends = peer_line(lower, higher)
                inside[lower].append((higher, ends[0]))
                inside[higher].append((lower, ends[1]))
        children: list[ChildProcess] = []
        stack.callback(stop_all, children)
        lines = []
        for node, command in enumerate(commands):
            ours, theirs = socket.socketpair()
            stack.callback(ours.close)
            peers = [(peer, end.fileno()) for peer, end in inside[node]]
            inherited = [theirs.fileno(), *(descriptor for _, descriptor in peers)]
            child = ChildProcess(command(theirs.fileno(), peers), logs / f"node{node}.log", inherited)
            children.append(child)
            theirs.close()
            lines.append(NodeLine(node, from_socket(f"node {node}", ours), child))
        for ends_of_node in inside:
            for _, end in ends_of_node:
                end.close()
        yield tuple(lines)
