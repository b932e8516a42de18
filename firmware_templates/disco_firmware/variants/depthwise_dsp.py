"""DEPTHWISE_CONV_2D on cores with the DSP extension."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from disco_firmware.kernel_params import DepthwiseConv2D
from disco_firmware.variants.accumulators import folded_bias, wrapped
from disco_firmware.variants.base import ConstantArray, Constants, Layer, Reference, Variant
from disco_firmware.variants.scaling import COMMON, INSTRUCTIONS, SCALING, Scaling, choose_scaling

GROUP = 4
"""Channels expanded together."""
CHANNEL = np.dtype([("weights", "<u4", (3, 2)), ("bias", "<i4"), ("scaling", SCALING)])
"""disco_depthwise_channel_t."""
_SCRATCH_BYTES = 4096
"""Larger blocks gain little."""
_TILE = 46
"""Instructions for 2 x 2 outputs of a channel at stride 1, requantisation included."""


class Depthwise3x3Dsp(Variant):
    """3 x 3, stride 1 or 2."""

    name = "3x3, int16 planes"
    header = "variants/depthwise_dsp.h"
    function = "disco_depthwise_3x3_dsp"
    structure = "disco_depthwise_3x3_dsp_t"
    instruction_set = "dsp"
    params = DepthwiseConv2D
    instructions_per_mac = _TILE / (4 * 9)

    def fits(self, layer: Layer) -> bool:
        """One input channel per output channel, and at least four of them."""
        params = _params(layer)
        window = params.window
        strides = (window.stride_h, window.stride_w)
        return (
            (window.kernel_h, window.kernel_w) == (3, 3)
            and (window.dilation_h, window.dilation_w) == (1, 1)
            and strides in ((1, 1), (2, 2))
            and params.depth_multiplier == 1
            and layer.output.channels >= GROUP
        )

    def constants(self, layer: Layer) -> Constants:
        """Per channel its weights as pairs, its bias and its scaling."""
        params = _params(layer)
        channels, scaling = _pack(params)
        rows = self.row_step(layer)
        window = params.window
        return Constants(
            (
                ConstantArray(
                    "channels", "disco_depthwise_channel_t", channels, "weights, bias and scaling per channel"
                ),
            ),
            {
                "channels": Reference("channels"),
                "stride": window.stride_h,
                "block_rows": rows,
                "lines": lines_fields(params, 3, _pitch(layer)),
                "output": scaling.fields(),
            },
        )

    def scratch_bytes(self, layer: Layer) -> int:
        """The planes of one group."""
        return _planes_bytes(layer, self.row_step(layer))

    def row_step(self, layer: Layer) -> int:
        """The block that costs least within _SCRATCH_BYTES."""
        pairs = layer.blocks_together(2)
        sizes = [1] if layer.output.height == 1 else [2 * n for n in (*range(1, min(pairs, 6) + 1), pairs)]
        fitting = [rows for rows in sizes if _planes_bytes(layer, rows) <= _SCRATCH_BYTES] or [sizes[0]]
        return min(fitting, key=lambda rows: layer.delay(_loops(layer, rows), rows))

    def by_channels(self, layer: Layer) -> bool:
        """Group after group, of which the last must not overlap the one before."""
        return layer.output.channels % GROUP == 0

    def instructions(self, layer: Layer) -> int:
        """Expansion, tiles, and what begins a channel, a row and a block."""
        output = layer.output
        kind = _pack(_params(layer))[1].kind
        # Without the short requantisation the compiler's loop runs, one output at a time.
        extra = 0 if kind == COMMON else INSTRUCTIONS[kind] - INSTRUCTIONS[COMMON] + 14
        return _loops(layer, self.row_step(layer)) + extra * output.height * output.width * output.channels

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """The tiles and up to three expansions."""
        return 1500


def lines_fields(params: DepthwiseConv2D, extent: int, pitch: int) -> dict[str, object]:
    """disco_depthwise_lines_t."""
    return {
        "pad_top": params.window.pad_top,
        "pad_left": params.window.pad_left,
        "stride_h": params.window.stride_h,
        "extent": extent,
        "pitch": pitch,
        "input_zero_point": params.input_zero_point,
    }


def _params(layer: Layer) -> DepthwiseConv2D:
    assert isinstance(layer.params, DepthwiseConv2D)
    return layer.params


def _pitch(layer: Layer) -> int:
    """Columns of a plane: what the last tile loads, in fours."""
    width = layer.output.width
    columns = 2 * width + 2 if _params(layer).window.stride_w == 2 else width + width % 2 + 2
    return -(-columns // 4) * 4


def _plane_rows(layer: Layer, rows: int) -> int:
    return (rows - 1) * _params(layer).window.stride_h + 3


def _planes_bytes(layer: Layer, rows: int) -> int:
    return 2 * GROUP * _plane_rows(layer, rows) * _pitch(layer)


@lru_cache(maxsize=16)
def _pack(params: DepthwiseConv2D) -> tuple[npt.NDArray[np.void], Scaling]:
    weights = params.weights.reshape(9, -1).T.astype(np.int64)
    bias = folded_bias(params.bias, weights, params.input_zero_point)
    scaling = choose_scaling(params.requantise, weights, bias, 32767)
    scaled = (weights * scaling.factors[:, None]).astype(np.int16).view(np.uint16).astype(np.uint32).reshape(-1, 3, 3)
    channels = np.zeros(len(weights), CHANNEL)
    channels["weights"] = scaled[:, :, :2] | scaled[:, :, 1:] << 16
    channels["bias"] = wrapped(scaling.biases)
    scaling.fill(channels["scaling"])
    return channels, scaling


def _loops(layer: Layer, rows: int) -> int:
    """The loops as the compiler and the assembly of depthwise_dsp.h make them, plus what was measured around them."""
    params, output = _params(layer), layer.output
    stride, quads = params.window.stride_w, _pitch(layer) // 4
    pairs, odd = divmod(output.width, 2)
    total = 0
    for first in range(0, output.height, rows):
        count = min(rows, output.height - first)
        if stride == 2:
            compute = count * (30 * pairs + 14 * odd + 8)
        else:
            compute = count // 2 * (_TILE * pairs + 26 * odd + 8) + count % 2 * (29 * pairs + 14 * odd)
        # The two quads at the ends are unrolled, with the padding in registers.
        expand = _plane_rows(layer, count) * (18 * min(quads, 2) + (24 * (quads - 2) + 26 if quads > 2 else 0))
        total += -(-output.channels // GROUP) * (expand + 30 + GROUP * (compute + 26))
    return total
