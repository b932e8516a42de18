"""The int32 accumulators of a layer: where they begin, how far they reach, and which int8 output one becomes.

The arithmetic is that of runtime/src/fixed_point.h, so that what is packed from it is exact.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from disco_firmware.kernel_params import Int8Array, Int32Array, Requantisation

Int64Array = npt.NDArray[np.int64]
_Integers = TypeVar("_Integers", int, Int64Array)


def wrapped(values: Int64Array) -> Int32Array:
    """As int32, modulo 2^32 like the accumulators."""
    return values.astype(np.uint64).astype(np.uint32).view(np.int32)


def folded_bias(bias: Int32Array | None, weights: Int8Array | Int64Array, zero_point: int) -> Int64Array:
    """What accumulators begin with when zero points stay in the inputs: the bias, less `zero_point` times the weights.

    weights [out, ...], bias [out]; int64, not wrapped.
    """
    sums: Int64Array = weights.reshape(len(weights), -1).sum(axis=1, dtype=np.int64)
    return (0 if bias is None else bias.astype(np.int64)) - zero_point * sums


def accumulator_range(weights: Int8Array | Int64Array, bias: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Least and largest accumulator of each output channel over all int8 inputs.

    weights [out, ...], bias [out] with the zero point folded in. Windows over a border are within: what lies outside of
    the input counts as the zero point, which is an int8 value.
    """
    taps = weights.reshape(len(weights), -1).astype(np.int64)
    low = np.minimum(taps * -128, taps * 127).sum(axis=1) + bias
    high = np.maximum(taps * -128, taps * 127).sum(axis=1) + bias
    return low, high


def multiply_by_quantised(values: _Integers, multiplier: int, shift: int) -> _Integers:
    """disco_multiply_by_quantised: int32 values times multiplier * 2^(shift - 31), rounded twice."""
    raised = ((values << max(shift, 0)) + (1 << 31)) % (1 << 32) - (1 << 31)
    high = (raised * multiplier + (1 << 30)) >> 31
    right = max(-shift, 0)
    magnitude = (abs(high) + (1 << right >> 1)) >> right
    return magnitude * (1 - 2 * (high < 0))


def requantised(requantise: Requantisation, channel: int, accumulator: int) -> int:
    """disco_requantise: the output of one accumulator."""
    scaled = multiply_by_quantised(accumulator, requantise.multipliers[channel], requantise.shifts[channel])
    limits = requantise.activation
    return min(max(scaled + requantise.output_zero_point, limits.minimum), limits.maximum)


def rounding_offset(zero_point: int, shift: _Integers) -> _Integers:
    """(zero point + 1/2) * 2^shift, shift >= 1: what rounds and adds the zero point ahead of a shift to the right."""
    return (2 * zero_point + 1) << shift >> 1
