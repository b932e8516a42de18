"""Agents as processes that tests kill, halt and start again, and a wire that can be cut."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from disco_host.node.address import Endpoint, parse_endpoint

TOKEN = "0123456789abcdef" * 2


def write_token(folder: Path, text: str = TOKEN) -> Path:
    """A token file that only we may read."""
    path = folder / "token"
    path.touch(0o600)
    path.write_text(text)
    return path


class AgentProcess:
    """`disco-node` on loopback; a context manager."""

    def __init__(self, folder: Path, *options: str, path: str | None = None) -> None:
        """Listens when this returns; what it prints is in `log`. `path`: where it finds programs."""
        self.folder = folder
        self.log = folder / f"agent-{os.urandom(4).hex()}.log"
        self._options = options
        self._environment = os.environ | ({"PATH": path} if path is not None else {})
        self.port = 0
        self.start()

    def start(self) -> None:
        """Starts it (again), at the same port as before."""
        ours, theirs = os.pipe()
        command = [sys.executable, "-m", "disco_host.cli_node", "--token-file", str(self.folder / "token")]
        command += ["--listen", f"127.0.0.1:{self.port}", "--ready-fd", str(theirs), *self._options]
        command += ["--cache", str(self.folder / "cache")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, pass_fds=[theirs], stdout=log, stderr=log, env=self._environment, start_new_session=True
            )
        os.close(theirs)
        assert select.select([ours], [], [], 30)[0], self.log.read_text()
        address = os.read(ours, 100).decode().strip()
        os.close(ours)
        assert address, self.log.read_text()
        self.port = parse_endpoint(address).port

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens."""
        return Endpoint("127.0.0.1", self.port)

    def signal(self, number: int) -> None:
        """Sends a signal to the agent alone."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a power cut does; the kernel ends its engine."""
        self.process.kill()
        self.process.wait()

    def children(self) -> list[int]:
        """Its processes."""
        return children_of(self.process.pid)

    def __enter__(self) -> AgentProcess:
        return self

    def __exit__(self, *unused: object) -> None:
        if self.process.poll() is None:
            for number in (signal.SIGCONT, signal.SIGTERM):
                self.process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
            self.process.kill()
            self.process.wait()


def children_of(pid: int) -> list[int]:
    """Process numbers of living children."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(folder.name))
    return found


def cluster_file(folder: Path, agents: list[AgentProcess] | list[Endpoint], more: str = "") -> Path:
    """A cluster of Linux nodes; `more` is added to every table."""
    path = folder / f"cluster-{os.urandom(4).hex()}.toml"
    places = [agent.endpoint if isinstance(agent, AgentProcess) else agent for agent in agents]
    tables = [
        f'[[node]]\nboard = "linux"\nport = "disco://{p}"\ntoken_file = "{folder / "token"}"\n{more}\n' for p in places
    ]
    path.write_text("".join(tables))
    return path


class Wire:
    """A TCP port in front of another one, through which nothing goes any more once it is cut; a context manager."""

    def __init__(self, target: Endpoint) -> None:
        self._target = target
        self._whole = threading.Event()
        self._whole.set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint("127.0.0.1", self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Bytes vanish from now on, and nobody is told."""
        self._whole.clear()

    def mend(self) -> None:
        """Bytes go through again; those held back, too."""
        self._whole.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((self._target.host, self._target.port))
                self._sockets += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._whole.wait()
                sink.sendall(data)
            self._whole.wait()
            sink.shutdown(socket.SHUT_WR)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *unused: object) -> None:
        self._whole.set()
        for line in (self._listener, *self._sockets):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()
