"""How the weights of a layer are scaled so that its requantisation takes few instructions.

The arithmetic is that of runtime/src/variants/requantise_scaled.h, which says why it is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from disco_firmware.kernel_params import Requantisation

Int64Array = npt.NDArray[np.int64]

COMMON, SIGNED, GENERAL = range(3)
"""DISCO_SCALING_*."""
INSTRUCTIONS = {COMMON: 3, SIGNED: 5, GENERAL: 24}
"""Of one output, storing included."""
_LARGEST_SHIFT = 22
"""So that the zero point and the product's high half stay far within int32 together."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """Of a layer; arrays over its output channels."""

    kind: int
    common_shift: int
    factors: Int64Array
    """What the weights are multiplied by; 0 where every input gives one output (the offset)."""
    biases: Int64Array
    """Scaled like the weights."""
    multipliers: Int64Array
    offsets: Int64Array
    shifts: Int64Array
    requantise: Requantisation

    def fields(self) -> Mapping[str, object]:
        """disco_output_scaling_t."""
        limits = self.requantise.activation
        return {
            "kind": self.kind,
            "common_shift": self.common_shift,
            "output_zero_point": self.requantise.output_zero_point,
            "activation_min": limits.minimum,
            "activation_max": limits.maximum,
        }


@dataclass(frozen=True)
class _Line:
    """One channel: floor((factor * accumulator + bias) * multiplier / 2^32) + offset, before the common shift."""

    factor: int
    bias: int
    multiplier: int
    offset: int


@dataclass(frozen=True)
class _Channel:
    """What is known of a channel; accumulators from `low` to `high`."""

    requantise: Requantisation
    index: int
    low: int
    high: int
    largest_factor: int
    """That keeps weights and accumulators in range."""

    @property
    def multiplier(self) -> int:
        return self.requantise.multipliers[self.index]

    @property
    def right_shift(self) -> int:
        return -self.requantise.shifts[self.index]

    def output(self, accumulator: int) -> int:
        """What an accumulator, with which it never falls, gives: disco_requantise of fixed_point.h."""
        wrapped = ((accumulator << max(-self.right_shift, 0)) + (1 << 31)) % (1 << 32) - (1 << 31)
        high = (wrapped * self.multiplier + (1 << 30)) >> 31
        right = max(self.right_shift, 0)
        magnitude = (abs(high) + (1 << right >> 1)) >> right
        value = (magnitude if high >= 0 else -magnitude) + self.requantise.output_zero_point
        return min(max(value, self.requantise.activation.minimum), self.requantise.activation.maximum)

    def threshold(self, value: int) -> int:
        """The least accumulator that gives `value` or more; there is one."""
        low, high = self.low, self.high
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.output(middle) >= value else (middle + 1, high)
        return low


