"""Lines, ports, cluster files and child processes of the host."""

from __future__ import annotations

import contextlib
import errno
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from disco_host.boards import open_cluster
from disco_host.cluster import DEFAULT_BAUD, EMULATED_PORT, ClusterNode, load_cluster
from disco_host.lines import direct_line, link_number, wire
from disco_host.processes import ChildProcess, stop_all
from disco_host.transport import LineClosedError, Transport, from_socket, open_port
from disco_targets.children import run_child
from disco_targets.errors import DiscoError


def _read(line: Transport, count: int) -> bytes:
    """Exactly `count` bytes, or what came within five seconds."""
    data = b""
    end = time.monotonic() + 5
    while len(data) < count and (left := end - time.monotonic()) > 0:
        if select.select([line], [], [], left)[0]:
            data += line.read()
    return data


def _echo(server: socket.socket) -> Callable[[], None]:
    peer, _ = server.accept()
    peer.sendall(peer.recv(100).upper())
    return peer.close


def _round_trip(server: socket.socket, port: str) -> None:
    line = open_port(port, 115200)
    try:
        assert line.read() == b""
        assert line.write(b"hello") == 5
        hang_up = _echo(server)
        assert _read(line, 5) == b"HELLO"
        hang_up()
        with pytest.raises(LineClosedError):
            _read(line, 1)
    finally:
        line.close()
        line.close()


def test_a_socket_url_and_a_unix_socket_are_the_same_to_us(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        _round_trip(server, f"socket://127.0.0.1:{server.getsockname()[1]}")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "line"))
        server.listen()
        _round_trip(server, f"unix:{tmp_path / 'line'}")


def test_a_serial_device_carries_all_byte_values() -> None:
    ours, theirs = pty.openpty()
    line = open_port(os.ttyname(theirs), 115200)
    data = bytes(range(256))
    assert line.write(data) == 256
    assert os.read(ours, 1000) == data
    os.write(ours, data)
    assert _read(line, 256) == data
    line.close()
    os.close(ours)
    os.close(theirs)


def test_a_busy_device_is_called_busy() -> None:
    ours, theirs = pty.openpty()
    name = os.ttyname(theirs)
    line = open_port(name, 115200)
    with pytest.raises(DiscoError, match=f"port {name} is busy"):
        open_port(name, 115200)
    line.close()
    os.close(ours)
    os.close(theirs)


def test_a_url_without_a_descriptor_is_pumped() -> None:
    line = open_port("loop://", 115200)
    assert line.write(b"around") == 6
    assert _read(line, 6) == b"around"
    line.close()


@pytest.mark.parametrize(
    ("port", "words"),
    [
        ("/dev/no-such-tty", "does not exist"),
        ("unix:/no/such/socket", "does not exist"),
        ("socket://127.0.0.1:1", "cannot be opened"),
        ("nonsense://x", "cannot be opened"),
        ("loop://?volume=1", "cannot be opened"),
        ("hwgrep://(", "cannot be opened"),
    ],
)
def test_a_port_that_cannot_be_opened_is_named(port: str, words: str) -> None:
    with pytest.raises(DiscoError, match=f"port {re.escape(port)} {words}"):
        open_port(port, 115200)


def test_a_rate_that_no_device_has_is_refused() -> None:
    ours, theirs = pty.openpty()
    with pytest.raises(DiscoError, match=r"cannot be opened.*baud rate"):
        open_port(os.ttyname(theirs), 10**12)
    os.close(ours)
    os.close(theirs)


def test_the_node_of_a_port_that_cannot_be_opened_is_named() -> None:
    nodes = (ClusterNode(0, "posix", "loop://", 115200), ClusterNode(1, "posix", "/dev/no-such-tty", 115200))
    with pytest.raises(DiscoError, match=r"^node 1: port /dev/no-such-tty does not exist"), open_cluster(nodes):
        pass


