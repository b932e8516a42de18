"""DEPTHWISE_CONV_2D with Helium (variants/depthwise_mve.h)."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from disco_firmware.kernel_params import DepthwiseConv2D
from disco_firmware.variants.accumulators import folded_bias
from disco_firmware.variants.base import ConstantArray, Constants, Layer, Reference, Variant
from disco_firmware.variants.mve import (
    LARGEST_OFFSET,
    VECTOR,
    channel_constants,
    requantise_fields,
    requantise_instructions,
)

PATCH = 4
"""Rows and columns of the patch that a vector holds of a channel."""
COLUMN = PATCH * VECTOR
"""Bytes of a column of the strip."""
TILE = 8
"""Outputs computed together."""
_EIGHT = 19
"""Instructions for eight outputs of a channel, requantisation left out."""


@dataclass(frozen=True)
class _Tile:
    """The outputs of a channel that are computed together."""

    rows: int
    columns: int


class DepthwiseMve(Variant):
    """Windows of up to 4 x 4, as patches of one vector."""

    name = "Helium, 4 x 4 patches"
    header = "variants/depthwise_mve.h"
    function = "disco_depthwise_mve"
    structure = "disco_depthwise_mve_t"
    instruction_set = "mve"
    params = DepthwiseConv2D
    instructions_per_mac = _EIGHT / (8 * 9)  # of 3 x 3 windows

    def fits(self, layer: Layer) -> bool:
        """Windows of up to 4 x 4, dilated along the height at most."""
        w, out = _op(layer).window, layer.output
        reach = (3 * out.width + TILE) * out.stride
        return w.kernel_h <= PATCH and w.kernel_w <= PATCH and w.dilation_w == 1 and reach <= LARGEST_OFFSET

    def constants(self, layer: Layer) -> Constants:
        """Filters as columns of four, with room to move them by a row and a column."""
        op = _op(layer)
        filters = np.zeros((op.weights.shape[2], PATCH, PATCH), np.int8)
        filters[:, : op.window.kernel_w, : op.window.kernel_h] = op.weights.transpose(2, 1, 0)
        weights = np.concatenate([np.zeros(PATCH + 1, np.int8), filters.reshape(-1)])
        bias = folded_bias(op.bias, op.weights.transpose(2, 0, 1), op.input_zero_point)
        requantise = op.requantise
        return Constants(
            (
                ConstantArray("weights", "int8_t", weights, "5 zeros, then per channel 4 columns of 4"),
                ConstantArray("channels", "int32_t", channel_constants(bias, requantise), "bias, multiplier, shift"),
            ),
            {
                "window": asdict(op.window),
                "weights": Reference("weights"),
                "channels": Reference("channels"),
                "depth_multiplier": op.depth_multiplier,
                "input_zero_point": op.input_zero_point,
                "requantise": requantise_fields(requantise.output_zero_point, requantise.activation, requantise.shifts),
            },
        )

    def scratch_bytes(self, layer: Layer) -> int:
        """A row of zero points and the strip of each two rows, to the end of the last patch of the last tile."""
        tile, width = _tile(layer), layer.output.width
        outputs = -(-width // tile.columns) * tile.columns
        strips = 2 if tile.rows == 4 else 1
        last = (strips - 1) * (width + 2) + (outputs - (2 if tile.rows > 1 else 1)) * _op(layer).window.stride_w
        return VECTOR + (last + PATCH) * COLUMN

    def row_step(self, layer: Layer) -> int:
        """Two, where the patch has room for two rows of windows, and four where two patches lie one below the other."""
        return _tile(layer).rows

    def by_channels(self, layer: Layer) -> bool:
        """Group after group."""
        return _op(layer).depth_multiplier == 1

    def instructions(self, layer: Layer) -> int:
        """The strips, and their tiles of eight outputs."""
        op, out, tile = _op(layer), layer.output, _tile(layer)
        width = (out.width - 1) * op.window.stride_w + op.window.kernel_w
        column = 13 if layer.inputs[0].channels % VECTOR == 0 else 15
        strips = out.height if tile.rows == 1 else -(-out.height // 2)
        total = strips * -(-layer.inputs[0].channels // VECTOR) * (width * column + 80)
        tiles = -(-out.width // tile.columns)
        requantise = op.requantise
        eight = _EIGHT if tiles <= TILE else 22
        eight += requantise_instructions(requantise.output_zero_point, requantise.activation, requantise.shifts)
        tail = 15 if tile.rows == 4 else 6 if out.width % tile.columns else 0
        return total + -(-out.height // tile.rows) * out.channels * (tiles * eight + tail + 10)

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """With tails of rows and columns."""
        return 4500


def _op(layer: Layer) -> DepthwiseConv2D:
    assert isinstance(layer.params, DepthwiseConv2D)
    return layer.params


def _tile(layer: Layer) -> _Tile:
    """As disco_tile_of_mve chooses."""
    w, out = _op(layer).window, layer.output
    if max(w.kernel_h, w.kernel_w) == PATCH or (w.stride_h, w.stride_w, w.dilation_h) != (1, 1, 1):
        return _Tile(1, 8)
    return _Tile(4, 2) if out.height > 2 and out.width % 4 == 1 else _Tile(2, 4)
