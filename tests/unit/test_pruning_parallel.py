"""Data-parallel training in two processes keeps one set of masks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch (disco-edge[prune])")
pytest.importorskip("lightning", reason="needs Lightning (disco-edge[lightning])")

SCRIPT = Path(__file__).parents[1] / "helpers" / "parallel_training.py"


def start(*arguments: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )


def finish(*processes: subprocess.Popen[str]) -> None:
    try:
        for process in processes:
            output, _ = process.communicate(timeout=240)
            assert process.returncode == 0, output
    finally:
        for process in processes:
            process.kill()


def check(folder: Path, checkpoints: set[str]) -> None:
    first, second = (torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in (0, 1))
    assert first.keys() == second.keys()
    masks = [key for key in first if key.endswith(".mask")]
    assert len(masks) == 2
    for key, value in first.items():
        assert torch.equal(value, second[key]), key
    assert sum(int((~first[key]).sum()) for key in masks) > 0
    assert {path.name for path in (folder / "rounds").iterdir()} == checkpoints


@pytest.mark.slow
def test_a_loop_of_ones_own(tmp_path):
    finish(*[start("loop", tmp_path, rank) for rank in (0, 1)])
    check(tmp_path, {"disco_50.0.pt"})


@pytest.mark.slow
def test_lightning(tmp_path):
    finish(start("lightning", tmp_path))
    check(tmp_path, {"disco_0.0.ckpt", "disco_50.0.ckpt", "disco_75.0.ckpt"})
