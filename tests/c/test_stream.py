"""Channels between messages and activation buffers."""

from __future__ import annotations

import subprocess
from pathlib import Path

from helpers.c_build import RUNTIME, SANITIZERS, compile_c


def test_any_part_of_any_stream(tmp_path: Path) -> None:
    sources = [Path(__file__).with_name("stream_check.c"), RUNTIME / "src" / "stream.c"]
    program = compile_c("gcc", sources, tmp_path / "check", [*SANITIZERS, "-O1", f"-I{RUNTIME / 'src'}"])
    result = subprocess.run([str(program)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
