"""MUL on cores with the DSP extension."""

from __future__ import annotations

from disco_firmware.kernel_params import Mul
from disco_firmware.variants.base import Constants, Layer, Variant
from disco_firmware.variants.scaling import LARGEST_SHIFT, signed_fields


class MulDsp(Variant):
    """The short requantisation."""

    name = "short requantisation"
    header = "variants/mul_dsp.h"
    function = "disco_mul_dsp"
    structure = "disco_mul_dsp_t"
    instruction_set = "dsp"
    params = Mul

    def fits(self, layer: Layer) -> bool:
        """Shifts that the fast requantisation takes."""
        return 1 <= -_values(layer).multiplier.shift <= LARGEST_SHIFT

    def constants(self, layer: Layer) -> Constants:
        """Zero points and scaling."""
        values = _values(layer)
        zero_points = {
            "input1_zero_point": values.input1_zero_point,
            "input2_zero_point": values.input2_zero_point,
        }
        return Constants(
            (), {**zero_points, **signed_fields(values.multiplier, values.output_zero_point, values.activation)}
        )

    def instructions(self, layer: Layer) -> int:
        """About 12 per value."""
        output = layer.output
        return output.height * output.width * (output.channels * 12 + 15)

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """Four values unrolled."""
        return 600


def _values(layer: Layer) -> Mul:
    assert isinstance(layer.params, Mul)
    return layer.params
