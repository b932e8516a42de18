"""disco-flash on Linux nodes: an ssh server of the test's own, with a home folder and a Python of its own.

What it does not show: systemd itself (a stand-in takes its calls), and a package index (pip finds the dependencies
in this environment).
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from disco_firmware.bundle import Bundle
from disco_host import cli_flash
from disco_host.cluster import load_cluster
from disco_host.config import RunConfig
from disco_host.deploy import agents
from disco_host.deploy.agents import Access, start_agents
from disco_host.deploy.ssh import Remote
from disco_host.deploy.wheel import build_wheel
from disco_host.node.address import connect_to, parse_endpoint
from disco_host.node.auth import HandshakeError, prove_to_listener, write_token
from disco_host.run import run
from disco_targets.errors import DiscoError
from helpers import fake_systemd
from helpers.ssh_server import SshNode, free_port, packages_without_ours, ssh_node
from helpers.tiny_bundle import export_tiny

pytestmark = pytest.mark.slow

FIRST_ENVIRONMENT = ".local/share/disco-edge/current"


@dataclass(frozen=True)
class Cluster:
    """A cluster file whose Linux nodes are agents of one node's."""

    file: Path
    bundle: Path
    node: SshNode
    ports: tuple[int, ...]
    token: Path

    def flash(self, *options: str, config: Path | None = None) -> int:
        """The command."""
        fixed = [str(self.bundle), "--boards", str(self.file), "--ssh-config", str(config or self.node.config)]
        return cli_flash.main([*fixed, *options])

    def pid(self, place: int) -> int:
        """Of an agent."""
        file = self.node.home / ".local/state/disco-edge" / f"node-{self.ports[place]}.pid"
        return int(file.read_text(encoding="ascii").split()[0])

    def answers(self, place: int, token: bytes) -> bool:
        """Whether an agent that knows the token listens there."""
        try:
            with connect_to(parse_endpoint(f"127.0.0.1:{self.ports[place]}")) as line:
                prove_to_listener(line, token)
        except (OSError, HandshakeError):
            return False
        return True


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packages_without_ours(tmp_path_factory.mktemp("packages") / "site")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return export_tiny(tmp_path_factory.mktemp("bundle") / "bundle", target="linux")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def cluster(packages: Path, bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two agents of one node; the tests of a module go on where the one before left it."""
    folder = tmp_path_factory.mktemp("cluster")
    with ssh_node(folder / "pi", "pi", packages) as node:
        cluster = write_cluster(folder, bundle.path, node)
        try:
            yield cluster
        finally:
            cluster.flash("--stop")


def write_cluster(folder: Path, bundle: Path, node: SshNode) -> Cluster:
    cluster = Cluster(folder / "cluster.toml", bundle, node, (free_port(), free_port()), folder / "token")
    write_token(cluster.token)
    table = '[[node]]\nboard = "linux"\nport = "disco://127.0.0.1:{}"\ntoken_file = "token"\nssh = "{}"\n'
    cluster.file.write_text("".join(table.format(port, node.name) for port in cluster.ports), encoding="utf-8")
    return cluster


def output(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_it_installs_starts_and_leaves_alone_what_is_there(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.flash() == 0
    words = output(capsys)
    assert "node 0 (pi): installed, started" in words
    assert "node 1 (pi): up to date, started" in words
    assert "no systemd serves this user" in words
    pids = [cluster.pid(0), cluster.pid(1)]
    environment = cluster.node.home / FIRST_ENVIRONMENT
    before = (environment.resolve(), environment.stat().st_mtime_ns)

    assert cluster.flash() == 0
    words = output(capsys)
    assert "node 0 (pi): up to date, runs already" in words
    assert "node 1 (pi): up to date, runs already" in words
    assert [cluster.pid(0), cluster.pid(1)] == pids
    assert (environment.resolve(), environment.stat().st_mtime_ns) == before
    secret = cluster.node.home / ".config/disco-edge/token-flashed"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert not list((cluster.node.home / ".local/share/disco-edge").glob(".flash-*"))


def test_the_nodes_run_what_disco_run_sends(cluster: Cluster, bundle: Bundle) -> None:
    assert cluster.flash() == 0
    outcome = run(RunConfig(bundle=bundle.path, boards=str(cluster.file), check_tensors=True))
    assert outcome.result.bit_exact


def test_a_new_token_restarts_without_an_installation(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster.flash() == 0
    pid, old = cluster.pid(0), cluster.token.read_bytes().strip()
    cluster.token.unlink()
    write_token(cluster.token)
    output(capsys)
    assert cluster.flash() == 0
    assert "node 0 (pi): up to date, started" in output(capsys)
    assert cluster.pid(0) != pid
    assert cluster.answers(0, cluster.token.read_bytes().strip())
    assert not cluster.answers(0, old)


def test_an_agent_that_died_is_started_again(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster.flash() == 0
    pid = cluster.pid(1)
    Remote("pi", cluster.node.config).ask({"action": "look", "port": cluster.ports[1]})
    subprocess.run(["kill", f"-{signal.SIGKILL.value}", str(pid)], check=True)
    output(capsys)
    assert cluster.flash() == 0
    words = output(capsys)
    assert "node 0 (pi): up to date, runs already" in words
    assert "node 1 (pi): up to date, started" in words
    assert cluster.pid(1) != pid


def test_it_stops_what_it_started(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster.flash() == 0
    token = cluster.token.read_bytes().strip()
    assert cluster.answers(0, token)
    assert cluster.flash("--node", "0", "--stop") == 0
    assert not cluster.answers(0, token)
    assert cluster.answers(1, token)
    output(capsys)
    assert cluster.flash("--stop") == 0
    words = output(capsys)
    assert "node 0 (pi): did not run" in words
    assert "node 1 (pi): stopped" in words
    assert not cluster.answers(1, token)


# ---- with systemd


@pytest.fixture
def systemd(cluster: Cluster) -> Iterator[Path]:
    """The node's systemd, which keeps what it was told."""
    cluster.flash("--stop")
    script = f"#!{sys.executable}\n{Path(fake_systemd.__file__).read_text(encoding='utf-8')}"
    programs = ("systemctl", "journalctl", "loginctl")
    for name in programs:
        cluster.node.program(name, script)
    yield cluster.node.home / "systemd" / "calls"
    cluster.flash("--stop")
    for name in programs:
        (cluster.node.programs / name).unlink()


def test_a_unit_where_there_is_systemd(cluster: Cluster, systemd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = cluster.token.read_bytes().strip()
    output(capsys)
    assert cluster.flash("--node", "0") == 0
    words = output(capsys)
    assert "started" in words
    assert "no systemd" not in words
    assert cluster.answers(0, token)
    unit = f"disco-node@{cluster.ports[0]}.service"
    calls = systemd.read_text(encoding="utf-8")
    for expected in ("daemon-reload", f"enable -q {unit}", f"restart {unit}"):
        assert f"systemctl --user {expected}\n" in calls
    assert "loginctl enable-linger\n" in calls

    assert cluster.flash("--node", "0") == 0
    assert "runs already" in output(capsys)
    assert systemd.read_text(encoding="utf-8").count(f"restart {unit}") == 1

    assert cluster.flash("--node", "0", "--stop") == 0
    assert f"systemctl --user disable --now {unit}\n" in systemd.read_text(encoding="utf-8")
    assert not cluster.answers(0, token)


def test_what_the_journal_says_of_an_agent_that_does_not_start(
    cluster: Cluster, systemd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = cluster.file.with_name("short.toml")
    short.write_text(cluster.file.read_text(encoding="utf-8").replace('"linux"', '"linux"\ntls_ca = "ca.pem"'))
    tls = cluster.node.home / ".config/disco-edge/tls"
    tls.mkdir(parents=True)
    broken = replace(cluster, file=short)
    assert broken.flash("--node", "0") == 1
    assert "node 0: pi: ~/.config/disco-edge/tls/node.pem does not exist there" in output(capsys)
    for name in ("node.pem", "node.key", "ca.pem"):
        (tls / name).write_text("no certificate")
    try:
        assert broken.flash("--node", "0") == 1
    finally:
        shutil.rmtree(tls)
    assert "disco-node does not start there: disco-node: certificate" in output(capsys)


def test_the_unit_is_one(cluster: Cluster, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here: apt-get install systemd")
    unit = tmp_path / "disco-node@7450.service"
    unit.write_bytes((Path(agents.__file__).parent / "disco-node@.service").read_bytes())
    variables = {"HOME": str(cluster.node.home), "XDG_RUNTIME_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = ["systemd-analyze", "--user", "verify", str(unit)]
    assert cluster.flash() == 0  # verify wants its program to exist
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    unit.write_text(unit.read_text(encoding="utf-8").replace("ExecStart=", "ExecStrat="), encoding="utf-8")
    assert subprocess.run(command, env=variables, capture_output=True, timeout=60).returncode != 0


# ---- what goes wrong


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("UserKnownHostsFile", "UserKnownHostsFile none #"), "its host key is not known here or has changed"),
        (("IdentityFile", "IdentityFile {0}/host_key\n#"), "the login is refused, and passwords are not asked for"),
        (("Port", "Port {1}\n#"), "no ssh server answers there"),
        (("HostName", "HostName nowhere.invalid\n#"), "the name is unknown"),
    ],
)
def test_a_node_that_is_not_reached(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], message: str
) -> None:
    config = tmp_path / "ssh_config"
    key, value = change
    lines = cluster.node.config.read_text(encoding="utf-8").splitlines()
    broken = [
        f"{value.format(cluster.node.folder, free_port())} {line}" if line.startswith(f"{key} ") else line
        for line in lines
    ]
    config.write_text("\n".join(broken) + "\n", encoding="utf-8")
    assert cluster.flash("--stop", config=config) == 1
    assert f"disco-flash: node 0: pi: {message}" in output(capsys)


def test_a_node_without_python(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster.flash("--python", "python3.99") == 1
    assert "there is no python3.99 there: sudo apt install python3 python3-venv" in output(capsys)
    assert cluster.flash("--python", "true") == 1
    assert "true there does not do what it is told" in output(capsys)


def test_a_node_that_hangs(cluster: Cluster) -> None:
    cluster.node.program("hangs", "#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(DiscoError, match=r"pi: ssh was not done after 1 s"):
        Remote("pi", cluster.node.config, "hangs").ask({"action": "look"}, timeout_s=1)


def test_a_node_without_ssh_here(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DiscoError, match="ssh is not installed, it is needed to reach Linux nodes"):
        Remote("pi", cluster.node.config).ask({"action": "look"})


def test_a_node_without_venv(cluster: Cluster, tmp_path: Path, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "The virtual environment was not created successfully because ensurepip is not available."
    (tmp_path / "venv.py").write_text(f"import sys\nsys.exit({said!r})\n", encoding="utf-8")
    cluster.node.program("python-bare", f'#!/bin/sh\nPYTHONPATH={tmp_path} exec python3 "$@"\n')
    assert cluster.flash("--python", "python-bare", "--wheel", str(other_wheel(wheel, tmp_path))) == 1
    assert "python3-venv is not installed there: sudo apt install python3-venv" in output(capsys)


def test_a_pip_that_fails_leaves_what_was_there(
    cluster: Cluster, wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.flash() == 0
    pid = cluster.pid(0)
    broken = tmp_path / wheel.name
    broken.write_bytes(b"no archive")
    output(capsys)
    assert cluster.flash("--wheel", str(broken)) == 1
    assert "pip cannot install disco-edge (does this machine reach its package index?): ERROR:" in output(capsys)
    assert cluster.pid(0) == pid
    assert cluster.flash() == 0
    assert "node 0 (pi): up to date, runs already" in output(capsys)


def test_a_port_that_another_program_holds(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.flash("--stop")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", cluster.ports[0]))
        other.listen()
        output(capsys)
        assert cluster.flash() == 1
    assert f"port {cluster.ports[0]} of 127.0.0.1 cannot be had there (Address already in use)" in output(capsys)


def test_an_agent_behind_a_firewall(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Played by an address where nobody listens."""
    node = load_cluster(cluster.file)[0]
    closed = parse_endpoint(f"127.0.0.1:{free_port()}")
    monkeypatch.setattr(agents, "connect_to", lambda _: connect_to(closed))
    with pytest.raises(DiscoError, match=r"its agent runs, but .* cannot be reached from here .*firewall"):
        start_agents([node], Access(cluster.node.config), lambda _: None)


def other_wheel(wheel: Path, folder: Path) -> Path:
    """One with another hash."""
    copy = folder / wheel.name
    copy.write_bytes(wheel.read_bytes() + b"\0")
    return copy
