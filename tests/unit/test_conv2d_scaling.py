"""The forms of requantisation for the DSP convolutions, sum by sum against TFLite's double rounding."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from disco_firmware.kernel_params import ActivationRange, Conv2D, Requantisation, Window
from disco_firmware.variants.conv2d_scaling import GENERAL, POSITIVE, SIGNED, Scaling, choose_scaling

Int64 = npt.NDArray[np.int64]


def convolution(
    multiplier: int, shift: int, zero_point: int, minimum: int, *, weight: int = 100, bias: int = 0, depth: int = 9
) -> Conv2D:
    """One output channel of 1x1."""
    weights = np.full((1, 1, 1, depth), weight, np.int8)
    requantise = Requantisation((multiplier,), (shift,), zero_point, ActivationRange(minimum, 127))
    return Conv2D(Window(1, 1), weights, np.array([bias], np.int32), -3, requantise)


def tflite(sums: Int64, params: Conv2D) -> Int64:
    """SaturatingRoundingDoublingHighMul, then RoundingDivideByPOT, as in gemmlowp."""
    r = params.requantise
    right = -r.shifts[0]
    high = (sums * r.multipliers[0] + (1 << 30)) >> 31
    remainder = high & ((1 << right) - 1)
    threshold = ((1 << right) - 1 >> 1) + (high < 0)
    scaled = (high >> right) + (remainder > threshold)
    return np.clip(scaled + r.output_zero_point, r.activation.minimum, r.activation.maximum)


def fast(sums: Int64, params: Conv2D, scaling: Scaling) -> Int64:
    """As disco_conv2d_dsp_finish."""
    _, multiplier, offset, shift = (int(value) for value in scaling.channels[0])
    scaled = sums << (scaling.weight_scales[0] + scaling.pixel_scale)
    product = scaled * multiplier
    if scaling.form == SIGNED:
        total = ((product + (1 << 31)) >> 32) + offset + (scaled >> 63)
    else:
        total = (product >> 32) + offset
    assert np.abs(total).max() < 1 << 31
    return np.clip(total >> shift, params.requantise.activation.minimum, params.requantise.activation.maximum)


@pytest.mark.parametrize("scales_weights", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_every_sum_ends_where_tflite_ends(*, scales_weights: bool, relu: bool) -> None:
    rng = np.random.default_rng(3)
    sums = np.arange(-150_000, 150_000)
    for _ in range(40):
        multiplier = int(rng.choice([1 << 30, (1 << 31) - 1, rng.integers(1 << 30, 1 << 31)]))
        zero_point = int(rng.integers(-128, 128))
        minimum = int(rng.integers(zero_point, 128)) if relu else int(rng.integers(-128, zero_point + 1))
        params = convolution(multiplier, -int(rng.integers(1, 13)), zero_point, minimum)
        scaling = choose_scaling(params, scales_weights=scales_weights)
        # The clamp may leave one value, and a zero point that is the minimum belongs to both forms.
        if scaling.channels[0][1] != 0:
            assert scaling.form == (POSITIVE if minimum >= zero_point else SIGNED)
        np.testing.assert_array_equal(fast(sums, params, scaling), tflite(sums, params))


def test_channels_shift_alike_where_weights_can_be_scaled() -> None:
    weights = np.full((3, 1, 1, 4), 50, np.int8)
    requantise = Requantisation((1 << 30, 1 << 30, 1 << 30), (-6, -9, -7), -128, ActivationRange(-128, 127))
    params = Conv2D(Window(1, 1), weights, None, 0, requantise)
    scaling = choose_scaling(params, scales_weights=True)
    assert (scaling.form, scaling.shift, scaling.weight_scales) == (POSITIVE, 10, (5, 2, 4))
    assert choose_scaling(params, scales_weights=False).shift == 0


@pytest.mark.parametrize(("shift", "bias"), [(0, 0), (1, 0), (-23, 0), (-21, (1 << 30) - 1)])
def test_others_take_the_general_form(shift: int, bias: int) -> None:
    params = convolution(1 << 30, shift, -128, -128, bias=bias, depth=4000, weight=127)
    assert choose_scaling(params, scales_weights=True).form == GENERAL


def test_a_channel_that_is_always_the_same_does_not_matter() -> None:
    weights = np.array([[[[90]]], [[[0]]]], np.int8)
    requantise = Requantisation((1 << 30, 1 << 30), (-6, 2), 5, ActivationRange(-128, 127))
    params = Conv2D(Window(1, 1), weights, np.array([0, 7], np.int32), 0, requantise)
    scaling = choose_scaling(params, scales_weights=True)
    assert scaling.form == SIGNED
    _, multiplier, offset, shift = scaling.channels[1].tolist()
    # 7 * 2^2 * 2^30 / 2^31, at the zero point 5.
    assert (multiplier, offset >> shift, (offset - 1) >> shift) == (0, 19, 19)
