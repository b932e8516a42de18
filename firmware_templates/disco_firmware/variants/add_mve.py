"""ADD with Helium (variants/add_mve.h)."""

from __future__ import annotations

from disco_firmware.kernel_params import Add
from disco_firmware.quantisation import ADD_LEFT_SHIFT
from disco_firmware.variants.base import Constants, Layer, Variant
from disco_firmware.variants.mve import requantise_fields, requantise_instructions


class AddMve(Variant):
    """Eight values at a time."""

    name = "Helium"
    header = "variants/add_mve.h"
    function = "disco_add_mve"
    structure = "disco_add_mve_t"
    instruction_set = "mve"
    params = Add

    def fits(self, layer: Layer) -> bool:
        """Inputs scaled as TFLite does: 2^20 times, and to the right."""
        p = _op(layer)
        return p.left_shift == ADD_LEFT_SHIFT and p.input1.shift <= 0 and p.input2.shift <= 0

    def constants(self, layer: Layer) -> Constants:
        """No arrays."""
        p = _op(layer)
        return Constants(
            (),
            {
                "input1_zero_point": p.input1_zero_point,
                "input2_zero_point": p.input2_zero_point,
                "input1_multiplier": p.input1.multiplier,
                "input2_multiplier": p.input2.multiplier,
                "output_multiplier": p.output.multiplier,
                "input1_shift": p.input1.shift,
                "input2_shift": p.input2.shift,
                "output_shift": p.output.shift,
                "requantise": requantise_fields(p.output_zero_point, p.activation, p.output.shift),
            },
        )

    def instructions(self, layer: Layer) -> int:
        """Of vectors of eight; each pixel apart where there are gaps between pixels."""
        p, out = _op(layer), layer.output
        inputs = sum(5 if m.shift == 0 else 11 for m in (p.input1, p.input2))
        eight = 8 + inputs + requantise_instructions(p.output_zero_point, p.activation, p.output.shift) + 4
        pixels = out.height * out.width
        if all(view.stride == out.channels for view in (*layer.inputs, out)):
            return pixels * out.channels // 8 * eight + 60
        return pixels * (-(-out.channels // 8) * eight + 20)

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """A loop and its tail."""
        return 1400


def _op(layer: Layer) -> Add:
    assert isinstance(layer.params, Add)
    return layer.params