def test_a_unix_socket_that_nobody_serves_is_busy(tmp_path: Path) -> None:
    name = f"unix:{tmp_path / 'line'}"
    with socket.socket(socket.AF_UNIX) as server, contextlib.ExitStack() as stack:
        server.bind(str(tmp_path / "line"))
        server.listen(0)
        stack.callback(open_port(name, 115200).close)  # the one that its queue takes
        with pytest.raises(DiscoError, match="is busy"):
            open_port(name, 115200)


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EIO])
def test_whatever_breaks_a_line_closes_it(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_unused: object) -> bytes:
        raise OSError(number, os.strerror(number))

    one, two = socket.socketpair()
    line = from_socket("line", one)
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", broken)
        patch.setattr(os, "write", broken)
        for use in (line.read, lambda: line.write(b"x")):
            with pytest.raises(LineClosedError, match=os.strerror(number)):
                use()
    line.close()
    two.close()


def test_a_full_line_takes_a_part() -> None:
    one, two = socket.socketpair()
    line = Transport("line", one.fileno(), one.close)
    data = bytes(10_000_000)
    taken = line.write(data)
    assert 0 < taken < len(data)
    assert line.write(data) == 0
    two.close()
    with pytest.raises(LineClosedError):
        line.write(data)
    line.close()


def test_links_are_numbered_as_the_runtime_does() -> None:
    assert [link_number(1, peer) for peer in (0, 2, 3)] == [1, 2, 3]
    assert [link_number(0, peer) for peer in (1, 2, 3)] == [1, 2, 3]
    assert [link_number(3, peer) for peer in (0, 1, 2)] == [1, 2, 3]


def test_wiring_joins_the_right_ends() -> None:
    made: list[tuple[int, int]] = []

    def line(lower: int, higher: int) -> tuple[socket.socket, socket.socket]:
        made.append((lower, higher))
        return direct_line(lower, higher)

    with wire(3, line) as wiring:
        for node in range(3):
            for peer in set(range(3)) - {node}:
                wiring.node_ends[node][link_number(node, peer)].sendall(bytes([node]))
            wiring.node_ends[node][0].sendall(b"host")
        for node in range(3):
            for peer in set(range(3)) - {node}:
                assert wiring.node_ends[node][link_number(node, peer)].recv(1) == bytes([peer])
            assert wiring.host_ends[node].recv(9) == b"host"
        ends = [*wiring.host_ends, *(end for node in wiring.node_ends for end in node.values())]
    assert made == [(0, 1), (0, 2), (1, 2)]
    assert all(end.fileno() == -1 for end in ends)


CLUSTER = """
[[node]]
board = "qemu-mps2-an386"
port = "/dev/ttyACM0"
baud = 921600
[[node]]
board = "posix"
port = "socket://127.0.0.1:4000"
"""


def test_cluster_file(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER)
    one, two = load_cluster(file)
    assert (one.node, one.board, one.port, one.baud) == (0, "qemu-mps2-an386", "/dev/ttyACM0", 921600)
    assert (two.node, two.port, two.baud) == (1, "socket://127.0.0.1:4000", DEFAULT_BAUD)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"no \[\[node\]\] tables"),
        ("node = 3", r"no \[\[node\]\] tables"),
        ("[[node]", "cannot be read as TOML"),
        ("speed = 1\n" + CLUSTER, "unknown key 'speed'"),
        (CLUSTER + "bauds = 3\n", "node 1: unknown key 'bauds'; known: baud, board, port"),
        (CLUSTER.replace("921600", '"fast"'), "node 0: baud is 'fast'"),
        (CLUSTER.replace("921600", "true"), "node 0: baud is True"),
        (CLUSTER.replace('port = "/dev/ttyACM0"', ""), "node 0: port is missing"),
        (CLUSTER.replace('"posix"', '"posit"'), "unknown board 'posit': did you mean posix"),
        (CLUSTER.replace("socket://127.0.0.1:4000", "/dev/ttyACM0"), "nodes 0 and 1 name the same port"),
    ],
)
def test_cluster_files_that_are_wrong(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(text)
    with pytest.raises(DiscoError, match=words):
        load_cluster(file)


LINUX = """
[[node]]
board = "linux"
port = "disco://pi"
token_file = "token"
mode = "xnnpack"
[[node]]
board = "qemu-mps2-an386"
port = "emulated"
[[node]]
board = "qemu-mps2-an386"
port = "emulated"
"""


def test_linux_nodes_and_emulated_boards_in_a_cluster_file(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(LINUX)
    pi, board, _ = load_cluster(file)
    assert (pi.port, pi.token_file, pi.engine, pi.mode) == ("disco://pi:7450", tmp_path / "token", None, "xnnpack")
    assert (pi.is_linux, board.is_linux, board.port) == (True, False, EMULATED_PORT)
    with (
        pytest.raises(DiscoError, match=r"node 1: port = .emulated. is for a network with Linux nodes"),
        open_cluster([board]),
    ):
        pass


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "token_file",
            "baud",
            "node 0: unknown key 'baud'; known: board, engine, mode, peer_address, port, ssh, tls_ca, token",
        ),
        ("xnnpack", "fast", "node 0: mode is 'fast', it must be one of reference, xnnpack"),
        ("disco://pi", "/dev/ttyACM0", "that of a Linux node is disco://HOST:PORT"),
        ("disco://pi", "disco://pi:x", "is no address: write HOST:PORT"),
        ('"token"', "3", "node 0: token_file is missing or no text"),
    ],
)
def test_linux_nodes_that_are_wrong(tmp_path: Path, old: str, new: str, words: str) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(LINUX.replace(old, new, 1))
    with pytest.raises(DiscoError, match=words):
        load_cluster(file)


