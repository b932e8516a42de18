"""The commands of docs/raspberry-pi.md as they stand there, on two ssh accounts of this machine's that play the Pis."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from helpers.ssh_server import free_port, packages_without_ours, ssh_node
from helpers.tiny_bundle import export_tiny

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COMMANDS = {
    "disco-flash": "disco_host.cli_flash",
    "disco-run": "disco_host.cli_run",
    "disco-latency": "disco_planning.cli",
}
BLOCKS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder and an environment in which the page's names mean our accounts."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here: apt-get install openssl")
    folder = tmp_path_factory.mktemp("page")
    programs = folder / "programs"
    programs.mkdir()
    packages = packages_without_ours(folder / "packages")
    with ExitStack() as stack:
        nodes = [stack.enter_context(ssh_node(folder / name, name, packages)) for name in ("pi0", "pi1")]
        config = folder / "ssh_config"
        config.write_text("".join(node.config.read_text(encoding="utf-8") for node in nodes), encoding="utf-8")
        scripts = {name: f'{shutil.which(name)} -F {config} "$@"' for name in ("ssh", "scp")}
        scripts |= {name: f'{sys.executable} -m {module} "$@"' for name, module in COMMANDS.items()}
        for name, script in scripts.items():
            (programs / name).write_text(f"#!/bin/sh\nexec {script}\n", encoding="utf-8")
            (programs / name).chmod(0o755)
        export_tiny(folder / "bundle", target="linux")
        paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path)
        variables = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": paths}
        yield folder, variables
        subprocess.run(["disco-flash", "bundle", "--boards", "cluster.toml", "--stop"], cwd=folder, env=variables)


def test_the_page(repository: Path, shell: tuple[Path, dict[str, str]]) -> None:
    folder, variables = shell
    page = (repository / "docs" / "raspberry-pi.md").read_text(encoding="utf-8")
    for number in (0, 1):
        page = page.replace(f"192.168.1.1{number}:7450", f"127.0.0.1:{free_port()}")
        page = page.replace(f"192.168.1.1{number}", "127.0.0.1").replace(f"pi@pi{number}.local", f"pi{number}")
    blocks = BLOCKS.findall(page)
    assert len(blocks) >= 7
    said = ""
    for block in blocks:
        done = subprocess.run(["bash", "-ec", block], cwd=folder, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        said += done.stdout
    assert said.count("Bit-exact") == 4
    assert said.count("installed, started") == 2
    assert (folder / "plan.json").is_file()
