"""How the sums of a convolution become int8 in few instructions, and exactly: the forms of variants/conv2d_dsp.h.

TFLite's double rounding, for a sum `a`, a multiplier `m` (Q31) and a shift `s` >= 1 to the right:

    high = floor(a * m / 2^31 + 1/2),  result = floor((high + 2^(s-1) - [high < 0]) / 2^s) + zero point

With sums that are 2^k times as large, k >= 2, floor(2^k a * m / 2^32) keeps the bits that the first rounding needs, and
for high >= 0 both roundings are one addition:

    result = floor((floor(2^k a * m / 2^32) + 2^(k-2) + 2^(s+k-2)) / 2^(s+k-1)) + zero point

A negative `high` gives at most the zero point in both formulas. So where the activation cuts off at the zero point or
above (ReLU), nothing else is needed. Because k is free for every channel, s+k-1 can be one shift for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from disco_firmware.kernel_params import Conv2D
from disco_firmware.variants.accumulators import accumulator_range, folded_bias, requantised, rounding_offset

GENERAL, SIGNED, POSITIVE = range(3)
"""As in variants/conv2d_dsp.h."""
_LARGEST_SUM = (1 << 31) - 1
_LARGEST_WEIGHT = (1 << 15) - 1
_LARGEST_SHIFT = 22
"""Keeps an offset, and its sum with the high product, within int32."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """What a convolution does with its sums."""

    form: int
    channels: npt.NDArray[np.int32]
    """[channel, (bias, multiplier, offset, shift)]; the bias scaled as the sum."""
    weight_scales: tuple[int, ...]
    """Of every channel: its weights are to be multiplied by 2^this."""
    pixel_scale: int
    """The same for the input less its zero point."""
    shift: int
    """Of all channels, or 0."""


@dataclass(frozen=True)
class _Channel:
    bias: int
    multiplier: int
    shift: int
    """To the right."""
    largest_sum: int
    largest_weight: int
    constant: int | None
    """What the channel gives whatever the input."""


def choose_scaling(params: Conv2D, *, scales_weights: bool) -> Scaling:
    """The form with the fewest instructions. Scales the weights, or the pixels where weights have to stay int8."""
    channels = _channels(params)
    variable = [channel for channel in channels if channel.constant is None]
    requantise = params.requantise
    if all(1 <= channel.shift < _LARGEST_SHIFT for channel in variable):
        if requantise.activation.minimum >= requantise.output_zero_point:
            common = 1 + max((channel.shift for channel in variable), default=1)
            scales = [common + 1 - channel.shift for channel in channels]
            if scales_weights and _hold(channels, scales):
                return _scaling(POSITIVE, channels, scales, params, scales_weights=True)
            if _hold(channels, [2] * len(channels)):
                return _scaling(POSITIVE, channels, [2] * len(channels), params, scales_weights=scales_weights)
        if _hold(channels, [1] * len(channels)):
            return _scaling(SIGNED, channels, [1] * len(channels), params, scales_weights=scales_weights)
    rows = [(channel.bias, channel.multiplier, 0, -channel.shift) for channel in channels]
    return Scaling(GENERAL, np.array(rows, np.int32), (0,) * len(channels), 0, 0)


def _hold(channels: list[_Channel], scales: list[int]) -> bool:
    """Whether scaled sums fit int32 and scaled weights int16."""
    return all(
        channel.constant is not None
        or (channel.largest_sum << scale <= _LARGEST_SUM and channel.largest_weight << scale <= _LARGEST_WEIGHT)
        for channel, scale in zip(channels, scales, strict=True)
    )


def _scaling(
    form: int, channels: list[_Channel], scales: list[int], params: Conv2D, *, scales_weights: bool
) -> Scaling:
    zero_point = params.requantise.output_zero_point
    shifts = [
        channel.shift + scale - 1 for channel, scale in zip(channels, scales, strict=True) if channel.constant is None
    ]
    common = shifts[0] if len(set(shifts)) == 1 else 0
    rows = []
    for channel, scale in zip(channels, scales, strict=True):
        if channel.constant is not None:
            shift = common or 1
            # Half of the last place, for a negative sum takes one off.
            rows.append((0, 0, rounding_offset(channel.constant, shift), shift))
            continue
        shift = channel.shift + scale - 1
        # SMMLAR brings the half of the first rounding itself.
        half = 1 << (scale - 2) if form == POSITIVE else 0
        offset = half + rounding_offset(zero_point, shift)
        rows.append((channel.bias << scale, channel.multiplier, offset, shift))
    kept = [0 if channel.constant is not None else scale for channel, scale in zip(channels, scales, strict=True)]
    return Scaling(
        form,
        np.array(rows, np.int32),
        tuple(kept) if scales_weights else (0,) * len(channels),
        0 if scales_weights else scales[0],
        common,
    )


def _channels(params: Conv2D) -> list[_Channel]:
    requantise = params.requantise
    lows, highs = accumulator_range(params.weights, folded_bias(params.bias, params.weights, params.input_zero_point))
    channels = []
    for index, (low, high) in enumerate(zip(lows.tolist(), highs.tolist(), strict=True)):
        multiplier, shift = requantise.multipliers[index], requantise.shifts[index]
        largest = max(-low, high)
        first, last = (requantised(requantise, index, end) for end in (low, high))
        # An accumulator that wraps on the way may lie anywhere in between.
        constant = first if first == last and largest << max(shift, 0) <= _LARGEST_SUM else None
        bias = 0 if params.bias is None else int(params.bias[index])
        weight = int(np.abs(params.weights[index].astype(np.int64)).max())
        channels.append(_Channel(bias, multiplier, -shift, largest, weight, constant))
    return channels
