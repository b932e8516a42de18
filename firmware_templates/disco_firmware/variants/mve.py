"""What the descriptions of the Helium kernels (variants/mve.h) share."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from disco_firmware.kernel_params import ActivationRange, Int8Array, Int32Array, Requantisation
from disco_firmware.quantisation import INT8_MIN
from disco_firmware.variants.accumulators import Int64Array, wrapped
from disco_firmware.variants.base import output_fields, padded

VECTOR = 16
"""Bytes, and int8 values, of a vector."""
LARGEST_OFFSET = 0xFFFF
"""What a 16-bit lane holds of a scattering store."""


def channel_constants(bias: Int64Array, requantise: Requantisation) -> Int32Array:
    """[out, 3]: bias, multiplier, shift of each output channel."""
    return wrapped(np.array([bias, requantise.multipliers, requantise.shifts], np.int64).T)


def channel_groups(constants: Int32Array, size: int) -> Int32Array:
    """[groups, size, 3] of [out, 3], zeros beyond the last channel."""
    return padded(constants, 0, size).reshape(-1, size, 3)


def filter_groups(filters: Int8Array, size: int) -> Int8Array:
    """[groups, vectors, size, VECTOR] of [out, values], zeros beyond both ends."""
    whole = padded(padded(filters, 0, size), 1, VECTOR)
    return np.ascontiguousarray(whole.reshape(-1, size, whole.shape[1] // VECTOR, VECTOR).transpose(0, 2, 1, 3))


def requantise_fields(zero_point: int, activation: ActivationRange, shifts: npt.ArrayLike) -> Mapping[str, object]:
    """disco_requantise_mve_t."""
    return {**output_fields(zero_point, activation), "any_shift": int(np.max(shifts) > -1)}


def requantise_instructions(zero_point: int, activation: ActivationRange, shifts: npt.ArrayLike) -> int:
    """Of eight values whose constants are in registers, sums to int8 (disco_scale_mve, disco_narrow_mve)."""
    if np.max(shifts) > -1:
        return 2 * 11 + 7
    scale = 2 * (3 if activation.minimum >= zero_point else 5)
    limits = 2 * (activation.minimum > INT8_MIN) + 2 * (activation.maximum < 127)
    return scale + 3 + limits + (0 if limits == 4 else 1)
