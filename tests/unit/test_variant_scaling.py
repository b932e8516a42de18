"""The scalings of variants give the reference's outputs on both sides of every threshold."""

from __future__ import annotations

import numpy as np
import pytest

from disco_firmware.kernel_params import ActivationRange, Requantisation
from disco_firmware.quantisation import quantise_multiplier
from disco_firmware.variants.accumulators import Int64Array, accumulator_range, requantised
from disco_firmware.variants.scaling import (
    COMMON,
    GENERAL,
    SIGNED,
    Scaling,
    choose_fixed_scaling,
    choose_scaling,
)

TAPS = 9


def random_layer(rng: np.random.Generator, spread: float) -> tuple[Requantisation, Int64Array, Int64Array]:
    """A layer with a fused RELU whose multipliers differ by up to exp(spread)."""
    channels = int(rng.integers(1, 9))
    weights = rng.integers(-127, 128, (channels, TAPS)) * (rng.random((channels, 1)) < 0.9)
    bias = rng.integers(-60000, 60000, channels)
    pairs = [quantise_multiplier(float(np.exp(rng.uniform(-spread, 0))) * 2e-3) for _ in range(channels)]
    multipliers, shifts = tuple(p.multiplier for p in pairs), tuple(p.shift for p in pairs)
    return Requantisation(multipliers, shifts, -128, ActivationRange(-128, 127)), weights, bias


def scaled_output(scaling: Scaling, channel: int, scaled: int) -> int:
    """disco_scale of requantise_scaled.h for a scaled accumulator."""
    multiplier, offset = int(scaling.multipliers[channel]), int(scaling.offsets[channel])
    if scaling.kind == COMMON:
        value = ((scaled * multiplier >> 32) + offset) >> scaling.common_shift
    else:
        assert scaling.kind == SIGNED
        rounded = (scaled * multiplier + (1 << 31)) >> 32
        value = (rounded + offset + (scaled >> 31)) >> int(scaling.shifts[channel])
    limits = scaling.requantise.activation
    return min(max(value, limits.minimum), limits.maximum)


def thresholds(requantise: Requantisation, channel: int, low: int, high: int) -> list[int]:
    """The accumulators around which the output changes, and the ends."""
    found = [low, high]
    for value in range(requantised(requantise, channel, low) + 1, requantised(requantise, channel, high) + 1):
        first, last = low, high
        while first < last:
            middle = (first + last) // 2
            reaches = requantised(requantise, channel, middle) >= value
            first, last = (first, middle) if reaches else (middle + 1, last)
        found += [first - 1, first]
    return found


def check(scaling: Scaling, weights: Int64Array, bias: Int64Array) -> None:
    low, high = accumulator_range(weights, bias)
    for channel in range(len(weights)):
        factor, start = int(scaling.factors[channel]), int(scaling.biases[channel])
        for accumulator in thresholds(scaling.requantise, channel, int(low[channel]), int(high[channel])):
            scaled = factor * (accumulator - int(bias[channel])) + start
            assert -(1 << 31) <= scaled < 1 << 31
            wanted = requantised(scaling.requantise, channel, accumulator)
            assert scaled_output(scaling, channel, scaled) == wanted, (channel, accumulator)


@pytest.mark.parametrize("spread", [0.5, 3.0, 8.0])
def test_both_sides_of_every_threshold(spread: float) -> None:
    kinds = []
    for seed in range(40):
        requantise, weights, bias = random_layer(np.random.default_rng([seed, int(spread)]), spread)
        scaling = choose_scaling(requantise, weights, bias, 32767)
        kinds.append(scaling.kind)
        check(scaling, weights, bias)
    assert kinds.count(COMMON) > 20


def test_sums_that_are_scaled_already() -> None:
    kinds = []
    for seed in range(40):
        requantise, weights, bias = random_layer(np.random.default_rng(seed), 0.5)
        scaling = choose_fixed_scaling(requantise, weights, bias, 8)
        kinds.append(scaling.kind)
        if scaling.kind == COMMON:
            assert np.all((scaling.factors == 256) | (scaling.factors == 0))
            check(scaling, weights, bias)
    assert kinds.count(COMMON) > 10


def test_an_activation_below_the_zero_point_keeps_the_sign() -> None:
    requantise, weights, bias = random_layer(np.random.default_rng(3), 0.5)
    signed = Requantisation(requantise.multipliers, requantise.shifts, 5, ActivationRange(-128, 127))
    scaling = choose_scaling(signed, weights, bias, 32767)
    assert scaling.kind == SIGNED
    check(scaling, weights, bias)


def test_left_shifts_take_the_general_form() -> None:
    requantise = Requantisation((1 << 30,), (2,), 0, ActivationRange(-128, 127))
    weights, bias = np.ones((1, TAPS), np.int64), np.zeros(1, np.int64)
    assert choose_scaling(requantise, weights, bias, 32767).kind == GENERAL


def test_an_output_that_never_changes_needs_no_weights() -> None:
    requantise = Requantisation((1 << 30,), (-20,), 3, ActivationRange(-128, 127))
    scaling = choose_scaling(requantise, np.ones((1, TAPS), np.int64), np.array([7]), 32767)
    assert scaling.kind == COMMON
    assert scaling.factors.tolist() == [0]
    check(scaling, np.ones((1, TAPS), np.int64), np.array([7]))
