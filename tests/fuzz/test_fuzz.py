"""Fuzzing of what reads bytes from others, for about a minute in all; `make fuzz FUZZ_SECONDS=600` takes longer."""

from __future__ import annotations

import importlib.util
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.node_messages import abuse
from fuzz.targets import TARGETS
from helpers.rig_build import build_library, build_mesh
from helpers.rig_network import Network

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
RUNS = {"manifest": 1500, "watch": 2500, "control_json": 5000, "framing": 5000}
"""Of a fuzzer, where each takes long; so many that a target takes some seconds."""
SESSIONS = 600


def fuzz(folder: Path, harness: Path, target: str, runs: int) -> subprocess.CompletedProcess[str]:
    """A fuzzer that does the same at every call; what it finds goes to `folder`."""
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("no atheris here (it has wheels for x86-64): pip install 'disco-edge[dev]'")
    found = folder / "found"
    found.mkdir()
    options = ["-seed=1", f"-runs={runs}", "-timeout=20", f"-artifact_prefix={folder}/"]
    command = [sys.executable, str(harness), target, *options, str(found)]
    corpus = CORPUS / target
    return subprocess.run(
        [*command, *([str(corpus)] if corpus.exists() else [])], capture_output=True, text=True, timeout=200
    )


def test_every_target_has_a_corpus() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_and_random_bytes(target: str) -> None:
    for file in sorted((CORPUS / target).iterdir()):
        TARGETS[target](file.read_bytes())
    draw = random.Random(target)
    for size in range(200):
        TARGETS[target](draw.randbytes(size))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_fuzzer_finds_nothing(target: str, tmp_path: Path) -> None:
    done = fuzz(tmp_path, HERE / "harness.py", target, RUNS.get(target, 10_000))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_a_fuzzer_finds_what_is_there(tmp_path: Path) -> None:
    """Two bytes that are compared one after the other: chance alone would take long."""
    harness = tmp_path / "harness.py"
    shutil.copy(HERE / "harness.py", harness)
    fault = (
        "def f(data):\n    if data[:1] == b'd':\n        if data[1:2] == b'i':\n            assert data[2:3] != b's'\n"
    )
    (tmp_path / "disco_firmware_part.py").write_text(fault)
    (tmp_path / "targets.py").write_text("from disco_firmware_part import f\nTARGETS = {'broken': f}\n")
    harness.write_text(harness.read_text().replace('"disco_firmware"', '"disco_firmware_part"'))
    done = fuzz(tmp_path, harness, "broken", 200_000)
    assert "AssertionError" in done.stdout + done.stderr
    (found,) = tmp_path.glob("crash-*")
    assert found.read_bytes().startswith(b"dis")


@pytest.mark.slow
def test_a_node_lives_on_whatever_it_is_sent(tmp_path_factory: pytest.TempPathFactory) -> None:
    library = build_library(tmp_path_factory.getbasetemp() / "runtime")
    program = build_mesh(Network(2), tmp_path_factory.mktemp("fuzz"), library)[0]
    assert abuse(program, 1, SESSIONS) > SESSIONS
