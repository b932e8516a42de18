"""Every kernel computes the same when its output lies as near to its input as the memory plan may put it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from disco_firmware import kernel_params as k
from disco_firmware.variants.base import Variant
from disco_firmware.variants.registry import candidates
from helpers import c_build
from helpers.overlap_cases import PORTABLE, OverlapCase, nearest, program, random_layer

SOURCES = c_build.RUNTIME / "src"
KERNELS = [SOURCES / f"kernel_{name}.c" for name in ("add", "conv2d", "depthwise_conv2d", "mul", "pool2d", "relu")]
KERNELS += [SOURCES / f"{name}.c" for name in ("dot_products", "requantise")]
MVE = Path(__file__).parent
MVE_FLAGS = ("-O3", "-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard", "--specs=rdimon.specs")
EMULATOR = (
    *("qemu-system-arm", "-M", "mps3-an547", "-display", "none", "-monitor", "none"),
    *("-serial", "none", "-semihosting-config", "enable=on,target=native", "-kernel"),
)


def _cases(count: int, instruction_set: str) -> list[OverlapCase]:
    rng = np.random.default_rng(count)
    cases = []
    for layer in [random_layer(rng) for _ in range(count)]:  # the same ones, however many kernels compute each
        variants: list[Variant | None] = [None, *candidates(layer, instruction_set)]
        for variant in variants:
            step = 1 if variant is None else variant.row_step(layer)
            starts = range(0, layer.output.height, step)
            cuts = sorted({0, layer.output.height, *rng.choice(starts, min(len(starts), int(rng.integers(0, 3))))})
            cases += [OverlapCase(layer, variant, before, tuple(cuts)) for before in nearest(layer, variant)]
    return cases


def _run(cases: Sequence[OverlapCase], folder: Path) -> subprocess.CompletedProcess[str]:
    source = folder / "overlap.c"
    source.write_text(program(cases, seed=1))
    flags = ("-O0", *c_build.SANITIZERS, f"-I{SOURCES}")
    built = c_build.compile_c("gcc", [source, *KERNELS], folder / "overlap", flags)
    return subprocess.run([str(built)], capture_output=True, text=True, timeout=120)


def test_every_kernel_on_the_pc(tmp_path: Path) -> None:
    cases = _cases(60, "dsp")
    names = {PORTABLE[type(case.layer.params)] if case.variant is None else case.variant.name for case in cases}
    assert len(names) >= 16, names
    result = _run(cases, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_helium_kernels_on_an_emulated_board(tmp_path: Path) -> None:
    c_build.tool("qemu-system-arm")
    cases = [case for case in _cases(40, "mve") if case.variant and case.variant.instruction_set == "mve"]
    assert len({case.variant for case in cases}) >= 5
    source = tmp_path / "overlap.c"
    source.write_text(program(cases, seed=2))
    flags = (*MVE_FLAGS, f"-I{SOURCES}", "-T", str(MVE / "variant_mve.ld"))
    built = c_build.compile_c(
        "arm-none-eabi-gcc", [source, *KERNELS, MVE / "variant_mve_start.c"], tmp_path / "overlap.elf", flags
    )
    result = subprocess.run([*EMULATOR, str(built)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_row_nearer_is_too_near(tmp_path: Path) -> None:
    """So that what is tested above is the least distance, and would be seen if it were too small."""
    cases = [
        OverlapCase(case.layer, case.variant, case.before - row, case.cuts)
        for case in _cases(60, "dsp")
        for row in [case.layer.output.width * case.layer.output.stride]
        if isinstance(case.layer.params, k.Conv2D) and row < case.before and case.layer.output.height > 4
    ]
    result = _run(cases, tmp_path)
    assert result.returncode == 1
    assert result.stdout.count("case") > len(cases) / 3, result.stdout
