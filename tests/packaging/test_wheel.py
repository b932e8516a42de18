"""The built wheel in a clean environment: every module, every data file, every command."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.tiny_bundle import export_tiny

pytestmark = pytest.mark.slow

FOLDERS = {
    "disco_targets": "targets",
    "disco_planning": "planning",
    "disco_pruning": "pruning",
    "disco_firmware": "firmware_templates",
    "disco_converter": "converter",
    "disco_host": "host",
}
COMMANDS = ["disco-export", "disco-flash", "disco-latency", "disco-node", "disco-run"]
# What only an extra installs; all else must import after `pip install disco-edge`.
OF_EXTRAS = {
    "disco_converter": {"flatbuffers", "google", "onnx", "onnx2tf", "tensorflow", "tflite"},
    "disco_pruning": {"onnx", "onnxscript", "sklearn", "torch"},
}

# Run inside the clean environment: prints {package: {file: SHA-256}} from importlib.resources.
LIST_RESOURCES = """
import hashlib, json, sys
from importlib.resources import files

def walk(node, prefix=""):
    for child in node.iterdir():
        if child.is_dir():
            if child.name != "__pycache__":
                yield from walk(child, prefix + child.name + "/")
        else:
            yield prefix + child.name, hashlib.sha256(child.read_bytes()).hexdigest()

print(json.dumps({package: dict(walk(files(package))) for package in sys.argv[1:]}))
"""

# Run inside the clean environment: prints {module: name of the package that is missing, or ""}.
IMPORT_ALL = """
import importlib, importlib.util, json, pkgutil, sys

missing = {}
for package in sys.argv[1:]:
    names = [package]
    path = importlib.util.find_spec(package).submodule_search_locations
    names += [m.name for m in pkgutil.walk_packages(path, package + ".", onerror=lambda name: None)]
    for name in names:
        if name.endswith("__main__"):
            continue
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing[name] = error.name
        else:
            missing[name] = ""
print(json.dumps(missing))
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment that holds the wheel and its base dependencies alone."""

    folder: Path

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs, away from the checkout and the caller's settings."""
        clean = {name: v for name, v in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(
            [str(self.folder / "bin" / command[0]), *command[1:]],
            cwd=self.folder,
            env=clean | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    def json(self, script: str, *arguments: str) -> dict[str, dict[str, str]]:
        """Run a script that prints JSON as its last line."""
        done = self.run("python", "-c", script, *arguments)
        assert done.returncode == 0, done.stderr
        result: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
        return result


def run_checked(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution, as a user of the index gets it."""
    folder = tmp_path_factory.mktemp("dist")
    run_checked(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ".", cwd=repository)
    (path,) = folder.glob("disco_edge-*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("clean") / "venv"
    run_checked(sys.executable, "-m", "venv", folder, cwd=repository)
    constraints = repository / "requirements" / "constraints.txt"
    run_checked(
        folder / "bin" / "python",
        "-m",
        "pip",
        "install",
        "-q",
        "-c",
        constraints,
        wheel,
        cwd=folder,
    )
    return Environment(folder)


def source_files(folder: Path) -> dict[str, str]:
    """File -> SHA-256 of all that belongs to a package in the checkout."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_every_file_of_the_packages_is_installed_and_opens(environment: Environment, repository: Path) -> None:
    # importlib.resources imports the package, and disco_pruning is PyTorch through and through.
    packages = sorted(set(FOLDERS) - {"disco_pruning"})
    installed = environment.json(LIST_RESOURCES, *packages)
    for package in packages:
        assert installed[package] == source_files(repository / FOLDERS[package] / package), package


def test_every_module_imports_with_what_its_extra_allows(environment: Environment) -> None:
    missing = environment.json(IMPORT_ALL, *FOLDERS)
    assert set(FOLDERS) <= set(missing)
    faults = {
        module: name
        for module, name in missing.items()
        if name and str(name).split(".")[0] not in OF_EXTRAS.get(module.split(".")[0], set())
    }
    assert not faults


@pytest.fixture
def traps(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH: whoever so much as tries to import a framework ends with an exit code of its own."""
    folder = tmp_path / "traps"
    folder.mkdir()
    for framework in ("tensorflow", "torch", "onnx2tf"):
        (folder / f"{framework}.py").write_text("import os\nos._exit(99)\n")
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_start_without_a_framework(environment: Environment, command: str, traps: Path) -> None:
    done = environment.run(command, "--help", PYTHONPATH=str(traps))
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    assert command in done.stdout


def test_the_framework_trap_works(environment: Environment, traps: Path) -> None:
    script = "try:\n    import torch\nexcept ImportError:\n    pass"
    assert environment.run("python", "-c", script, PYTHONPATH=str(traps)).returncode == 99


def test_linux_nodes_run_without_a_framework_and_a_compiler(
    environment: Environment, traps: Path, tmp_path: Path
) -> None:
    """disco-run and the agents that it starts: what is installed on a node runs its stages."""
    bundle = export_tiny(tmp_path / "bundle", target="linux").path
    (tmp_path / "no-programs").mkdir()
    fixed = ["disco-run", str(bundle), "--boards", "linux", "--check", "tensors", "--engine"]
    bare = {"PYTHONPATH": str(traps), "PATH": str(tmp_path / "no-programs"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = environment.run(*fixed, "tflite", **bare)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
    assert "Bit-exact: every op" in done.stdout
    done = environment.run(*fixed, "native", **bare)
    assert done.returncode == 1
    assert "is not installed" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_wheel_for_nodes_is_the_one_that_was_installed(
    environment: Environment, wheel: Path, tmp_path: Path
) -> None:
    script = "import sys; from pathlib import Path; from disco_host.deploy.wheel import build_wheel; "
    done = environment.run("python", "-c", f"{script}print(build_wheel(Path(sys.argv[1])))", str(tmp_path))
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(wheel) as original, zipfile.ZipFile(done.stdout.strip()) as built:
        same = [name for name in original.namelist() if not name.endswith(("/WHEEL", "/RECORD"))]
        assert sorted(same) == sorted(n for n in built.namelist() if not n.endswith(("/WHEEL", "/RECORD")))
        for name in same:
            assert original.read(name) == built.read(name), name


def test_the_wheel_holds_its_licence_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(FOLDERS)
