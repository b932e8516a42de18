"""An ssh server of this user on the loopback, which plays a Linux node: with a home folder and programs of its own."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
START_S = 10.0


def free_port() -> int:
    """A TCP port of the loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class SshNode:
    """A node that ssh reaches as `name` with the configuration file `config`."""

    name: str
    folder: Path
    port: int
    programs: Path
    """First folder of its PATH."""
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def home(self) -> Path:
        """Its home folder."""
        return self.folder / "home"

    @property
    def config(self) -> Path:
        """For ssh -F."""
        return self.folder / "ssh_config"

    def program(self, name: str, script: str) -> None:
        """Puts a program of its own before those of the machine."""
        path = self.programs / name
        path.write_text(script, encoding="utf-8")
        path.chmod(0o755)


def packages_without_ours(folder: Path) -> Path:
    """This environment's packages but disco-edge: what pip finds there needs no network."""
    folder.mkdir()
    for entry in sys.path:
        if Path(entry).name not in ("site-packages", "dist-packages"):
            continue
        for item in Path(entry).iterdir():
            name = item.name.lower()
            if not name.startswith(("disco_edge", "_disco_edge", "pip", "setuptools")) and not name.endswith(".pth"):
                with contextlib.suppress(FileExistsError):
                    (folder / item.name).symlink_to(item)
    return folder


@contextlib.contextmanager
def ssh_node(folder: Path, name: str, packages: Path) -> Iterator[SshNode]:
    """Starts the server; everything of it lies in `folder` and ends with the block."""
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("no sshd here: apt-get install openssh-server")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where it separates its privileges; a service makes it otherwise
    node = SshNode(name, folder, free_port(), folder / "programs")
    node.home.mkdir(parents=True)
    node.programs.mkdir()
    (node.programs / "python3").symlink_to(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info[1]}")
    _write_keys(node)
    _write_configuration(node, packages)
    try:
        _start(node)
        yield node
    finally:
        assert node.process is not None
        node.process.terminate()
        node.process.wait(10)


def _write_keys(node: SshNode) -> None:
    for key in ("host_key", "user_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(node.folder / key)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    host_key = (node.folder / "host_key.pub").read_text(encoding="utf-8")
    (node.folder / "known_hosts").write_text(f"[127.0.0.1]:{node.port} {host_key}", encoding="utf-8")
    shutil.copy(node.folder / "user_key.pub", node.folder / "authorized_keys")


def _write_configuration(node: SshNode, packages: Path) -> None:
    folder = node.folder
    variables = {
        "HOME": node.home,
        "PATH": f"{node.programs}:{os.environ['PATH']}",
        "PYTHONPATH": packages,
        "PIP_NO_DEPS": 1,
        "PIP_NO_INDEX": 1,
        "XDG_CACHE_HOME": node.home / ".cache",
    }
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{node.port}\n"
        f"HostKey {folder}/host_key\nAuthorizedKeysFile {folder}/authorized_keys\nPidFile none\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        f"Subsystem sftp internal-sftp -d {node.home}\n"
        f"SetEnv {' '.join(f'{key}={value}' for key, value in variables.items())}\n",
        encoding="utf-8",
    )
    node.config.write_text(
        f"Host {node.name}\nHostName 127.0.0.1\nPort {node.port}\nUser {getpass.getuser()}\n"
        f"IdentityFile {folder}/user_key\nIdentitiesOnly yes\nIdentityAgent none\n"
        f"UserKnownHostsFile {folder}/known_hosts\nGlobalKnownHostsFile none\n",
        encoding="utf-8",
    )


def _start(node: SshNode) -> None:
    assert SSHD is not None
    with (node.folder / "sshd.log").open("wb") as log:
        node.process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(node.folder / "sshd_config")], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", node.port)) == 0:
                return
        assert node.process.poll() is None, (node.folder / "sshd.log").read_text(encoding="utf-8")
        time.sleep(0.05)
    pytest.fail("sshd does not listen")
