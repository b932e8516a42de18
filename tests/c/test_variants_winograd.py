"""Winograd convolutions equal TFLite's reference kernels bit for bit, and touch nothing else."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from disco_firmware.kernel_params import ActivationRange, Conv2D, Window
from disco_firmware.variants.base import Variant
from disco_firmware.variants.conv2d_winograd import WinogradF2, WinogradF4, WinogradF4Unpacking
from disco_firmware.variants.conv2d_winograd_s2 import WinogradStride2
from helpers.kernel_driver import Case
from helpers.variant_boards import BOARDS, HOST_BUILDS, Call, assert_code_fits, calls_of, run_on_board, run_on_host
from helpers.variant_layers import layer_of
from helpers.variant_winograd import convolution, extreme_cases, random_case, random_stride2_case

CASES = int(os.environ.get("DISCO_VARIANT_CASES", "120"))
"""Per variant and build; the environment variable asks for more."""
VARIANTS = (WinogradF4(), WinogradF4Unpacking(), WinogradF2())
"""F2 computes whatever F4 computes."""
STRIDE_2 = WinogradStride2()
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
def cases() -> list[Case]:
    """Those that fit, from one seed each; and the ends of all ranges."""
    drawn = [random_case(np.random.default_rng([4, number])) for number in range(CASES)]
    drawn += extreme_cases(INPUT_TRANSFORM)
    fitting = [case for case in drawn if VARIANTS[0].fits(layer_of(case))]
    assert len(fitting) > 0.8 * len(drawn)
    return fitting


def _named(variant: Variant) -> str:
    return type(variant).__name__


def _calls(variant: Variant, cases: list[Case], seed: int = 0) -> list[Call]:
    """Some in one piece."""
    return calls_of(variant, cases[::2], np.random.default_rng(seed)) + calls_of(variant, cases[1::2])


@pytest.mark.parametrize("build", HOST_BUILDS)
@pytest.mark.parametrize("variant", VARIANTS, ids=_named)
def test_equals_the_reference(variant: Variant, build: str, cases: list[Case], tmp_path: Path) -> None:
    run_on_host(_calls(variant, cases), tmp_path, build)


@pytest.mark.parametrize("variant", VARIANTS, ids=_named)
def test_equals_the_reference_with_the_dsp_extension(variant: Variant, cases: list[Case], tmp_path: Path) -> None:
    run_on_board(_calls(variant, cases), BOARDS["m4"], tmp_path, specialised=False)


@pytest.mark.parametrize("variant", VARIANTS, ids=_named)
def test_equals_the_reference_where_the_compiler_knows_the_layer(
    variant: Variant, cases: list[Case], tmp_path: Path
) -> None:
    run_on_board(_calls(variant, cases[:12]), BOARDS["m4"], tmp_path, specialised=True)


@pytest.mark.parametrize("variant", VARIANTS, ids=_named)
def test_predicts_its_instructions(variant: Variant, tmp_path: Path) -> None:
    calls = calls_of(variant, [_square(*shape) for shape in (*RESNET8, (32, 3, 16), (32, 9, 8), (12, 18, 9))])
    counts = run_on_board(calls, BOARDS["m4"], tmp_path, specialised=True)
    assert len(counts) == 6
    assert [variant.instructions(call.layer) for call in calls] == pytest.approx(counts, rel=0.05)


@pytest.mark.parametrize("variant", VARIANTS, ids=_named)
def test_takes_no_more_code_than_it_says(variant: Variant, cases: list[Case], tmp_path: Path) -> None:
    assert_code_fits(calls_of(variant, cases[:12]), tmp_path, ("-mcpu=cortex-m4",))


@pytest.fixture(scope="session")
def stride2_cases() -> list[Case]:
    drawn = [random_stride2_case(np.random.default_rng([5, number])) for number in range(CASES // 2)]
    fitting = [case for case in drawn if STRIDE_2.fits(layer_of(case))]
    assert len(fitting) > 0.7 * len(drawn)
    return fitting


@pytest.mark.parametrize("build", HOST_BUILDS)
def test_stride_2_equals_the_reference(build: str, stride2_cases: list[Case], tmp_path: Path) -> None:
    run_on_host(_calls(STRIDE_2, stride2_cases), tmp_path, build)


def test_stride_2_equals_the_reference_with_the_dsp_extension(stride2_cases: list[Case], tmp_path: Path) -> None:
    run_on_board(_calls(STRIDE_2, stride2_cases), BOARDS["m4"], tmp_path, specialised=False)
    run_on_board(_calls(STRIDE_2, stride2_cases[:20], seed=1), BOARDS["m33"], tmp_path, specialised=True)
    assert_code_fits(calls_of(STRIDE_2, stride2_cases[:12]), tmp_path, ("-mcpu=cortex-m4",))


def test_stride_2_predicts_its_instructions(tmp_path: Path) -> None:
    """Of DISCO's ResNet-8 and of the whole one, and of a width that is no multiple of a tile's."""
    shapes = ((32, 9, 16), (16, 18, 32), (32, 16, 32), (16, 32, 64), (20, 7, 6))
    calls = calls_of(STRIDE_2, [_square(*shape, 2) for shape in shapes])
    counts = run_on_board(calls, BOARDS["m4"], tmp_path, specialised=True)
    assert [STRIDE_2.instructions(call.layer) for call in calls] == pytest.approx(counts, rel=0.06)


def test_a_wrong_weight_is_seen(cases: list[Case], tmp_path: Path) -> None:
    case = next(case for case in cases if np.unique(case.expected).size > 50)
    weights = case.arrays[0]
    assert weights is not None
    weights = weights.copy()
    weights[0, 1, 1, 0] ^= 64
    wrong = replace(case, arrays=(weights, *case.arrays[1:]))
    with pytest.raises(AssertionError, match="case 0 wrong: byte"):
        run_on_host(calls_of(VARIANTS[0], [wrong]), tmp_path)


@pytest.mark.parametrize(
    "window",
    [Window(3, 3, stride_w=2), Window(3, 3, stride_h=2), Window(3, 3, dilation_h=2), Window(3, 1), Window(5, 3)],
)
def test_other_windows_do_not_fit(window: Window) -> None:
    layer = layer_of(_square(8, 4, 4))
    assert isinstance(layer.params, Conv2D)
    weights = np.zeros((4, window.kernel_h, window.kernel_w, 4), np.int8)
    changed = replace(layer, params=replace(layer.params, window=window, weights=weights))
    assert not any(variant.fits(changed) for variant in VARIANTS)
    assert STRIDE_2.fits(changed) == ((window.kernel_w, window.stride_w, window.dilation_h) == (3, 2, 1))


@pytest.mark.parametrize("variant", VARIANTS, ids=_named)
def test_accumulators_must_fit(variant: Variant) -> None:
    limit = 1 << (29 if isinstance(variant, WinogradF2) else 25)
    layer = layer_of(_square(4, 4, 2))
    assert isinstance(layer.params, Conv2D)
    # One input channel of weight 1 and zero point 0 reaches -9 * 128 to 9 * 127.
    weights = np.zeros_like(layer.params.weights)
    weights[..., 0] = 1
    for bias, fits in ((limit - 1 - 9 * 127, True), (limit - 9 * 127, False), (9 * 128 - limit, False)):
        params = replace(layer.params, weights=weights, bias=np.array([0, bias], np.int32), input_zero_point=0)
        assert variant.fits(replace(layer, params=params)) == fits


def _square(size: int, channels: int, filters: int, stride: int = 1) -> Case:
    """With the usual padding, right shifts and no halo; what a ReLU leaves is all of int8."""
    for seed in range(200):
        rng = np.random.default_rng([size, seed])
        data = rng.integers(-128, 128, (1, size, size, channels)).astype(np.int8)
        weights = rng.integers(-127, 128, (filters, 3, 3, channels)).astype(np.int8)
        case = convolution(rng, data, weights, (1, 1, 1, 1), (stride, stride))
        layer = layer_of(case)
        assert isinstance(layer.params, Conv2D)
        requantise = layer.params.requantise
        plain = layer.inputs[0].stride == channels and layer.output.stride == filters
        whole = requantise.activation == ActivationRange(-128, 127)
        if plain and whole and (VARIANTS[0] if stride == 1 else STRIDE_2).fits(layer) and max(requantise.shifts) < 0:
            return case
    raise AssertionError("no seed gives such a layer")
