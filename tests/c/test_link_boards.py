"""The ports: the link on every emulated board and on Linux, with a stub in the model's place."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from disco_firmware.project import STACK_BYTES
from disco_firmware.protocol import MAX_PAYLOAD
from disco_host.boards import NodeLine
from disco_host.boards_local import start_emulated
from disco_host.lines import PeerLine, direct_line
from disco_targets.board import load_board
from helpers.c_build import tool
from helpers.fault_proxy import FaultProxy
from helpers.link_stub import BLAST, COMPUTE, COUNT, ECHO, STACK, StubHost, build_stub

EMULATED = ("qemu-mps2-an386", "qemu-mps2-an500", "qemu-mps2-an505", "qemu-mps3-an547")
M4 = EMULATED[0]
FRAMES = 40
ROUNDS = 2_500_000  # 5 to 10 M instructions


@pytest.fixture(scope="module")
def m4_images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build_stub(tmp_path_factory.mktemp("m4"), M4)


def _host(line: NodeLine) -> StubHost:
    transport = line.transport
    return StubHost(line.node, transport.fileno(), transport.read, transport.write)


@contextmanager
def _boards(target: str, images: list[Path], peer_line: PeerLine = direct_line) -> Iterator[list[StubHost]]:
    tool("qemu-system-arm")
    with start_emulated([load_board(target)] * len(images), images, peer_line=peer_line) as lines:
        hosts = [_host(line) for line in lines]
        for host in hosts:
            host.greet()
        yield hosts


def _blasted(frames: int) -> int:
    """CRC of what a blast of so many frames carries."""
    crc = 0
    for left in range(frames, 0, -1):
        crc = zlib.crc32(bytes((left * 31 + i) % 256 for i in range(MAX_PAYLOAD)), crc)
    return crc


def _exchange(hosts: list[StubHost], frames: int = FRAMES) -> None:
    """Both nodes send to each other at once; everything must arrive."""
    for host in hosts:
        host.send(BLAST, struct.pack("<I", frames))
    for host in hosts:
        host.wait(BLAST)
    for host in hosts:
        assert struct.unpack("<II", host.ask(COUNT)) == (frames, _blasted(frames))


def _check_echo(host: StubHost, count: int) -> None:
    for number in range(count):
        payload = bytes((number + i) % 256 for i in range(number))
        assert host.ask(ECHO, payload) == payload


@pytest.mark.parametrize("target", EMULATED)
def test_two_boards_echo_and_talk_to_each_other(tmp_path: Path, target: str) -> None:
    with _boards(target, build_stub(tmp_path, target)) as hosts:
        for host in hosts:
            _check_echo(host, 100)
        _exchange(hosts)
        assert all(host.link.statistics.frames_damaged == 0 for host in hosts)


def test_a_board_takes_many_sessions(m4_images: list[Path]) -> None:
    with _boards(M4, m4_images) as hosts:
        for session in range(10, 15):
            hosts[0].send(ECHO, b"left over")
            hosts[0].greet(session)
            _check_echo(hosts[0], 10)


def test_a_board_survives_a_faulty_line(m4_images: list[Path]) -> None:
    proxy = FaultProxy(rate=0.002, seed=3)
    try:
        with _boards(M4, m4_images, proxy.line) as hosts:
            _exchange(hosts, 100)
    finally:
        proxy.close()
    assert proxy.faults > 10


def test_a_burst_of_commands_waits_in_the_line(m4_images: list[Path]) -> None:
    """The board computes while more arrives than its ring and the UART hold; nothing is lost or repeated."""
    with _boards(M4, m4_images[:1]) as (host,):
        host.send(COMPUTE, struct.pack("<I", 5_000_000))
        for number in range(12):
            host.send(ECHO, bytes([number]) * 200)
        assert [host.wait(ECHO)[0] for _ in range(12)] == list(range(12))
        assert len(host.wait(COMPUTE)) == 20


@pytest.mark.parametrize("target", EMULATED)
def test_the_most_stack_that_was_in_use_is_known(tmp_path: Path, target: str) -> None:
    with _boards(target, build_stub(tmp_path, target, nodes=1)) as (host,):

        def use(count: int) -> int:
            return int.from_bytes(host.ask(STACK, struct.pack("<I", count)), "little")

        least = use(0)
        assert 100 < least < 1000
        some = use(2000)
        assert least + 2000 - 200 < some < least + 4000  # each step takes its frame beside its 64 bytes
        assert use(0) == some
        assert use(2 * STACK_BYTES) == STACK_BYTES  # all of it: what lies below is not painted


@pytest.mark.parametrize("target", EMULATED)
def test_counts_repeat_whatever_comes_in_meanwhile(tmp_path: Path, target: str) -> None:
    """Instructions of a fixed computation, interrupts taken out: all but the rounding of the counter."""
    counts, loads = [], []
    with _boards(target, build_stub(tmp_path, target)) as (one, two):
        for noisy in (False, False, True, True, True):
            if noisy:
                two.send(BLAST, struct.pack("<I", 20))
            ticks, task_ticks, result = struct.unpack("<QQI", one.ask(COMPUTE, struct.pack("<I", ROUNDS)))
            counts.append(task_ticks)
            loads.append(ticks - task_ticks)
            assert result == _churn(ROUNDS)
            if noisy:
                two.wait(BLAST)
    assert max(counts) - min(counts) <= 20
    assert (
        1.99 * ROUNDS <= min(counts) <= 6 * ROUNDS
    )  # multiply-add and loop: 2 instructions where loops are in hardware
    assert max(loads) > max(loads[:2]) + 1000  # bytes did come in during a computation


def _churn(rounds: int) -> int:
    """What the stub computes: `rounds` steps of a linear congruential generator, by repeated squaring."""
    multiplier, increment, total_m, total_i = 1664525, 1013904223, 1, 0
    while rounds:
        if rounds & 1:
            total_m, total_i = total_m * multiplier % 2**32, (total_i * multiplier + increment) % 2**32
        increment = increment * (multiplier + 1) % 2**32
        multiplier = multiplier * multiplier % 2**32
        rounds >>= 1
    return (total_m + total_i) % 2**32


# ---- Linux


@pytest.fixture(scope="module")
def posix_images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build_stub(tmp_path_factory.mktemp("posix"), "posix", port="posix", sanitize=True)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _socket_host(node: int, line: socket.socket) -> StubHost:
    line.setblocking(False)

    def read() -> bytes:
        data = line.recv(65536)
        assert data, f"node {node} has closed its line"
        return data

    return StubHost(node, line.fileno(), read, line.send)


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_linux_nodes_find_each_other(tmp_path: Path, posix_images: list[Path], kind: str) -> None:
    with ExitStack() as stack:
        processes, hosts = [], []
        peer = str(tmp_path / "peer") if kind == "unix" else f"127.0.0.1:{_free_port()}"
        for node in (1, 0):  # the one that connects is first: it has to try until the other listens
            family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
            listener = stack.enter_context(socket.socket(family))
            listener.bind(str(tmp_path / f"host{node}") if kind == "unix" else ("127.0.0.1", 0))
            listener.listen()
            listener.settimeout(10)
            name = listener.getsockname() if kind == "unix" else f"127.0.0.1:{listener.getsockname()[1]}"
            command = [str(posix_images[node]), "--host", name, "--peer", f"{1 - node}={peer}"]
            process = stack.enter_context(subprocess.Popen(command))
            stack.callback(process.kill)
            processes.append(process)
            line, _ = listener.accept()
            stack.enter_context(line)
            hosts.append(_socket_host(node, line))
        for host in hosts:
            host.greet()
        _check_echo(hosts[0], 100)
        _exchange(hosts)
        # A node ends well when its host leaves, and at SIGTERM at once.
        processes[0].send_signal(signal.SIGTERM)
        assert processes[0].wait(10) == -signal.SIGTERM
        line.shutdown(socket.SHUT_RDWR)
        assert processes[1].wait(10) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage:"),
        (["--hots", "fd:0"], "usage:"),
        (["--host"], "usage:"),
        (["--host", "fd:0", "fd:0"], "usage:"),
        (["--host", "fd:zero"], "no line at fd:zero"),
        (["--host", "nowhere"], "no line at nowhere"),
        (["--host", "fd:0", "--peer", "1"], "--peer 1 is not NODE=ADDRESS"),
        (["--host", "fd:0", "--peer", "0=fd:0"], "--peer 0=fd:0 is not NODE=ADDRESS"),
        (["--host", "fd:0", "--peer", "9=fd:0"], "--peer 9=fd:0 is not NODE=ADDRESS"),
        (["--host", "fd:99"], "no line at fd:99"),
        (["--host", "127.0.0.1:99999"], "no line at 127.0.0.1:99999"),
    ],
)
def test_linux_nodes_refuse_wrong_arguments(posix_images: list[Path], arguments: list[str], message: str) -> None:
    command = [str(posix_images[0]), *arguments]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    assert result.returncode == 1
    assert message in result.stderr
    assert "Sanitizer" not in result.stderr


def test_a_peer_without_a_number_is_not_node_0(posix_images: list[Path]) -> None:
    command = [str(posix_images[1]), "--host", "fd:0", "--peer", "=fd:0"]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    assert "--peer =fd:0 is not NODE=ADDRESS" in result.stderr


@pytest.mark.parametrize(
    ("target", "nodes", "sanitize"),
    [(M4, 1, False), (M4, 5, False), ("posix", 1, True), ("posix", 1, False), ("posix", 3, False)],
)
def test_it_compiles_for_any_number_of_nodes(tmp_path: Path, target: str, nodes: int, sanitize: bool) -> None:
    """Optimisers reason about arrays of one line; warnings are errors."""
    port = "posix" if target == "posix" else "board"
    assert len(build_stub(tmp_path, target, nodes=nodes, port=port, sanitize=sanitize)) == nodes


def test_a_lost_peer_does_not_end_a_linux_node(posix_images: list[Path]) -> None:
    ours, theirs = socket.socketpair()
    gone, peer = socket.socketpair()
    with (
        ours,
        subprocess.Popen(
            [str(posix_images[0]), "--host", f"fd:{theirs.fileno()}", "--peer", f"1=fd:{peer.fileno()}"],
            pass_fds=[theirs.fileno(), peer.fileno()],
        ) as process,
    ):
        theirs.close()
        peer.close()
        host = _socket_host(0, ours)
        host.greet()
        gone.close()
        host.send(BLAST, struct.pack("<I", 100))  # writes into a closed line: no SIGPIPE
        _check_echo(host, 20)
        ours.close()
        assert process.wait(10) == 0
