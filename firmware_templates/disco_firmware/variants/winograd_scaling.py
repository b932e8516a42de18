"""How what a Winograd convolution leaves of its sums becomes int8 with one product and one shift.

The outputs' transform leaves `scale` times the accumulator. TFLite's double rounding of accumulators is a staircase:
the output is `value` or more from some accumulator on. A line, floor(scale * accumulator * multiplier / 2^32) +
rounding, shifted right, is the same staircase if it reaches each step where it begins and not one accumulator before.
The reference rounds halves away from zero: the steps of negative accumulators lie on a line of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from disco_firmware.kernel_params import Conv2D, Requantisation
from disco_firmware.variants.accumulators import Int64Array, accumulator_range, folded_bias

_LARGEST_SHIFT = 22
"""Keeps the zero point and what is added to it within int32."""
_NEARBY = (0, 1, -1, 2, -2)
"""Multipliers beside the nearest one, tried in this order."""


@dataclass(frozen=True, eq=False)
class Lines:
    """Of all channels; arrays over them."""

    shift: int
    multipliers: Int64Array
    roundings: Int64Array
    jumps: Int64Array
    """Added for negative accumulators; all 0 where nothing of them is left after the activation."""

    @property
    def two(self) -> bool:
        """Whether negative accumulators need a line of their own."""
        return bool(self.jumps.any())


@dataclass(frozen=True, eq=False)
class _Steps:
    """Where the outputs of all channels change."""

    low: Int64Array
    high: Int64Array
    """Least and largest accumulator of each channel."""
    values: Int64Array
    """Outputs that a step leads to."""
    begins: Int64Array
    """[channel, value]: the least accumulator that gives `value` or more."""
    real: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    """[channel, value]: whether there is such a step between `low` and `high`."""
    least: Int64Array
    """What the least accumulator of each channel gives."""


@lru_cache(maxsize=256)
def find_lines(op: Conv2D, scale: int) -> Lines | None:
    """Lines for all channels, with one shift; None: there are none, or `scale` times an accumulator may pass int32."""
    shifts, multipliers = -np.array(op.requantise.shifts, np.int64), np.array(op.requantise.multipliers, np.int64)
    ends = accumulator_range(op.weights, folded_bias(op.bias, op.weights, op.input_zero_point))
    if np.any((shifts < 1) & (multipliers > 0)) or scale * max(int(np.abs(end).max()) for end in ends) >= 1 << 31:
        return None
    steps = _steps(op)
    live = steps.real.any(axis=1)
    # As many bits more than the reference's as keep a multiplier below 2^31.
    shift = min(int(shifts[live].min(initial=_LARGEST_SHIFT)) + scale.bit_length() - 2, _LARGEST_SHIFT)
    extra = shift - shifts
    if np.any(extra[live] < 0):
        return None
    jumps = np.where(live & _negative_steps(steps), -(1 << np.maximum(extra, 0)), 0)
    slopes, roundings = np.zeros_like(shifts), steps.least << shift
    for channel in np.flatnonzero(live).tolist():
        nearest = round(int(multipliers[channel]) * 2 ** (int(extra[channel]) + 1) / scale)
        found = _line(steps, channel, scale, shift, int(jumps[channel]), nearest)
        if found is None:
            return None
        slopes[channel], roundings[channel] = found
    return Lines(shift, slopes, roundings, jumps)


def _line(steps: _Steps, channel: int, scale: int, shift: int, jump: int, nearest: int) -> tuple[int, int] | None:
    """(multiplier, rounding) of one channel."""
    real = steps.real[channel]
    begins, values = steps.begins[channel][real], steps.values[real] << shift
    ends = np.array([steps.low[channel], steps.high[channel]])
    for multiplier in (nearest + nearby for nearby in _NEARBY):
        if not 0 < multiplier < 1 << 31:
            continue

        def height(accumulators: Int64Array, multiplier: int = multiplier) -> Int64Array:
            line: Int64Array = (scale * accumulators * multiplier >> 32) + np.where(accumulators < 0, jump, 0)
            return line

        least = int((values - height(begins)).max())
        most = int((values - 1 - height(begins - 1)).min())
        rounding = (least + most) // 2
        if least <= most and np.all(np.abs(height(ends)) + abs(rounding) < 1 << 31):
            return multiplier, rounding
    return None


def _negative_steps(steps: _Steps) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    negative: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = (steps.real & (steps.begins < 0)).any(axis=1)
    return negative


@lru_cache(maxsize=256)
def _steps(op: Conv2D) -> _Steps:
    limits = op.requantise.activation
    low, high = accumulator_range(op.weights, folded_bias(op.bias, op.weights, op.input_zero_point))
    values = np.arange(limits.minimum + 1, limits.maximum + 1)
    first = np.repeat(low[:, None], len(values), axis=1)
    last = np.repeat(high[:, None] + 1, len(values), axis=1)
    while np.any(first < last):
        middle = (first + last) >> 1
        reached = _outputs(op.requantise, middle) >= values
        last = np.where(reached, middle, last)
        first = np.where(reached, first, np.minimum(middle + 1, last))
    real = (first > low[:, None]) & (first <= high[:, None])
    return _Steps(low, high, values, first, real, _outputs(op.requantise, low[:, None])[:, 0])


def _outputs(requantise: Requantisation, accumulators: Int64Array) -> Int64Array:
    """disco_requantise of [channel, n]; only right where the shift goes to the right."""
    multipliers = np.array(requantise.multipliers, np.int64)[:, None]
    shifts = np.maximum(-np.array(requantise.shifts, np.int64), 0)[:, None]
    high = (accumulators * multipliers + (1 << 30)) >> 31
    scaled = (high + (1 << shifts >> 1) - ((high < 0) & (shifts > 0))) >> shifts
    limits = requantise.activation
    outputs: Int64Array = np.clip(scaled + requantise.output_zero_point, limits.minimum, limits.maximum)
    return outputs
