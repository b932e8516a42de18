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
    """What weights and bias are multiplied by; 0 where the output is a constant (the offset)."""
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


def input_reach(weights: Int64Array, bias: Int64Array) -> Int64Array:
    """Largest magnitude of an accumulator over all int8 inputs; weights [channels, taps], bias with the zero point in it."""
    low = np.minimum(weights * -128, weights * 127).sum(axis=1) + bias
    high = np.maximum(weights * -128, weights * 127).sum(axis=1) + bias
    return np.maximum(np.abs(low), np.abs(high))


def choose_scaling(requantise: Requantisation, weights: Int64Array, bias: Int64Array, largest_weight: int) -> Scaling:
    """The cheapest exact form for accumulators bias + weights * inputs whose scaled weights may reach `largest_weight`.

    weights [channels, taps], bias [channels] with the input zero point in it.
    """
    multipliers = np.array(requantise.multipliers, np.int64)
    shifts = -np.array(requantise.shifts, np.int64)
    reach = input_reach(weights, bias)
    common = _common(requantise, multipliers, shifts, weights, bias, reach, largest_weight)
    if common is not None:
        return common
    ones = np.ones_like(shifts)
    if np.all((shifts >= 1) & (shifts <= _LARGEST_SHIFT) & (reach < 1 << 30)) and 2 * _largest(weights) <= largest_weight:
        offsets = (requantise.output_zero_point << shifts) + (1 << (shifts - 1))
        return Scaling(SIGNED, 0, 2 * ones, multipliers, offsets, shifts, requantise)
    return Scaling(GENERAL, 0, ones, multipliers, 0 * ones, -shifts, requantise)


def _common(
    requantise: Requantisation,
    multipliers: Int64Array,
    shifts: Int64Array,
    weights: Int64Array,
    bias: Int64Array,
    reach: Int64Array,
    largest_weight: int,
) -> Scaling | None:
    zero_point = requantise.output_zero_point
    live = np.any(weights != 0, axis=1) & (multipliers != 0)
    common_shift = int(shifts[live].max(initial=1)) + 1
    if requantise.activation.minimum < zero_point or common_shift > _LARGEST_SHIFT or np.any(shifts[live] < 1):
        return None
    factors = np.where(live, 1 << np.where(live, common_shift - shifts + 1, 0), 0)
    magnitudes = np.abs(weights).max(axis=1, initial=0)
    if np.any(magnitudes * factors > largest_weight) or np.any(reach * factors >= 1 << 31):
        return None
    half = 1 << (common_shift - 1)
    offsets = (zero_point << common_shift) + half + (1 << np.where(live, common_shift - shifts - 1, 0))
    constant = np.array([_constant(requantise, c, int(bias[c])) << common_shift for c in range(len(shifts))])
    return Scaling(
        COMMON,
        common_shift,
        factors,
        np.where(live, multipliers, 0),
        np.where(live, offsets, constant),
        0 * shifts,
        requantise,
    )


def _constant(requantise: Requantisation, channel: int, accumulator: int) -> int:
    """The output for one accumulator: disco_requantise of fixed_point.h."""
    multiplier, shift = requantise.multipliers[channel], requantise.shifts[channel]
    wrapped = ((accumulator << max(shift, 0)) + (1 << 31)) % (1 << 32) - (1 << 31)
    high = (wrapped * multiplier + (1 << 30)) >> 31
    right = max(-shift, 0)
    magnitude = (abs(high) + (1 << right >> 1)) >> right
    value = (magnitude if high >= 0 else -magnitude) + requantise.output_zero_point
    return min(max(value, requantise.activation.minimum), requantise.activation.maximum)


def _largest(weights: Int64Array) -> int:
    return int(np.abs(weights).max(initial=0))
