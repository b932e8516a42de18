"""docs/train-your-own.md as a reader would do it: its Python in one session, its commands in a shell."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch (disco-edge[prune])")
pytest.importorskip("sklearn", reason="needs scikit-learn (disco-edge[prune])")
pytest.importorskip("onnx2tf", reason="needs onnx2tf (disco-edge[convert])")
for tool in ("qemu-system-arm", "arm-none-eabi-gcc", "cmake"):
    if shutil.which(tool) is None:
        pytest.skip(f"needs {tool}", allow_module_level=True)

PAGE = Path(__file__).parents[2] / "docs" / "train-your-own.md"
MODULES = {"disco-export": "disco_converter.cli", "disco-run": "disco_host.cli_run"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)}
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=280
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
def test_the_page_goes_from_a_network_to_two_boards(tmp_path):
    (tmp_path / "page.py").write_text("\n".join(blocks("python")))
    printed = run(tmp_path, sys.executable, "page.py")
    dense, half, pruned = (float(found) for found in re.findall(r"^accuracy ([\d.]+)%$", printed, re.MULTILINE))
    assert min(dense, half, pruned) > 90  # ten classes: 10 % would be chance
    assert re.search(r"^features\.3 +12 +11 +91\.7% ", printed, re.MULTILINE)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"disco_50.0.pt", "disco_90.0.pt"}
    for line in "".join(blocks("sh")).splitlines():
        name, *arguments = line.split()
        run(
            tmp_path,
            sys.executable,
            "-c",
            f"import sys; from {MODULES[name]} import main; sys.exit(main())",
            *arguments,
        )
    result = json.loads((tmp_path / "run.json").read_text())
    assert result["bit_exact"] is True
    assert len(np.load(tmp_path / "test_images.npy")) == 10
