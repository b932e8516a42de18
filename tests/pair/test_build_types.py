"""A node's project builds with CMake's other build types too."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from disco_firmware.project import TOOLCHAIN_FILE
from helpers.c_build import tool

from .conftest import BundleMaker


@pytest.mark.parametrize(("target", "type_"), [("qemu-mps2-an386", "Unoptimised"), ("qemu-mps3-an547", "Debug")])
def test_for_a_debugger(make_bundle: BundleMaker, tmp_path: Path, target: str, type_: str) -> None:
    """CMake has no flags for a type that it does not know: -O0."""
    bundle = make_bundle(1, target)
    toolchain = f"-DCMAKE_TOOLCHAIN_FILE={bundle / 'firmware' / TOOLCHAIN_FILE}"
    configure = [tool("cmake"), "-S", str(bundle / "node0"), "-B", str(tmp_path), f"-DCMAKE_BUILD_TYPE={type_}"]
    for command in ([*configure, toolchain], ["cmake", "--build", str(tmp_path), "--parallel", "2"]):
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        assert result.returncode == 0, result.stdout
    assert (tmp_path / "node0.elf").is_file()
