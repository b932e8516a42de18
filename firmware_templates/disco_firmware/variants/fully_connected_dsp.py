"""FULLY_CONNECTED on cores with the DSP extension."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from disco_firmware.kernel_params import FullyConnected
from disco_firmware.variants.accumulators import Int64Array, accumulator_range, folded_bias, wrapped
from disco_firmware.variants.base import ConstantArray, Constants, Layer, Reference, Variant, padded
from disco_firmware.variants.scaling import (
    COMMON,
    INSTRUCTIONS,
    SCALING,
    Scaling,
    choose_fixed_scaling,
    choose_plain_scaling,
)

GROUP = 4
"""Outputs computed together."""
CHANNEL = np.dtype([("bias", "<i4"), ("scaling", SCALING)])
"""disco_connected_channel_t."""
_QUAD = 14
"""Instructions of the inner loop for four inputs and a group of outputs."""
_SUM_BITS = 8
"""A sum is 2^8 times the accumulator."""
_EVEN, _ODD = 1, 129
"""What is added to inputs of even and odd number."""
_CHUNK_QUADS = 64
"""Over 256 inputs no sum overflows: 64 * (2 * 128 + 2 * 256) * 127 < 2^23."""


class FullyConnectedDsp(Variant):
    """int8 weights, of which only every second is extended to int16."""

    name = "int8 weights, half unpacked"
    header = "variants/fully_connected_dsp.h"
    function = "disco_fully_connected_dsp"
    structure = "disco_fully_connected_dsp_t"
    instruction_set = "dsp"
    params = FullyConnected
    instructions_per_mac = _QUAD / (4 * GROUP)

    def fits(self, layer: Layer) -> bool:
        """No weight of -128 (which TFLite does not make) where its neighbour would not fit beside it in an int16."""
        return bool(np.all(_lanes(_params(layer)) >= -32768))

    def constants(self, layer: Layer) -> Constants:
        """Weights by groups of outputs, and per output its bias and scaling."""
        params = _params(layer)
        quads = _quads(layer)
        scaling, chunked = _scaling(params)
        channels = np.zeros(len(params.weights), CHANNEL)
        channels["bias"] = wrapped(scaling.biases)
        scaling.fill(channels["scaling"])
        return Constants(
            (
                ConstantArray(
                    "weights", "uint32_t", _packed(params), "[groups of outputs][quads of inputs][4 outputs]"
                ),
                ConstantArray("channels", "disco_connected_channel_t", _whole_groups(channels), "bias and scaling"),
            ),
            {
                "weights": Reference("weights"),
                "channels": Reference("channels"),
                "quads": quads,
                "chunk_quads": _CHUNK_QUADS if chunked else quads,
                "output": scaling.fields(),
            },
        )

    def scratch_bytes(self, layer: Layer) -> int:
        """The inputs of one pixel, 8 bytes for four."""
        return 8 * _quads(layer)

    def instructions(self, layer: Layer) -> int:
        """The inner loop, and what surrounds it."""
        quads = _quads(layer)
        scaling, chunked = _scaling(_params(layer))
        group = quads * _QUAD + quads // (2 if quads % 4 or chunked else 4) * 2 + 16
        group += GROUP * (INSTRUCTIONS[scaling.kind] + (2 if scaling.kind == COMMON else 4))
        if chunked:
            group += -(-quads // _CHUNK_QUADS) * 30
        groups = -(-layer.output.channels // GROUP)
        return layer.output.height * layer.output.width * (groups * group + quads * 10 + 30)

    def code_bytes(self, layer: Layer) -> int:
        """Twice the loop if the last group is not whole."""
        return 1100 + (600 if layer.output.channels % GROUP else 0)


def _params(layer: Layer) -> FullyConnected:
    assert isinstance(layer.params, FullyConnected)
    return layer.params


def _quads(layer: Layer) -> int:
    inputs = _params(layer).weights.shape[1]
    return -(-inputs // 8) * 2


def _lanes(params: FullyConnected) -> Int64Array:
    """Pairs of weights as the int16 that holds them, [out, pairs]."""
    weights: Int64Array = padded(params.weights.astype(np.int64), 1, 8)
    return weights[:, 0::2] + 256 * weights[:, 1::2]


def _whole_groups(values: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    groups = np.zeros(-(-len(values) // GROUP) * GROUP, values.dtype)
    groups[: len(values)] = values
    return groups


def _packed(params: FullyConnected) -> npt.NDArray[np.uint32]:
    lanes = padded(_lanes(params), 0, GROUP).astype(np.int16)
    words = np.ascontiguousarray(lanes).view("<u4")
    return np.ascontiguousarray(words.reshape(-1, GROUP, words.shape[1]).transpose(0, 2, 1))


@lru_cache(maxsize=16)
def _scaling(params: FullyConnected) -> tuple[Scaling, bool]:
    """And whether the inputs go in chunks. The biases take back what the inputs are shifted by."""
    weights = params.weights.astype(np.int64)
    shifted = np.where(np.arange(weights.shape[1]) % 2 == 0, _EVEN, _ODD)
    folded = folded_bias(params.bias, weights, params.input_zero_point)
    taken_back = weights @ shifted
    low, high = accumulator_range(weights, folded)
    limit = 1 << (31 - _SUM_BITS)
    if np.all((low > -limit) & (high < limit)):
        scaling = choose_fixed_scaling(params.requantise, weights, folded, _SUM_BITS)
        return scaling.with_biases(scaling.biases - (taken_back << _SUM_BITS)), False
    scaling = choose_plain_scaling(params.requantise, weights, folded)
    return scaling.with_biases(folded - taken_back), True
