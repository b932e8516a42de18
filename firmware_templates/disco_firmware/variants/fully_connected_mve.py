"""FULLY_CONNECTED with Helium (variants/fully_connected_mve.h)."""

from __future__ import annotations

import numpy as np

from disco_firmware.kernel_params import FullyConnected
from disco_firmware.variants.accumulators import folded_bias
from disco_firmware.variants.base import ConstantArray, Constants, Layer, Reference, Variant
from disco_firmware.variants.mve import (
    VECTOR,
    channel_constants,
    channel_groups,
    filter_groups,
    requantise_fields,
    requantise_instructions,
)

GROUP = 8
"""Output channels computed together."""
_STEP = 17
"""Instructions of the inner loop for a vector of inputs and a group of outputs."""


class FullyConnectedMve(Variant):
    """Eight output channels at a time."""

    name = "Helium, 1 x 8"
    header = "variants/fully_connected_mve.h"
    function = "disco_fully_connected_mve"
    structure = "disco_fully_connected_mve_t"
    instruction_set = "mve"
    params = FullyConnected
    instructions_per_mac = _STEP / (GROUP * VECTOR)

    def fits(self, layer: Layer) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def constants(self, layer: Layer) -> Constants:
        """Filters cut into vectors, eight of them in turn; the constants of even and of odd channels apart."""
        op = _op(layer)
        requantise = op.requantise
        bias = folded_bias(op.bias, op.weights, op.input_zero_point)
        groups = channel_groups(channel_constants(bias, requantise), GROUP)
        channels = groups.reshape(-1, GROUP // 2, 2, 3).transpose(0, 2, 3, 1)
        return Constants(
            (
                ConstantArray("weights", "int8_t", filter_groups(op.weights, GROUP), "8 filters, 16 values in turn"),
                ConstantArray("channels", "int32_t", np.ascontiguousarray(channels), "of even, of odd channels"),
            ),
            {
                "weights": Reference("weights"),
                "channels": Reference("channels"),
                "vectors": _vectors(op),
                "requantise": requantise_fields(requantise.output_zero_point, requantise.activation, requantise.shifts),
            },
        )

    def scratch_bytes(self, layer: Layer) -> int:
        """A copy of a pixel, where its end is not that of a vector."""
        depth = layer.inputs[0].channels
        return _vectors(_op(layer)) * VECTOR if depth % VECTOR else 0

    def instructions(self, layer: Layer) -> int:
        """Dot products, requantisation, the constants of eight channels."""
        op, out = _op(layer), layer.output
        requantise = op.requantise
        looped = _vectors(op) > 16
        group = _STEP * _vectors(op) + looped * 2 * ((_vectors(op) - 1) // 8) + 4 + 24
        group += requantise_instructions(requantise.output_zero_point, requantise.activation, requantise.shifts)
        depth = layer.inputs[0].channels
        copy = 20 + depth // 2 if depth % VECTOR else 0
        return out.height * out.width * (-(-out.channels // GROUP) * group + copy + 30)

    def code_bytes(self, layer: Layer) -> int:
        """The unrolled dot product and its surroundings."""
        return 68 * min(_vectors(_op(layer)), 16) + 700


def _op(layer: Layer) -> FullyConnected:
    assert isinstance(layer.params, FullyConnected)
    return layer.params


def _vectors(op: FullyConnected) -> int:
    return -(-op.weights.shape[1] // VECTOR)
