"""ADD on cores with the DSP extension."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from disco_firmware.kernel_params import Add, Multiplier
from disco_firmware.variants.accumulators import multiply_by_quantised
from disco_firmware.variants.base import ConstantArray, Constants, Layer, Reference, Variant
from disco_firmware.variants.scaling import LARGEST_SHIFT, signed_fields

_HALF = Multiplier(1 << 30, 0)
"""The multiplier of the input with the larger scale."""


class AddTable(Variant):
    """One input by shift, the other by a table of 1 KB, or by shift too if the scales are equal."""

    name = "table"
    header = "variants/add_table.h"
    function = "disco_add_dsp"
    structure = "disco_add_table_t"
    instruction_set = "dsp"
    params = Add

    def fits(self, layer: Layer) -> bool:
        """Output shifts that the fast requantisation takes."""
        values = _values(layer)
        return values.left_shift == 20 and 1 <= -values.output.shift <= LARGEST_SHIFT

    def constants(self, layer: Layer) -> Constants:
        """The table of the input that has the smaller scale."""
        values = _values(layer)
        equal = values.input1 == values.input2
        table = ConstantArray("table", "int32_t", _table(values), "the other input, by its value as uint8_t")
        return Constants(
            () if equal else (table,),
            {
                "table": 0 if equal else Reference("table"),
                "constant": -((values.input1_zero_point + values.input2_zero_point) << 20) if equal else 0,
                "exact": _exact(values),
                "clamps_below": int(values.activation.minimum >= values.output_zero_point),
                **signed_fields(values.output, values.output_zero_point, values.activation),
            },
        )

    def instructions(self, layer: Layer) -> int:
        """7 or 8 per value, and the loop."""
        values, output = _values(layer), layer.output
        each = 7 if values.activation.minimum >= values.output_zero_point else 8
        if (values.activation.minimum, values.activation.maximum) != (-128, 127):
            each += 4
        return output.height * output.width * output.channels * (8 * each + 5) // 8 + 30

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """Eight values unrolled."""
        return 1300


def _values(layer: Layer) -> Add:
    assert isinstance(layer.params, Add)
    return layer.params


def _exact(values: Add) -> int:
    return 0 if values.input1 == _HALF else 1


def _table(values: Add) -> npt.NDArray[np.int32]:
    """Twice what the reference makes of each value of the other input, minus the zero point of the exact one."""
    if _exact(values) == 0:
        zero_point, multiplier, exact_zero_point = values.input2_zero_point, values.input2, values.input1_zero_point
    else:
        zero_point, multiplier, exact_zero_point = values.input1_zero_point, values.input1, values.input2_zero_point
    value = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.int64)
    scaled = multiply_by_quantised((value - zero_point) << values.left_shift, multiplier.multiplier, multiplier.shift)
    return (2 * scaled - (exact_zero_point << 20)).astype(np.int32)
