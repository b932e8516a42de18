"""How the weights of a layer are scaled so that its requantisation takes few instructions.

The arithmetic is that of runtime/src/variants/requantise_scaled.h, which says why it is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from disco_firmware.kernel_params import ActivationRange, Multiplier, Requantisation
from disco_firmware.variants.accumulators import Int64Array, accumulator_range, requantised, rounding_offset
from disco_firmware.variants.base import output_fields

COMMON, SIGNED, GENERAL = range(3)
"""DISCO_SCALING_*."""
SCALING = np.dtype([("multiplier", "<i4"), ("offset", "<i4"), ("shift", "<i4")])
"""disco_scaling_t."""
INSTRUCTIONS = {COMMON: 3, SIGNED: 5, GENERAL: 24}
"""Of one output, storing included."""
LARGEST_SHIFT = 22
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

    def fill(self, scalings: npt.NDArray[np.void]) -> None:
        """Writes an array of SCALING."""
        scalings["multiplier"], scalings["offset"], scalings["shift"] = self.multipliers, self.offsets, self.shifts

    def with_biases(self, biases: Int64Array) -> Scaling:
        """For a kernel that adds something to its inputs."""
        return replace(self, biases=biases)

    def fields(self) -> dict[str, object]:
        """disco_output_scaling_t."""
        requantise = self.requantise
        output = output_fields(requantise.output_zero_point, requantise.activation)
        return {"kind": self.kind, "common_shift": self.common_shift, **output}


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
        """What an accumulator gives; it never falls with the accumulator."""
        return requantised(self.requantise, self.index, accumulator)

    def is_live(self) -> bool:
        """Whether its output depends on the input."""
        return self.output(self.low) != self.output(self.high)

    def threshold(self, value: int) -> int:
        """The least accumulator that gives `value` or more; there is one."""
        low, high = self.low, self.high
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.output(middle) >= value else (middle + 1, high)
        return low


def choose_scaling(requantise: Requantisation, weights: Int64Array, bias: Int64Array, largest_weight: int) -> Scaling:
    """The cheapest exact form for accumulators bias + weights * inputs whose scaled weights may reach `largest_weight`.

    weights [channels, taps], bias [channels] with the input zero point in it.
    """
    channels = _channels(requantise, weights, bias, largest_weight)
    if channels:
        common_shift = _common_shift(channels)
        common = common_shift and _common(channels, bias, common_shift, range(31))
        if common:
            return common
    return choose_plain_scaling(requantise, weights, bias, 2 * np.abs(weights).max(initial=0) <= largest_weight)


def choose_fixed_scaling(requantise: Requantisation, weights: Int64Array, bias: Int64Array, log: int) -> Scaling:
    """The same for a kernel whose sums are 2^log times the accumulator.

    The biases are scaled like that in every case; for SIGNED the kernel shifts the sums to twice the accumulator.
    """
    channels = _channels(requantise, weights, bias, (1 << 31) - 1)
    wanted = max((channel.right_shift for channel in channels if channel.is_live()), default=1) + log - 1
    if channels and 1 <= wanted <= LARGEST_SHIFT:
        common = _common(channels, bias, wanted, range(log, log + 1))
        if common:
            return common
    return choose_plain_scaling(requantise, weights, bias).with_biases(bias << log)


def choose_plain_scaling(
    requantise: Requantisation, weights: Int64Array, bias: Int64Array, doubled: bool = True
) -> Scaling:
    """The cheapest form without a common shift; `doubled`: whether accumulators can come times 2."""
    multipliers = np.array(requantise.multipliers, np.int64)
    shifts = -np.array(requantise.shifts, np.int64)
    low, high = accumulator_range(weights, bias)
    small = np.all((low > -(1 << 30)) & (high < 1 << 30))
    if small and doubled and np.all((shifts >= 1) & (shifts <= LARGEST_SHIFT)):
        offsets = rounding_offset(requantise.output_zero_point, shifts)
        return Scaling(SIGNED, 0, np.full_like(shifts, 2), 2 * bias, multipliers, offsets, shifts, requantise)
    return Scaling(GENERAL, 0, np.ones_like(shifts), bias, multipliers, 0 * shifts, -shifts, requantise)


def signed_fields(multiplier: Multiplier, zero_point: int, limits: ActivationRange) -> dict[str, object]:
    """disco_scaling_t and disco_output_scaling_t of SIGNED for an op with one multiplier, shifted right by 1 to 22."""
    shift = -multiplier.shift
    return {
        "scaling": {
            "multiplier": multiplier.multiplier,
            "offset": rounding_offset(zero_point, shift),
            "shift": shift,
        },
        "output": {"kind": SIGNED, "common_shift": 0, **output_fields(zero_point, limits)},
    }


def _channels(requantise: Requantisation, weights: Int64Array, bias: Int64Array, largest_weight: int) -> list[_Channel]:
    """Empty if an accumulator could overflow."""
    low, high = accumulator_range(weights, bias)
    reach = np.maximum(np.maximum(np.abs(low), np.abs(high)), 1)
    if np.any(reach >= 1 << 30):
        return []
    magnitudes = np.maximum(np.abs(weights).max(axis=1, initial=0), 1)
    largest = np.minimum(largest_weight // magnitudes, ((1 << 31) - 1) // reach)
    return [_Channel(requantise, c, int(low[c]), int(high[c]), int(largest[c])) for c in range(len(weights))]


def _common(channels: list[_Channel], bias: Int64Array, common_shift: int, logs: range) -> Scaling | None:
    """With factors 2^log, log one of `logs`."""
    found: list[_Line] = []
    for channel in channels:
        line = _line(channel, int(bias[channel.index]), common_shift, logs)
        if line is None:
            return None
        found.append(line)
    factors, biases, multipliers, offsets = (
        np.array([getattr(line, name) for line in found], np.int64)
        for name in ("factor", "bias", "multiplier", "offset")
    )
    return Scaling(COMMON, common_shift, factors, biases, multipliers, offsets, 0 * factors, channels[0].requantise)


def _common_shift(channels: list[_Channel]) -> int:
    """As large as weights and accumulators allow, but no larger than every channel would need; 0 if there is none."""
    live = [channel for channel in channels if channel.is_live()]
    wanted = max((channel.right_shift + 1 for channel in live), default=1)
    allowed = min((channel.right_shift + channel.largest_factor.bit_length() - 2 for channel in live), default=1)
    return max(min(wanted, allowed, LARGEST_SHIFT), 0)


def _line(channel: _Channel, bias: int, common_shift: int, logs: range) -> _Line | None:
    least, most = channel.output(channel.low), channel.output(channel.high)
    if least == most:
        # Pruned channels, and those of very small weights, give one value whatever the input.
        return _Line(0, 0, 0, least << common_shift)
    zero_point, right_shift = channel.requantise.output_zero_point, channel.right_shift
    offset = rounding_offset(zero_point, common_shift)
    log = common_shift - right_shift + 1
    positive = channel.requantise.activation.minimum >= zero_point
    if positive and 1 <= right_shift < common_shift and log in logs and 1 << log <= channel.largest_factor:
        return _Line(1 << log, bias << log, channel.multiplier, offset + (1 << (common_shift - right_shift - 1)))
    return _search(channel, bias, common_shift, offset, logs)


def _search(channel: _Channel, bias: int, common_shift: int, offset: int, logs: range) -> _Line | None:
    """Where the common shift is not the channel's own: some line that passes between all thresholds, if there is one.

    With `value` the line must reach (value << common_shift) - offset at its threshold, and not one accumulator before.
    """
    values = range(channel.output(channel.low) + 1, channel.output(channel.high) + 1)
    targets = [(channel.threshold(value), ((value << common_shift) - offset) << 32) for value in values]
    for log in range(logs.start, min(logs.stop, channel.largest_factor.bit_length())):
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
