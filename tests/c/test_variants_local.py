"""The fast kernels of everything but CONV_2D equal TFLite's reference kernels bit for bit and touch nothing else.

DISCO_VARIANT_CASES sets the number of random cases per kernel, on the PC and on the board.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from disco_firmware.variants.add_products import AddProducts
from disco_firmware.variants.add_table import AddTable
from disco_firmware.variants.base import Variant
from disco_firmware.variants.depthwise_any_dsp import DepthwiseAnyDsp
from disco_firmware.variants.depthwise_dsp import Depthwise3x3Dsp
from disco_firmware.variants.fully_connected_dsp import FullyConnectedDsp
from disco_firmware.variants.mul_dsp import MulDsp
from disco_firmware.variants.pool_dsp import AveragePoolDsp, MaxPoolDsp, MeanDsp
from disco_firmware.variants.relu_table import ReluTable
from disco_firmware.variants.softmax_once import SoftmaxOnce
from helpers.variant_boards import BOARDS, Call, assert_code_fits, calls_of, compile_calls, run_on_board, run_on_host
from helpers.variant_local_cases import cases_for

PC_CASES = int(os.environ.get("DISCO_VARIANT_CASES", "150"))
SPECIALISED_CASES = 20
VARIANTS: dict[str, Variant] = {
    "depthwise_3x3": Depthwise3x3Dsp(),
    "depthwise_conv2d": DepthwiseAnyDsp(),
    "fully_connected": FullyConnectedDsp(),
    "deep_fully_connected": FullyConnectedDsp(),
    "add": AddTable(),
    "add_products": AddProducts(),
    "mul": MulDsp(),
    "average_pool2d": AveragePoolDsp(),
    "max_pool2d": MaxPoolDsp(),
    "mean": MeanDsp(),
    "relu": ReluTable(),
    "softmax": SoftmaxOnce(),
}
"""By the generator of their cases."""


def fitting_calls(name: str, count: int, seed: int) -> list[Call]:
    """Of `count` random cases those that the variant computes."""
    calls = calls_of(VARIANTS[name], cases_for(name, count, seed), np.random.default_rng(seed))
    assert len(calls) >= count / 3
    return calls


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_the_reference_on_the_pc(name: str, tmp_path: Path) -> None:
    run_on_host(fitting_calls(name, PC_CASES, seed=len(name)), tmp_path)


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_the_reference_on_an_emulated_board(name: str, tmp_path: Path) -> None:
    """Some cases with constant arguments, as in generated code, some without."""
    calls = fitting_calls(name, PC_CASES, seed=100 + len(name))
    run_on_board(calls[:SPECIALISED_CASES], BOARDS["m4"], tmp_path, specialised=True)
    run_on_board(calls[SPECIALISED_CASES:], BOARDS["m4"], tmp_path, specialised=False)


@pytest.mark.parametrize("name", VARIANTS)
def test_compiles_for_other_cores_and_takes_no_more_code_than_it_says(name: str, tmp_path: Path) -> None:
    calls = fitting_calls(name, 12, seed=3)
    assert_code_fits(calls, tmp_path, ("-mcpu=cortex-m33",))
    compile_calls(calls[:6], tmp_path, "clang", ("-c", "-O1"))
    compile_calls(calls[:2], tmp_path, "arm-none-eabi-gcc", ("-c", "-O0", "-mthumb", "-mcpu=cortex-m4"))


def test_a_wrong_byte_is_seen(tmp_path: Path) -> None:
    calls = fitting_calls("add", 6, seed=4)
    calls[2].case.expected[-1, -1, -1] ^= 1
    with pytest.raises(AssertionError, match="case 2 wrong: byte"):
        run_on_host(calls, tmp_path)


def test_an_input_row_that_a_range_may_not_read_is_wrong(tmp_path: Path) -> None:
    """A call that is told of too few rows differs."""
    call = next(call for call in fitting_calls("depthwise_3x3", 30, seed=5) if call.layer.output.height > 4)
    blind = replace(call, layer=replace(call.layer, inputs=(replace(call.layer.inputs[0], height=2),)))
    with pytest.raises(AssertionError, match="case 0 wrong: byte"):
        run_on_host([blind], tmp_path)
