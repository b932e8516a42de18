"""Winograd convolutions equal TFLite's reference kernels bit for bit, and touch nothing else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from disco_firmware.kernel_params import Conv2D, Window
from disco_firmware.quantisation import ActivationRange
from disco_firmware.variants.base import Variant
from disco_firmware.variants.conv2d_winograd import WinogradF2, WinogradF4, WinogradF4Unpacking, accumulator_range
from helpers import c_build
from helpers.variant_calls import VariantCase, program
from helpers.variant_winograd import convolution, extreme_cases, random_case

CASES = int(os.environ.get("DISCO_VARIANT_CASES", "120"))
"""Per variant and build; the environment variable asks for more."""
CASES_PER_PROGRAM = 200
VARIANTS = (WinogradF4(), WinogradF4Unpacking(), WinogradF2())
"""F2 computes whatever F4 computes."""
HOST_BUILDS = {"gcc sanitized": ("gcc", ("-Og", *c_build.SANITIZERS)), "clang": ("clang", ("-O2",))}
EMULATOR = (
    *("qemu-system-arm", "-M", "mps2-an386", "-display", "none", "-monitor", "none", "-serial", "none"),
    *("-icount", "shift=6", "-semihosting-config", "enable=on,target=native", "-kernel"),
)
SEMIHOSTED = Path(__file__).parent / "semihosted_start.c"
INPUT_TRANSFORM = np.array(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ]
)
# Of ResNet-8: height and width, channels in and out.
RESNET8 = ((32, 16, 16), (16, 32, 32), (8, 64, 64))


@pytest.fixture(scope="session")
def cases() -> list[VariantCase]:
    """Those that fit, from one seed each; and the ends of all ranges."""
    drawn = [random_case(np.random.default_rng([4, number])) for number in range(CASES)]
    drawn += extreme_cases(INPUT_TRANSFORM)
    fitting = [case for case in drawn if VARIANTS[0].fits(case.layer)]
    assert len(fitting) > 0.8 * len(drawn)
    return fitting


def _named(variant: Variant) -> str:
    return type(variant).__name__


def _build(source: str, compiler: str, flags: Sequence[str], directory: Path, *others: Path) -> Path:
    path = directory / "cases.c"
    path.write_text(source)
    flags = (*flags, f"-I{c_build.RUNTIME / 'src'}")
    return c_build.compile_c(compiler, (path, *others), directory / "cases", flags)


def _run(command: Sequence[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def _emulate(source: str, directory: Path) -> str:
    c_build.tool("qemu-system-arm")
    script = ("--specs=rdimon.specs", "-T", str(SEMIHOSTED.with_name("semihosted.ld")))
    flags = ("-O3", "-mcpu=cortex-m4", "-mthumb", *script)
    return _run([*EMULATOR, str(_build(source, "arm-none-eabi-gcc", flags, directory, SEMIHOSTED))])


@pytest.mark.parametrize("build", HOST_BUILDS)
@pytest.mark.parametrize("variant", VARIANTS, ids=_named)
def test_equals_the_reference(variant: Variant, build: str, cases: list[VariantCase], tmp_path: Path) -> None:
    for first in range(0, len(cases), CASES_PER_PROGRAM):
        source = program(variant, cases[first : first + CASES_PER_PROGRAM])
        compiler, flags = HOST_BUILDS[build]
        _run([str(_build(source, compiler, flags, tmp_path))])


@pytest.mark.parametrize("variant", VARIANTS, ids=_named)
def test_equals_the_reference_with_the_dsp_extension(
    variant: Variant, cases: list[VariantCase], tmp_path: Path
) -> None:
    for first in range(0, len(cases), CASES_PER_PROGRAM):
        _emulate(program(variant, cases[first : first + CASES_PER_PROGRAM]), tmp_path)


@pytest.mark.parametrize("variant", VARIANTS, ids=_named)
def test_equals_the_reference_where_the_compiler_knows_the_layer(
    variant: Variant, cases: list[VariantCase], tmp_path: Path
) -> None:
    _emulate(program(variant, cases[:12], specialised=True), tmp_path)


@pytest.mark.parametrize("variant", VARIANTS, ids=_named)
def test_predicts_its_instructions(variant: Variant, tmp_path: Path) -> None:
    chosen = [_square(*shape) for shape in (*RESNET8, (32, 3, 16), (12, 18, 9))]
    lines = _emulate(program(variant, chosen, specialised=True, count=True), tmp_path).splitlines()
    counts = [int(line.split()[2]) for line in lines]
    predictions = [variant.instructions(case.layer) for case in chosen]
    assert predictions == pytest.approx(counts, rel=0.05)


def test_a_wrong_weight_is_seen(cases: list[VariantCase], tmp_path: Path) -> None:
    case = next(case for case in cases if np.unique(case.expected).size > 50)
    assert isinstance(case.layer.params, Conv2D)
    weights = case.layer.params.weights.copy()
    weights[0, 1, 1, 0] ^= 64
    params = replace(case.layer.params, weights=weights)
    wrong = replace(case, layer=replace(case.layer, params=params))
    compiler, flags = HOST_BUILDS["gcc sanitized"]
    path = _build(program(VARIANTS[0], [wrong]), compiler, flags, tmp_path)
    assert "case 0: byte" in subprocess.run([str(path)], capture_output=True, text=True, timeout=60).stdout


@pytest.mark.parametrize(
    "window",
    [Window(3, 3, stride_w=2), Window(3, 3, stride_h=2), Window(3, 3, dilation_h=2), Window(3, 1), Window(5, 3)],
)
def test_other_windows_do_not_fit(window: Window) -> None:
    layer = _square(8, 4, 4).layer
    assert isinstance(layer.params, Conv2D)
    weights = np.zeros((4, window.kernel_h, window.kernel_w, 4), np.int8)
    changed = replace(layer, params=replace(layer.params, window=window, weights=weights))
    assert not any(variant.fits(changed) for variant in VARIANTS)


@pytest.mark.parametrize("variant", VARIANTS, ids=_named)
def test_accumulators_must_fit(variant: Variant) -> None:
    limit = 1 << (29 if isinstance(variant, WinogradF2) else 25)
    layer = _square(4, 4, 2).layer
    assert isinstance(layer.params, Conv2D)
    # One input channel of weight 1 and zero point 0 reaches -9 * 128 to 9 * 127.
    weights = np.zeros_like(layer.params.weights)
    weights[..., 0] = 1
    for bias, fits in ((limit - 1 - 9 * 127, True), (limit - 9 * 127, False), (9 * 128 - limit, False)):
        params = replace(layer.params, weights=weights, bias=np.array([0, bias], np.int32), input_zero_point=0)
        assert accumulator_range(params) == (min(bias, 0) - 9 * 128, max(bias, 0) + 9 * 127)
        assert variant.fits(replace(layer, params=params)) == fits


def _square(size: int, channels: int, filters: int) -> VariantCase:
    """With the usual padding, right shifts and no halo; what a ReLU leaves is all of int8."""
    for seed in range(200):
        rng = np.random.default_rng([size, seed])
        data = rng.integers(-128, 128, (1, size, size, channels)).astype(np.int8)
        weights = rng.integers(-127, 128, (filters, 3, 3, channels)).astype(np.int8)
        case = convolution(rng, data, weights, (1, 1, 1, 1))
        layer = case.layer
        assert isinstance(layer.params, Conv2D)
        requantise = layer.params.requantise
        plain = layer.inputs[0].stride == channels and layer.output.stride == filters
        whole = requantise.activation == ActivationRange(-128, 127)
        if plain and whole and VARIANTS[0].fits(layer) and max(requantise.shifts) < 0:
            return case
    raise AssertionError("no seed gives such a layer")
