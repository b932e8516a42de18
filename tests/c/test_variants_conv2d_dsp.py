"""CONV_2D with the DSP extension equals TFLite's reference kernel, for any geometry, and touches nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from disco_firmware.kernel_params import Conv2D
from disco_firmware.variants.conv2d_dsp import Conv2DDspInt8, Conv2DDspInt16
from disco_firmware.variants.conv2d_scaling import GENERAL, POSITIVE, SIGNED, choose_scaling
from helpers.kernel_cases import conv2d_case, padded_conv2d_case
from helpers.kernel_driver import Case
from helpers.kernel_parts import Generator
from helpers.variant_boards import BOARDS, HOST_BUILDS, Call, calls_of, run_on_board, run_on_host

CASES = int(os.environ.get("DISCO_VARIANT_CASES", "150"))
VARIANTS = (Conv2DDspInt16(), Conv2DDspInt8())


def random_case(rng: Generator, number: int) -> Case:
    """Few channels, many channels, and padding that TFLite has no option for."""
    if number % 4 == 3:
        return padded_conv2d_case(rng)
    return conv2d_case(rng, deepest=12 if number % 2 else 80)


def random_calls(count: int, seed: int) -> list[Call]:
    """Each case with int16 and with int8 weights."""
    rng = np.random.default_rng(seed)
    cases = [random_case(rng, number) for number in range(count)]
    calls = [call for variant in VARIANTS for call in calls_of(variant, cases, rng)]
    assert len(calls) == count * len(VARIANTS)
    return calls


@pytest.mark.parametrize("build", HOST_BUILDS)
def test_equals_the_reference_on_this_pc(build: str, tmp_path: Path) -> None:
    calls = random_calls(CASES, seed=11)
    forms = {
        choose_scaling(call.layer.params, scales_weights=True).form
        for call in calls
        if isinstance(call.layer.params, Conv2D)
    }
    assert forms == {GENERAL, SIGNED, POSITIVE}
    run_on_host(calls, tmp_path, build)


@pytest.mark.parametrize("board", BOARDS)
def test_equals_the_reference_on_an_emulated_board(board: str, tmp_path: Path) -> None:
    run_on_board(random_calls(CASES, seed=12), BOARDS[board], tmp_path, specialised=False)


def test_equals_the_reference_specialised(tmp_path: Path) -> None:
    run_on_board(random_calls(20, seed=13), BOARDS["m4"], tmp_path, specialised=True)


def test_a_wrong_byte_is_seen(tmp_path: Path) -> None:
    call = random_calls(1, seed=14)[0]
    call.case.expected[-1, -1, -1] ^= 1
    with pytest.raises(AssertionError, match="case 0 wrong: byte"):
        run_on_host([call], tmp_path)


def test_predicted_counts_are_near(tmp_path: Path) -> None:
    """Within 12 % for layers that take long; shapes as random as these are not what the prediction was fitted to."""
    calls = [call for call in random_calls(400, seed=15) if call.variant.instructions(call.layer) > 150_000]
    counts = run_on_board(calls, BOARDS["m4"], tmp_path, specialised=True)
    assert len(counts) >= 4
    for call, count in zip(calls, counts, strict=True):
        assert call.variant.instructions(call.layer) == pytest.approx(count, rel=0.12), call.layer
