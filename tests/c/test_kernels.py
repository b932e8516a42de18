"""The C kernels equal TFLite's reference kernels bit for bit and touch nothing else."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from helpers import c_build
from helpers.kernel_cases import GENERATORS, random_cases
from helpers.kernel_driver import DRIVER_SOURCES, Case, assert_equal, pack, run_driver

CASES_PER_KERNEL = 300
HOST_BUILDS = {
    "gcc -O2": ("gcc", ("-O2",)),
    "gcc sanitized": ("gcc", ("-O1", *c_build.SANITIZERS)),
    "clang -O3": ("clang", ("-O3",)),
}
# Code for the M0+ runs on an M4 too.
EMULATED_BUILDS = {
    "emulated m0plus": ("-Os", "-mcpu=cortex-m0plus", "-mthumb"),
    "emulated m4": ("-O2", "-mcpu=cortex-m4", "-mthumb"),
}
EMULATOR = (
    *("qemu-system-arm", "-M", "mps2-an386", "-display", "none", "-monitor", "none"),
    *("-serial", "none", "-semihosting-config", "enable=on,target=native", "-kernel"),
)
SEMIHOSTED = Path(__file__).parent / "semihosted_start.c"


@pytest.fixture(scope="session")
def cases_of() -> dict[str, list[Case]]:
    """Filled by the tests, so that every build runs the same cases."""
    return {}


@pytest.fixture(scope="session", params=[*HOST_BUILDS, *EMULATED_BUILDS])
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """The command that runs the test program of one build."""
    output = tmp_path_factory.mktemp("driver") / "kernel_driver"
    if request.param in HOST_BUILDS:
        compiler, flags = HOST_BUILDS[request.param]
        return [str(c_build.compile_c(compiler, DRIVER_SOURCES, output, flags))]
    script = ("--specs=rdimon.specs", "-T", str(SEMIHOSTED.with_name("semihosted.ld")))
    c_build.tool("qemu-system-arm")
    c_build.compile_c(
        "arm-none-eabi-gcc",
        (*DRIVER_SOURCES, SEMIHOSTED),
        output,
        (*EMULATED_BUILDS[request.param], *script),
    )
    return [*EMULATOR, str(output)]


@pytest.mark.parametrize("name", GENERATORS)
def test_equals_the_reference(
    driver: Sequence[str], name: str, cases_of: dict[str, list[Case]], tmp_path: Path
) -> None:
    if name not in cases_of:
        cases_of[name] = random_cases(name, CASES_PER_KERNEL, seed=len(name))
    cases = cases_of[name]
    assert_equal(cases, run_driver(driver, pack(cases), tmp_path))
    # A test of constants would prove little.
    assert sum(np.unique(case.expected).size > 1 for case in cases) > CASES_PER_KERNEL / 3


def test_a_wrong_byte_and_a_stray_one_are_seen() -> None:
    cases = random_cases("conv2d", 20, seed=1)
    wanted = b"".join(case.wanted().tobytes() for case in cases)
    assert_equal(cases, wanted)
    halo = next(case for case in cases if case.output.pixels.shape[2] > case.output.channels)
    before = cases[: cases.index(halo)]
    start = sum(case.output.pixels.size for case in before)
    for offset in (start, start + halo.output.channels):
        broken = bytearray(wanted)
        broken[offset] ^= 1
        with pytest.raises(AssertionError, match=f"case {len(before)} "):
            assert_equal(cases, bytes(broken))


@pytest.mark.parametrize("core", c_build.CORTEX_M)
@pytest.mark.parametrize("optimisation", ["-Os", "-O3"])
def test_compiles_for_cortex_m(core: str, optimisation: str, tmp_path: Path) -> None:
    flags = ("-c", optimisation, *c_build.CORTEX_M[core])
    for source in sorted((c_build.RUNTIME / "src").glob("kernel_*.c")):
        assert c_build.compile_c("arm-none-eabi-gcc", [source], tmp_path / "k.o", flags).is_file()


def test_compiles_under_both_compilers_without_optimisation(tmp_path: Path) -> None:
    for compiler in ("gcc", "clang"):
        for source in sorted((c_build.RUNTIME / "src").glob("kernel_*.c")):
            output = tmp_path / f"{compiler}.o"
            assert c_build.compile_c(compiler, [source], output, ("-c", "-O0")).is_file()


def test_a_product_of_halves_is_the_wide_one(tmp_path: Path) -> None:
    source = Path(__file__).with_name("fixed_point_check.c")
    flags = ("-O1", *c_build.SANITIZERS, f"-I{c_build.RUNTIME / 'src'}")
    program = c_build.compile_c("gcc", [source], tmp_path / "check", flags)
    result = subprocess.run([str(program)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
