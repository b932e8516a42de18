"""DEPTHWISE_CONV_2D of any window on cores with the DSP extension."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from disco_firmware.kernel_params import DepthwiseConv2D
from disco_firmware.variants.accumulators import Int64Array, folded_bias, wrapped
from disco_firmware.variants.base import ConstantArray, Constants, Layer, Reference, Variant, padded
from disco_firmware.variants.depthwise_dsp import GROUP, lines_fields
from disco_firmware.variants.scaling import INSTRUCTIONS, SCALING, Scaling, choose_scaling

CHANNEL = np.dtype([("bias", "<i4"), ("scaling", SCALING)])
"""disco_depthwise_any_channel_t."""
_SCRATCH_BYTES = 4096


class DepthwiseAnyDsp(Variant):
    """Any kernel, stride, dilation, padding and depth multiplier."""

    name = "any window, int16 lines"
    header = "variants/depthwise_any_dsp.h"
    function = "disco_depthwise_any_dsp"
    structure = "disco_depthwise_any_dsp_t"
    instruction_set = "dsp"
    params = DepthwiseConv2D
    instructions_per_mac = 1.0

    def fits(self, layer: Layer) -> bool:
        """At least four input channels."""
        return layer.output.channels // _params(layer).depth_multiplier >= GROUP

    def constants(self, layer: Layer) -> Constants:
        """Weights in pairs of columns; bias and scaling per output."""
        params = _params(layer)
        window, spread = params.window, _spread(params)
        scaling = _scaling(params)
        channels = np.zeros(len(spread), CHANNEL)
        channels["bias"] = wrapped(scaling.biases)
        scaling.fill(channels["scaling"])
        scaled = (spread * scaling.factors[:, None, None]).astype(np.int16)
        return Constants(
            (
                ConstantArray("weights", "uint32_t", scaled.view("<u4"), "[outputs][kernel rows][pairs of columns]"),
                ConstantArray("channels", "disco_depthwise_any_channel_t", channels, "bias and scaling per output"),
            ),
            {
                "weights": Reference("weights"),
                "channels": Reference("channels"),
                "kernel_h": window.kernel_h,
                "dilation_h": window.dilation_h,
                "pairs": spread.shape[2] // 2,
                "stride_w": window.stride_w,
                "depth_multiplier": params.depth_multiplier,
                "block_rows": self.row_step(layer),
                "lines": lines_fields(params, _extent(params), _pitch(layer)),
                "output": scaling.fields(),
            },
        )

    def scratch_bytes(self, layer: Layer) -> int:
        """The lines of one group."""
        return _lines_bytes(layer, self.row_step(layer))

    def row_step(self, layer: Layer) -> int:
        """As many rows as fit into _SCRATCH_BYTES, up to 12."""
        most = min(layer.blocks_together(), 12)
        fitting = [rows for rows in range(1, most + 1) if _lines_bytes(layer, rows) <= _SCRATCH_BYTES]
        return max(fitting, default=1)

    def by_channels(self, layer: Layer) -> bool:
        """Group after group, of which the last must not overlap the one before."""
        return _params(layer).depth_multiplier == 1 and layer.output.channels % GROUP == 0

    def instructions(self, layer: Layer) -> int:
        """Two per pair of weights, once unrolled, and the loops."""
        params, output = _params(layer), layer.output
        spread = _spread(params)
        each = spread.shape[1] * spread.shape[2] + INSTRUCTIONS[_scaling(params).kind] + 12
        rows = self.row_step(layer)
        expanded = -(-output.height // rows) * _rows(params, rows) * (_pitch(layer) * 6 + 20)
        groups = -(-output.channels // params.depth_multiplier // GROUP)
        return output.height * output.width * output.channels * each + groups * expanded

    def code_bytes(self, layer: Layer) -> int:
        """The expansion, and the window unrolled."""
        spread = _spread(_params(layer))
        return 1250 + 12 * spread.shape[1] * spread.shape[2] // 2


def _params(layer: Layer) -> DepthwiseConv2D:
    assert isinstance(layer.params, DepthwiseConv2D)
    return layer.params


def _extent(params: DepthwiseConv2D) -> int:
    return (params.window.kernel_h - 1) * params.window.dilation_h + 1


def _rows(params: DepthwiseConv2D, rows: int) -> int:
    return (rows - 1) * params.window.stride_h + _extent(params)


def _pitch(layer: Layer) -> int:
    params = _params(layer)
    columns = (layer.output.width - 1) * params.window.stride_w + _spread(params).shape[2]
    return -(-columns // 4) * 4


def _lines_bytes(layer: Layer, rows: int) -> int:
    return 2 * GROUP * _rows(_params(layer), rows) * _pitch(layer)


def _spread(params: DepthwiseConv2D) -> Int64Array:
    """Weights [out, kernel_h, even number of columns], with zeros where a dilation leaves gaps."""
    weights = params.weights.transpose(2, 0, 1).astype(np.int64)
    dilation = params.window.dilation_w
    wide = np.zeros((*weights.shape[:2], (weights.shape[2] - 1) * dilation + 1), np.int64)
    wide[:, :, ::dilation] = weights
    return padded(wide, 2, 2)


@lru_cache(maxsize=16)
def _scaling(params: DepthwiseConv2D) -> Scaling:
    weights = _spread(params)
    weights = weights.reshape(len(weights), -1)
    bias = folded_bias(params.bias, weights, params.input_zero_point)
    return choose_scaling(params.requantise, weights, bias, 32767)
