"""Compilers for tests: the flags that all C of the project must pass, and compile calls."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

RUNTIME = Path(__file__).parents[2] / "firmware_templates" / "disco_firmware" / "runtime"
RUNTIME_SOURCES = tuple(file for file in sorted((RUNTIME / "src").glob("*.c")) if file.name != "stream_link.c")
"""As for a board."""
WARNINGS = (
    "-std=c99",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wcast-qual",
    "-Wmissing-prototypes",
    "-Wshadow",
    "-Werror",
)
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
CORTEX_M = {
    "m0plus": ("-mcpu=cortex-m0plus", "-mthumb"),
    "m4": ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"),
    "m7": ("-mcpu=cortex-m7", "-mthumb", "-mfpu=fpv5-d16", "-mfloat-abi=hard"),
    "m33": ("-mcpu=cortex-m33", "-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"),
    "m55": ("-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"),
}


def tool(name: str) -> str:
    """Path of a program; skips the test when it is not installed."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def compile_c(compiler: str, sources: Sequence[Path], output: Path, flags: Sequence[str] = ()) -> Path:
    """Compiles with all warnings as errors; fails the test with what the compiler said."""
    command = [tool(compiler), *WARNINGS, *flags, f"-I{RUNTIME / 'include'}"]
    command += [str(source) for source in sources] + ["-o", str(output)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if result.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{result.stderr}")
    return output


def code_sizes(program: Path) -> dict[str, int]:
    """Bytes of each function and array of a program or object file for a board."""
    command = [tool("arm-none-eabi-nm"), "--print-size", "--defined-only", str(program)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: int(size, 16) for _, size, _, name in (line.split() for line in lines if len(line.split()) == 4)}
