"""Lines and products take every accumulator, and every pair of values, where TFLite's two roundings take them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from disco_firmware.kernel_params import ActivationRange, Add, Conv2D, Multiplier, Requantisation, Window
from disco_firmware.variants.accumulators import Int64Array, accumulator_range, multiply_by_quantised
from disco_firmware.variants.add_products import find_products
from disco_firmware.variants.winograd_scaling import find_lines

WHOLE = ActivationRange(-128, 127)


def _convolution(seed: int, zero_point: int, shifts: tuple[int, ...] = (-9, -8, -10, -9)) -> Conv2D:
    """Four channels, the last of which is pruned."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(-127, 128, (4, 3, 3, 2)).astype(np.int8)
    weights[3] = 0
    multipliers = tuple(int(value) for value in rng.integers(1 << 30, 1 << 31, 4))
    bias = rng.integers(-3000, 3000, 4).astype(np.int32)
    return Conv2D(Window(3, 3), weights, bias, 0, Requantisation(multipliers, shifts, zero_point, WHOLE))


def _outputs(op: Conv2D, channel: int, accumulators: Int64Array) -> Int64Array:
    requantise = op.requantise
    scaled = multiply_by_quantised(accumulators, requantise.multipliers[channel], requantise.shifts[channel])
    return np.clip(scaled + requantise.output_zero_point, -128, 127)


@pytest.mark.parametrize("scale", [576, 64, 192])
@pytest.mark.parametrize("zero_point", [-128, 3])
def test_lines_are_right_for_every_accumulator(zero_point: int, scale: int) -> None:
    for seed in range(5):
        op = _convolution(seed, zero_point)
        lines = find_lines(op, scale)
        assert lines is not None
        assert lines.two == (zero_point > -128)
        assert op.bias is not None
        for channel, (low, high) in enumerate(np.stack(accumulator_range(op.weights, op.bias.astype(np.int64)), 1)):
            every = np.arange(low, high + 1)
            sums = (scale * every * lines.multipliers[channel] >> 32) + lines.roundings[channel]
            sums += np.where(every < 0, lines.jumps[channel], 0)
            got = np.clip(sums >> lines.shift, -128, 127)
            assert np.array_equal(got, _outputs(op, channel, every))


def test_no_lines_where_sums_are_too_large_or_shift_left() -> None:
    op = _convolution(0, -128)
    assert op.bias is not None
    assert find_lines(replace(op, bias=op.bias + (1 << 22)), 576) is None
    assert find_lines(replace(op, bias=op.bias + (1 << 22)), 64) is not None
    assert find_lines(_convolution(0, -128, (-9, 0, -9, -9)), 576) is None


def test_products_are_right_for_every_pair() -> None:
    half, values = Multiplier(1 << 30, 0), np.arange(-128, 128)
    rng = np.random.default_rng(1)
    for zero_point in (-128, -20, 5):
        other, output = (Multiplier(int(rng.integers(1 << 30, 1 << 31)), shift) for shift in (-1, -18))
        op = Add(3, -7, zero_point, half, other, output, 20, WHOLE)
        found = find_products(op)
        assert found is not None
        terms = [
            multiply_by_quantised((values - point) << 20, scale.multiplier, scale.shift)
            for point, scale in ((3, half), (-7, other))
        ]
        scaled = multiply_by_quantised(terms[0][:, None] + terms[1], output.multiplier, output.shift)
        expected = np.clip(scaled + zero_point, -128, 127)
        sums = (values * found.first >> 8)[:, None] + (values * found.second >> 8) + found.constant
        assert np.array_equal(np.clip(sums >> found.shift, -128, 127), expected)


def test_no_products_where_a_multiplier_is_too_large() -> None:
    large = Multiplier((1 << 31) - 1, 10)
    assert find_products(Add(0, 0, 0, large, large, large, 20, WHOLE)) is None
