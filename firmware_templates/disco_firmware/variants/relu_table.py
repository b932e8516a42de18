"""RELU, RELU6 and RELU_N1_TO_1 alone, on any core."""

from __future__ import annotations

import numpy as np

from disco_firmware.kernel_params import Relu
from disco_firmware.quantisation import Requantisation
from disco_firmware.variants.base import ConstantArray, Constants, Layer, Reference, Variant
from disco_firmware.variants.scaling import requantised


class ReluTable(Variant):
    """A table of all 256 results."""

    name = "table"
    header = "variants/relu_table.h"
    function = "disco_relu_table"
    structure = "disco_relu_table_t"
    instruction_set = "base"
    params = Relu

    def fits(self, layer: Layer) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def constants(self, layer: Layer) -> Constants:
        """The result of each value, by the value as uint8_t."""
        assert isinstance(layer.params, Relu)
        values = layer.params.values
        multiplier = values.multiplier
        requantise = Requantisation(
            (multiplier.multiplier,), (multiplier.shift,), values.output_zero_point, values.activation
        )
        inputs = np.arange(256, dtype=np.uint8).view(np.int8).tolist()
        results = [requantised(requantise, 0, value - values.input_zero_point) for value in inputs]
        table = ConstantArray("table", "int8_t", np.array(results, np.int8), "by the value as uint8_t")
        return Constants((table,), {"table": Reference("table")})

    def instructions(self, layer: Layer) -> int:
        """Three per value, and the loop."""
        output = layer.output
        return output.height * output.width * (output.channels * 15 // 4 + 12)

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """Two loops."""
        return 600