def test_a_missing_cluster_file(tmp_path: Path) -> None:
    with pytest.raises(DiscoError, match="does not exist: give a"):
        load_cluster(tmp_path / "none.toml")


def _python(tmp_path: Path, code: str, **more: object) -> ChildProcess:
    return ChildProcess([sys.executable, "-c", code], tmp_path / "log", **more)  # type: ignore[arg-type]


def test_a_process_that_ends_is_described_by_its_last_words(tmp_path: Path) -> None:
    child = _python(tmp_path, "import sys; print('no such machine', file=sys.stderr); sys.exit(3)")
    assert child.epitaph(10.0) == f"{Path(sys.executable).name} ended with exit code 3: no such machine"
    assert not child.running()
    child = _python(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert child.epitaph(10.0) == f"{Path(sys.executable).name} was killed by SIGKILL without a word"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_end_of_a_process_is_told_at_once(tmp_path: Path, number: signal.Signals) -> None:
    child = _python(tmp_path, "import time; time.sleep(60)")
    told = threading.Event()
    child.tell_end(told.set)
    assert not told.wait(0.05)
    assert not child.halted()
    os.kill(child.pid, number)
    assert told.wait(10)
    assert child.halted() == (number == signal.SIGSTOP)
    os.kill(child.pid, signal.SIGKILL)
    assert child.epitaph(10.0) == f"{Path(sys.executable).name} was killed by SIGKILL without a word"


def test_last_words_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    child = _python(tmp_path, "print('\\x1b[31mred\\x07'); raise SystemExit(1)")
    assert child.epitaph(10.0) == rf"{Path(sys.executable).name} ended with exit code 1: \x1b[31mred\x07"


def test_stopping_ends_even_what_ignores_sigterm(tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    child = _python(tmp_path, code)
    while "deaf" not in child.log.read_text():
        time.sleep(0.01)
    assert child.running()
    stop_all([child])
    assert not child.running()


def test_children_die_with_us(tmp_path: Path) -> None:
    code = f"""
import os, pathlib, sys
from disco_host.processes import ChildProcess
child = ChildProcess(["sleep", "60"], pathlib.Path({str(tmp_path / "log")!r}))
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    out = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=30).stdout
    assert _ends(int(out))


def _ends(pid: int) -> bool:
    """A process that was sent a signal may take a moment."""
    end = time.monotonic() + 5
    while _alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not _alive(pid)


def _alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return " Z " not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1][:4]
    return False


def test_a_child_that_takes_too_long_ends_with_all_that_it_started(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! > {tmp_path / 'pid'}; wait"
    with pytest.raises(subprocess.TimeoutExpired):
        run_child(["sh", "-c", script], 1.0)
    assert _ends(int((tmp_path / "pid").read_text()))
