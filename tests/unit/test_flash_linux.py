"""What disco-flash does for Linux nodes before and beside ssh: the wheel, the cluster file, the checks on a node."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest

from disco_host import cli_flash
from disco_host.cluster import load_cluster
from disco_host.deploy import on_node
from disco_host.deploy.agents import Access, AgentStatus, start_agents
from disco_host.deploy.wheel import PACKAGES, build_wheel
from disco_host.flash import pick_nodes
from disco_targets.errors import DiscoError
from disco_targets.toml import read_toml
from helpers.tiny_bundle import export_tiny


def write(folder: Path, *tables: str) -> Path:
    file = folder / "cluster.toml"
    file.write_text("".join(f'[[node]]\nboard = "linux"\n{table}\n' for table in tables), encoding="utf-8")
    return file


def test_the_wheel_is_what_is_installed(repository: Path, tmp_path: Path) -> None:
    pyproject = read_toml(repository / "pyproject.toml", "pyproject.toml")
    folders = pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(Path(folder).name for folder in folders) == sorted(PACKAGES)
    wheel = build_wheel(tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for folder in folders:
            root = repository / folder
            for path in root.rglob("*"):
                if path.is_file() and "__pycache__" not in path.parts:
                    assert archive.read(f"{root.name}/{path.relative_to(root).as_posix()}") == path.read_bytes()
    assert not [name for name in names if "__pycache__" in name]
    again = tmp_path / "again"
    again.mkdir()
    assert build_wheel(again).read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize(
    "ssh", ["-oProxyCommand=true", "pi@", "pi@host;id", "pi@host:22", "a b", "ssh://pi@host", "pi@-x"]
)
def test_an_odd_destination_is_refused(tmp_path: Path, ssh: str) -> None:
    file = write(tmp_path, f'port = "disco://192.0.2.1:7450"\nssh = "{ssh}"')
    with pytest.raises(DiscoError, match=r"node 0: ssh is .*, write USER@HOST"):
        load_cluster(file)


@pytest.mark.parametrize("ssh", ["pi", "pi@raspberrypi.local", "pi_0@192.0.2.1"])
def test_usual_destinations(tmp_path: Path, ssh: str) -> None:
    assert load_cluster(write(tmp_path, f'port = "disco://192.0.2.1:7450"\nssh = "{ssh}"'))[0].ssh == ssh


def test_clusters_that_cannot_be_flashed(tmp_path: Path) -> None:
    bundle = export_tiny(tmp_path / "bundle", target="linux").path
    one = load_cluster(write(tmp_path, 'port = "disco://192.0.2.1:7450"'))
    with pytest.raises(DiscoError, match="the cluster file has 1 nodes, the bundle 2"):
        pick_nodes(bundle, one)
    two = load_cluster(write(tmp_path, 'port = "disco://192.0.2.1:7450"', 'port = "disco://192.0.2.2:7450"'))
    with pytest.raises(DiscoError, match=r'of none of its Linux nodes how to get there: write ssh = "USER@HOST"'):
        pick_nodes(bundle, two)
    node = load_cluster(write(tmp_path, 'port = "disco://192.0.2.1:7450"\nssh = "pi"'))
    with pytest.raises(DiscoError, match=r'node 0: write token_file = "FILE" in its table'):
        start_agents(node, Access(), lambda _: None)


def test_a_mixed_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Firmware for the boards, agents for the Linux nodes; --stop builds nothing."""
    bundle = export_tiny(tmp_path / "bundle").path
    board = '[[node]]\nboard = "posix"\nport = "unix:line"\n'
    file = write(tmp_path, 'port = "disco://192.0.2.1:7450"\nssh = "pi"')
    file.write_text(file.read_text(encoding="utf-8") + board, encoding="utf-8")
    boards, linux = pick_nodes(bundle, load_cluster(file))
    assert (boards, [node.node for node in linux]) == ((1,), [0])
    assert pick_nodes(bundle, load_cluster(file), 1) == ((1,), ())
    monkeypatch.setattr(cli_flash, "flash_boards", lambda *_: pytest.fail("builds"))
    monkeypatch.setattr(cli_flash, "stop_agents", lambda nodes, _: (AgentStatus(0, nodes[0].ssh, "stopped"),))
    assert cli_flash.main([str(bundle), "--boards", str(file), "--stop"]) == 0
    assert capsys.readouterr().out == "node 0 (pi): stopped\n"
    for option in (["--stop"], ["--python", "python3.11"], ["--wheel", "x.whl"], ["--ssh-config", "x"]):
        assert cli_flash.main([str(bundle), "--boards", str(file), "--node", "1", *option]) == 2
        assert "ssh reaches none of those chosen" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "option", [["--stop"], ["--python", "python3.11"], ["--wheel", "x.whl"], ["--ssh-config", "x"]]
)
def test_options_of_linux_nodes_need_a_cluster(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli_flash.main(["bundle", *option]) == 2
    assert "are for the Linux nodes of --boards FILE.toml" in " ".join(capsys.readouterr().err.split())


def test_nothing_is_installed_to_stop_an_agent(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli_flash.main(["bundle", "--boards", "cluster.toml", "--stop", "--wheel", "x.whl"]) == 2
    assert "--stop installs nothing: leave --wheel out" in capsys.readouterr().err


def test_no_wheel(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n", encoding="ascii")
    token.chmod(0o600)
    nodes = load_cluster(write(tmp_path, 'port = "disco://192.0.2.1:7450"\nssh = "pi"\ntoken_file = "token"'))
    with pytest.raises(DiscoError, match=r"is no wheel: name a disco_edge-\*\.whl file"):
        start_agents(nodes, Access(wheel=token), lambda _: None)


@pytest.mark.parametrize("version", [(3, 9, 2), (3, 13, 0)])
def test_a_python_without_our_packages_is_refused(monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...]) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(on_node.Refused, match=r"disco-edge needs 3\.10 or newer, before 3\.13.*--python"):
        on_node.look({"port": 1})


def test_a_32_bit_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "maxsize", 2**31 - 1)
    with pytest.raises(on_node.Refused, match="install a 64-bit system there"):
        on_node.look({"port": 1})


def test_what_a_broken_connection_left_behind_goes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(on_node, "SHARE", tmp_path)
    first, second = (Path(on_node.stage({})["folder"]) for _ in range(2))
    (first / "token").touch()
    os.utime(first, (0, 0))
    third = Path(on_node.stage({})["folder"])
    assert sorted(tmp_path.iterdir()) == sorted([second, third])
    assert third.stat().st_mode & 0o777 == 0o700
