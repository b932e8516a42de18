"""RELU, RELU6 and RELU_N1_TO_1 alone, on any core."""

from __future__ import annotations

import numpy as np

from disco_firmware.kernel_params import Relu
from disco_firmware.variants.accumulators import multiply_by_quantised
from disco_firmware.variants.base import ConstantArray, Constants, Layer, Reference, Variant


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
        p = layer.params
        inputs = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.int64)
        scaled = multiply_by_quantised(inputs - p.input_zero_point, p.multiplier.multiplier, p.multiplier.shift)
        results = np.clip(scaled + p.output_zero_point, p.activation.minimum, p.activation.maximum)
        table = ConstantArray("table", "int8_t", results.astype(np.int8), "by the value as uint8_t")
        return Constants((table,), {"table": Reference("table")})

    def instructions(self, layer: Layer) -> int:
        """Three per value, and the loop."""
        output = layer.output
        return output.height * output.width * (output.channels * 15 // 4 + 12)

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """Two loops."""
        return 600
