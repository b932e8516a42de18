"""ADD on cores with the DSP extension, without a table (variants/add_products.h)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import ClassVar

import numpy as np

from disco_firmware.kernel_params import Add, Multiplier
from disco_firmware.variants.accumulators import Int64Array, multiply_by_quantised
from disco_firmware.variants.base import Constants, Layer, Variant

_LARGEST_SHIFT = 22
"""With more, not even 256 outputs fit int32."""
_NEARBY = (0, 1, -1, 2, -2, 4, -4)
"""Multipliers beside the nearest ones that are tried."""
_VALUES = np.arange(-128, 128, dtype=np.int64)


@dataclass(frozen=True)
class Products:
    """disco_add_products_t, but for the activation."""

    first: int
    second: int
    constant: int
    shift: int


class AddProducts(Variant):
    """Two multiplications per value, proven over all pairs of values."""

    name: ClassVar[str] = "two products"
    header: ClassVar[str] = "variants/add_products.h"
    function: ClassVar[str] = "disco_add_products"
    structure: ClassVar[str] = "disco_add_products_t"
    instruction_set: ClassVar[str] = "dsp"
    params: ClassVar[type] = Add

    def fits(self, layer: Layer) -> bool:
        """Where there are numbers that round all pairs of values as the reference does."""
        return find_products(_values(layer)) is not None

    def constants(self, layer: Layer) -> Constants:
        """No arrays."""
        values = _values(layer)
        found = find_products(values)
        assert found is not None
        activation = values.activation
        return Constants(
            (),
            {
                "first": found.first,
                "second": found.second,
                "constant": found.constant,
                "shift": found.shift,
                "activation_min": activation.minimum,
                "activation_max": activation.maximum,
            },
        )

    def instructions(self, layer: Layer) -> int:
        """Of eight values together, of one, and of a row of pixels; more where an activation clamps."""
        output, activation = layer.output, _values(layer).activation
        more = 0 if (activation.minimum, activation.maximum) == (-128, 127) else 4
        dense = all(view.stride == output.channels for view in (*layer.inputs, output))
        pixels = output.height * output.width
        runs, count = (1, pixels * output.channels) if dense else (pixels, output.channels)
        return runs * (count // 8 * (49 + 8 * more) + count % 8 * (11 + more) + (0 if dense else 2)) + 30

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """Eight values unrolled."""
        return 1000


def _values(layer: Layer) -> Add:
    assert isinstance(layer.params, Add)
    return layer.params


@lru_cache(maxsize=256)
def find_products(op: Add) -> Products | None:
    """Numbers for an ADD; None if there are none, or none were found."""
    real = [_real(multiplier) * _real(op.output) * 2.0**op.left_shift for multiplier in (op.input1, op.input2)]
    reach = 256 * sum(real) + 256
    shift = _LARGEST_SHIFT
    # int32 holds the sums, and the multipliers with what is tried beside them.
    while shift > 0 and (reach * 2**shift >= 2**31 or max(real) * 2 ** (shift + 8) >= 2**31 - 8):
        shift -= 1
    if shift == 0:
        return None
    expected = _reference(op)
    # An output at the end of its range may come of anything beyond.
    least = np.where(expected > op.activation.minimum, expected << shift, -(1 << 40))
    most = np.where(expected < op.activation.maximum, (expected + 1 << shift) - 1, 1 << 40)
    nearest = [round(number * 2 ** (shift + 8)) for number in real]
    for nearby in sorted(product(_NEARBY, repeat=2), key=lambda pair: abs(pair[0]) + abs(pair[1])):
        m, n = (number + beside for number, beside in zip(nearest, nearby, strict=True))
        if m < 0 or n < 0:
            continue
        sums = (m * _VALUES >> 8)[:, None] + (n * _VALUES >> 8)
        low, high = int((least - sums).max()), int((most - sums).min())
        if low <= high:
            constant = (max(low, -(1 << 31)) + min(high, (1 << 31) - 1)) // 2
            fits = all(abs(end + constant) < 1 << 31 for end in (int(sums.min()), int(sums.max())))
            return Products(m, n, constant, shift) if fits else None
    return None


def _real(multiplier: Multiplier) -> float:
    return multiplier.multiplier * 2.0 ** (multiplier.shift - 31)


def _reference(op: Add) -> Int64Array:
    """disco_add_s8 of [first, second], all values."""
    terms = [
        multiply_by_quantised((_VALUES - zero_point) << op.left_shift, scale.multiplier, scale.shift)
        for zero_point, scale in ((op.input1_zero_point, op.input1), (op.input2_zero_point, op.input2))
    ]
    sums = terms[0][:, None] + terms[1]
    scaled = multiply_by_quantised(sums, op.output.multiplier, op.output.shift)
    outputs: Int64Array = np.clip(scaled + op.output_zero_point, op.activation.minimum, op.activation.maximum)
    return outputs
