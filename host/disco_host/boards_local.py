"""Boards that run as processes on this PC: QEMU machines and the posix build of a node."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from disco_host.boards import NodeLine
from disco_host.estimate import estimate_arguments
from disco_host.lines import PeerLine, Wiring, direct_line, link_number, wire
from disco_host.processes import ChildProcess, stop_all
from disco_host.transport import from_socket
from disco_targets.children import missing_program
from disco_targets.errors import DiscoError
from disco_targets.scratch import scratch_folder

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from disco_targets.board import Board

POSIX_BOARD = "posix"


def check_emulators(boards: Sequence[Board], nodes: int | None = None) -> None:
    """Can all of them be emulated here, and wired to each other (and to the rest of `nodes` nodes)?

    Raises:
        DiscoError: A board is not an emulated one, lacks serial ports, or QEMU is not installed.
    """
    for node, board in enumerate(boards):
        emulator = board.emulator
        if emulator is None:
            raise DiscoError(
                f"node {node} was exported for {board.name}, which is not emulated: export it for a qemu- target, or "
                "run with --boards posix, --boards linux or a cluster file"
            )
        if board.max_nodes is not None and (nodes or len(boards)) > board.max_nodes:
            raise DiscoError(
                f"board {board.name} can be wired to {board.max_nodes - 1} others, this bundle has "
                f"{nodes or len(boards)} nodes: export it for fewer nodes"
            )
        if shutil.which(emulator.program) is None:
            raise missing_program(emulator.program, emulator.apt_package, f"emulate {board.name}")


def emulator_command(board: Board, image: Path, descriptors: dict[int, int]) -> list[str]:
    """QEMU's command line: UART n of the machine is link n, over an inherited socket."""
    emulator = board.emulator
    assert emulator is not None  # check_emulators
    command = [emulator.program, "-M", emulator.machine, "-display", "none", "-monitor", "none"]
    command += [*emulator.arguments, "-kernel", str(image)]
    for link, descriptor in sorted(descriptors.items()):
        command += ["-chardev", f"socket,id=line{link},fd={descriptor},{emulator.line_options}"]
        command += ["-serial", f"chardev:line{link}"]
    return command


def posix_command(node: int, image: Path, descriptors: dict[int, int]) -> list[str]:
    """Command line of a node built for this PC."""
    command = [str(image), "--host", f"fd:{descriptors[0]}"]
    for link, descriptor in sorted(descriptors.items()):
        if link > 0:
            peer = link - 1 if link <= node else link
            command += ["--peer", f"{peer}=fd:{descriptor}"]
    return command


@contextlib.contextmanager
def start_emulated(
    boards: Sequence[Board],
    images: Sequence[Path],
    *,
    peer_line: PeerLine = direct_line,
    logs: Path | None = None,
    plugin: Path | None = None,
) -> Iterator[tuple[NodeLine, ...]]:
    """Starts one emulator per node, wired to each other and to us; ends all of them at the end.

    Args:
        boards: By node.
        images: Firmware by node.
        peer_line: Makes the lines between the boards.
        logs: Folder that keeps what the emulators print; default a temporary one.
        plugin: That of `disco_host.estimate`: the boards count estimated cycles.

    Raises:
        DiscoError: QEMU is not installed or a board is not an emulated one.
    """
    check_emulators(boards)

    with contextlib.ExitStack() as stack:
        estimate: list[list[str]] = [[] for _ in boards]
        if plugin is not None:
            folder = stack.enter_context(scratch_folder("cycles"))
            estimate = [estimate_arguments(board, plugin, folder / str(node)) for node, board in enumerate(boards)]

        def command(node: int, descriptors: dict[int, int]) -> list[str]:
            return emulator_command(boards[node], images[node], descriptors) + estimate[node]

        names = [board.name for board in boards]
        yield stack.enter_context(_start(names, command, peer_line, logs))[0]


@contextlib.contextmanager
def start_emulated_among(
    boards: Mapping[int, Board], images: Mapping[int, Path], nodes: int, *, logs: Path | None = None
) -> Iterator[tuple[tuple[NodeLine, ...], dict[tuple[int, int], socket.socket]]]:
    """Starts emulators for some of `nodes` nodes, wired to each other and to us; else as `start_emulated`.

    Returns:
        Their lines, and for each (board, other node) our end of the board's line to that node.
    """
    check_emulators([boards[node] for node in sorted(boards)], nodes)

    def command(node: int, descriptors: dict[int, int]) -> list[str]:
        return emulator_command(boards[node], images[node], descriptors)

    names = [boards[node].name if node in boards else None for node in range(nodes)]
    with _start(names, command, direct_line, logs) as (lines, wiring):
        others = [node for node in range(nodes) if node not in boards]
        relayed = {(b, node): wiring.node_ends[node][link_number(node, b)] for b in boards for node in others}
        yield lines, relayed


@contextlib.contextmanager
def start_posix(
    images: Sequence[Path], *, peer_line: PeerLine = direct_line, logs: Path | None = None
) -> Iterator[tuple[NodeLine, ...]]:
    """Starts the posix build of every node; else as `start_emulated`."""

    def command(node: int, descriptors: dict[int, int]) -> list[str]:
        return posix_command(node, images[node], descriptors)

    with _start([POSIX_BOARD] * len(images), command, peer_line, logs) as (lines, _):
        yield lines


@contextlib.contextmanager
def _start(
    names: Sequence[str | None],
    command: Callable[[int, dict[int, int]], list[str]],
    peer_line: PeerLine,
    logs: Path | None,
) -> Iterator[tuple[tuple[NodeLine, ...], Wiring]]:
    """Starts the nodes that have a name."""
    children: list[ChildProcess] = []
    lines = []
    with _log_folder(logs) as folder, wire(len(names), peer_line) as wiring:
        try:
            for node, name in enumerate(names):
                if name is not None:
                    child = _spawn(node, command, wiring, folder)
                    children.append(child)  # at once: if the next one fails, this one must be ended
                    lines.append(_line(node, name, wiring, child))
            yield tuple(lines), wiring
        finally:
            stop_all(children)


def _spawn(
    node: int,
    command: Callable[[int, dict[int, int]], list[str]],
    wiring: Wiring,
    folder: Path,
) -> ChildProcess:
    descriptors = {link: end.fileno() for link, end in wiring.node_ends[node].items()}
    line = command(node, descriptors)
    try:
        child = ChildProcess(line, folder / f"node{node}.log", tuple(descriptors.values()))
    except OSError as error:
        raise DiscoError(f"node {node} cannot be started ({error.filename or line[0]}): {error.strerror}") from error
    wiring.release(node)
    return child


def _line(node: int, name: str, wiring: Wiring, process: ChildProcess) -> NodeLine:
    transport = from_socket(f"{name}, process {process.pid}", wiring.host_ends[node])
    hint = "run again with --keep-logs DIR and read its log there"
    return NodeLine(node, name, transport, process, hint)


@contextlib.contextmanager
def _log_folder(logs: Path | None) -> Iterator[Path]:
    if logs is None:
        with scratch_folder("run") as folder:
            yield folder
        return
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DiscoError(f"logs cannot be kept in {logs}: {error.strerror}") from error
    yield logs