def accumulator_range(weights: Int64Array, bias: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Least and largest accumulator over all int8 inputs; weights [channels, taps], bias with the zero point in it."""
    low = np.minimum(weights * -128, weights * 127).sum(axis=1) + bias
    high = np.maximum(weights * -128, weights * 127).sum(axis=1) + bias
    return low, high


def choose_scaling(requantise: Requantisation, weights: Int64Array, bias: Int64Array, largest_weight: int) -> Scaling:
    """The cheapest exact form for accumulators bias + weights * inputs whose scaled weights may reach `largest_weight`.

    weights [channels, taps], bias [channels] with the input zero point in it.
    """
    multipliers = np.array(requantise.multipliers, np.int64)
    shifts = -np.array(requantise.shifts, np.int64)
    low, high = accumulator_range(weights, bias)
    reach = np.maximum(np.abs(low), np.abs(high))
    if np.all(reach < 1 << 30):
        common = _common(requantise, weights, bias, largest_weight)
        if common is not None:
            return common
        doubled = 2 * np.abs(weights).max(initial=0) <= largest_weight
        if np.all((shifts >= 1) & (shifts <= _LARGEST_SHIFT)) and doubled:
            offsets = (requantise.output_zero_point << shifts) + (1 << (shifts - 1))
            twos = np.full_like(shifts, 2)
            return Scaling(SIGNED, 0, twos, 2 * bias, multipliers, offsets, shifts, requantise)
    ones = np.ones_like(shifts)
    return Scaling(GENERAL, 0, ones, bias, multipliers, 0 * ones, -shifts, requantise)


def _common(requantise: Requantisation, weights: Int64Array, bias: Int64Array, largest_weight: int) -> Scaling | None:
    low, high = accumulator_range(weights, bias)
    magnitudes = np.maximum(np.abs(weights).max(axis=1, initial=0), 1)
    reach = np.maximum(np.maximum(np.abs(low), np.abs(high)), 1)
    largest = np.minimum(largest_weight // magnitudes, ((1 << 31) - 1) // reach)
    channels = [
        _Channel(requantise, c, int(low[c]), int(high[c]), int(largest[c])) for c in range(len(requantise.shifts))
    ]
    common_shift = _common_shift(channels)
    lines = [_line(channel, int(bias[channel.index]), common_shift) for channel in channels] if common_shift else [None]
    found = [line for line in lines if line is not None]
    if len(found) < len(lines):
        return None
    factors, biases, multipliers, offsets = (
        np.array([getattr(line, name) for line in found], np.int64)
        for name in ("factor", "bias", "multiplier", "offset")
    )
    return Scaling(COMMON, common_shift, factors, biases, multipliers, offsets, 0 * factors, requantise)


def _common_shift(channels: list[_Channel]) -> int:
    """As large as weights and accumulators allow, but no larger than every channel would need; 0 if there is none."""
    live = [channel for channel in channels if channel.output(channel.low) != channel.output(channel.high)]
    wanted = max((channel.right_shift + 1 for channel in live), default=1)
    allowed = min((channel.right_shift + channel.largest_factor.bit_length() - 2 for channel in live), default=1)
    return max(min(wanted, allowed, _LARGEST_SHIFT), 0)


def _line(channel: _Channel, bias: int, common_shift: int) -> _Line | None:
    least, most = channel.output(channel.low), channel.output(channel.high)
    if least == most:
        # Pruned channels, and those of very small weights, give one value whatever the input.
        return _Line(0, 0, 0, least << common_shift)
    zero_point, right_shift = channel.requantise.output_zero_point, channel.right_shift
    offset = (zero_point << common_shift) + (1 << (common_shift - 1))
    factor = 1 << max(common_shift - right_shift + 1, 0)
    if channel.requantise.activation.minimum >= zero_point and 1 <= right_shift < common_shift:
        if factor > channel.largest_factor:
            return None
        return _Line(factor, bias * factor, channel.multiplier, offset + (1 << (common_shift - right_shift - 1)))
    return _search(channel, bias, common_shift, offset)


def _search(channel: _Channel, bias: int, common_shift: int, offset: int) -> _Line | None:
    """For a right shift beyond the common one: some line that passes between all thresholds, if there is one.

    With `value` the line must reach (value << common_shift) - offset at its threshold, and not one accumulator before.
    """
    values = range(channel.output(channel.low) + 1, channel.output(channel.high) + 1)
    targets = [(channel.threshold(value), ((value << common_shift) - offset) << 32) for value in values]
    for log in range(channel.largest_factor.bit_length()):
        scaled = channel.multiplier << 1 + common_shift
        multiplier = scaled >> channel.right_shift + log if channel.right_shift + log >= 0 else 0
        for nearby in range(max(multiplier - 2, 1), min(multiplier + 3, 1 << 31)):
            needed = [(-(-target // nearby), threshold) for threshold, target in targets]
            least = max(place - (threshold << log) for place, threshold in needed)
            most = min(place - 1 - ((threshold - 1) << log) for place, threshold in needed)
            room = (1 << 31) - (max(abs(channel.low), abs(channel.high)) << log)
            if least <= most and max(abs(least), abs(most)) < room:
                return _Line(1 << log, (bias << log) + (least + most) // 2, nearby, offset)
    return None
