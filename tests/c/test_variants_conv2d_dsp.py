"""CONV_2D with the DSP extension equals TFLite's reference kernel, for any geometry, and touches nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from disco_firmware.kernel_params import Conv2D, Window
from disco_firmware.quantisation import ActivationRange, Requantisation
from disco_firmware.variants.base import Layer, Variant
from disco_firmware.variants.conv2d_dsp import Conv2DDspInt8, Conv2DDspInt16
from helpers.kernel_cases import random_cases
from helpers.kernel_driver import Case
from helpers.kernel_parts import Generator
from helpers.variant_boards import BOARDS, HOST_BUILDS, Call, run_on_board, run_on_host, view_of

CASES = int(os.environ.get("DISCO_VARIANT_CASES", "150"))
VARIANTS = (Conv2DDspInt16(), Conv2DDspInt8())


def layer_of(case: Case) -> Layer:
    """The op that a case of the portable kernel computes."""
    weights, bias, multipliers, shifts = case.arrays
    p = case.params
    window = Window(*p[:8])
    assert weights is not None and multipliers is not None and shifts is not None
    filters = len(multipliers)
    shape = (filters, window.kernel_h, window.kernel_w, case.inputs[0].channels)
    requantise = Requantisation(tuple(multipliers.tolist()), tuple(shifts.tolist()), p[9], ActivationRange(p[10], p[11]))
    params = Conv2D(window, weights.reshape(shape), bias, p[8], requantise)
    return Layer(params, (view_of(case.inputs[0]),), view_of(case.output))


def call_of(case: Case, variant: Variant, rng: Generator) -> Call:
    """The call of a variant, in ranges of any number of steps."""
    layer = layer_of(case)
    assert variant.fits(layer)
    step, height = variant.row_step(layer), layer.output.height
    steps = -(-height // step)
    inner = rng.permutation(np.arange(1, steps))[: rng.integers(0, steps)] if steps > 1 else []
    rows = (0, *sorted(int(place) * step for place in inner), height)
    return Call(variant, layer, case.inputs, case.output, case.expected, rows)


def random_calls(count: int, seed: int) -> list[Call]:
    """Of both weights, with padding within and outside of what TFLite's own padding allows."""
    rng = np.random.default_rng(seed)
    cases = random_cases("conv2d", count, seed) + random_cases("padded_conv2d", count // 3, seed)
    return [call_of(case, variant, rng) for case in cases for variant in VARIANTS]


@pytest.mark.parametrize("build", HOST_BUILDS)
def test_equals_the_reference_on_this_pc(build: str, tmp_path: Path) -> None:
    run_on_host(random_calls(CASES, seed=11), tmp_path, build)


@pytest.mark.parametrize("board", BOARDS)
def test_equals_the_reference_on_an_emulated_board(board: str, tmp_path: Path) -> None:
    run_on_board(random_calls(CASES, seed=12), BOARDS[board], tmp_path, specialised=False)


def test_equals_the_reference_specialised(tmp_path: Path) -> None:
    run_on_board(random_calls(20, seed=13), BOARDS["m4"], tmp_path, specialised=True)
