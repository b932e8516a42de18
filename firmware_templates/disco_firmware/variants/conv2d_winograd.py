"""CONV_2D 3x3 of stride 1 by Winograd's F(4x4, 3x3) in exact integers (runtime/src/variants/conv2d_winograd.h)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from disco_firmware.kernel_params import Conv2D, Int32Array, View
from disco_firmware.variants.base import ConstantArray, Constants, Layer, Reference, Variant, padded

TRANSFORM = np.array([[6, 0, 0], [4, 4, 4], [4, -4, 4], [1, 2, 4], [1, -2, 4], [0, 0, 3]], np.int64)
"""G, scaled to integers; the first row is stored halved, as the outputs' transform doubles it for nothing."""
STORED = TRANSFORM // np.array([[2], [1], [1], [1], [1], [1]])
ELEMENTS = 36
SCALE = 576
"""What the outputs' transform yields: this times the accumulator."""
LARGEST_ACCUMULATOR = (1 << 25) - 1
"""64 times the accumulator must fit int32."""
OFFSET = 0x3800
"""DISCO_WINOGRAD4_OFFSET: what the channels in the low halves of the input elements are too large by."""
POSITIVE, SIGNED, ANY = 0, 1, 2
"""DISCO_WINOGRAD4_POSITIVE and so on: how accumulators are requantised."""
LARGEST_RIGHT_SHIFT = {POSITIVE: 17, SIGNED: 23}
"""Beyond it the rounding, which holds the zero point, does not fit int32."""


@dataclass(frozen=True)
class Tiling:
    """How many tiles of 4x4 outputs are computed together."""

    rows: int
    columns: int
    """Even; the tiles of a row go in twos."""


class _WinogradF4(Variant):
    header = "variants/conv2d_winograd.h"
    function = "disco_conv2d_winograd4"
    structure = "disco_conv2d_winograd4_t"
    instruction_set = "dsp"
    params = Conv2D
    transformed: ClassVar[bool]
    element_bytes: ClassVar[int]
    """RAM that the tiles computed together should not pass; two tiles may."""

    def fits(self, layer: Layer) -> bool:
        """Stride 1, 3x3, no dilation, and no accumulator beyond 2^25, whatever the input."""
        op = _conv2d(layer)
        window = op.window
        shape = (
            window.kernel_h,
            window.kernel_w,
            window.stride_h,
            window.stride_w,
            window.dilation_h,
            window.dilation_w,
        )
        if shape != (3, 3, 1, 1, 1, 1):
            return False
        low, high = accumulator_range(op)
        return low >= -LARGEST_ACCUMULATOR and high <= LARGEST_ACCUMULATOR

    def constants(self, layer: Layer) -> Constants:
        """The weights, and per output channel what the enumeration of DISCO_WINOGRAD4_CHANNEL says."""
        op = _conv2d(layer)
        tiling = self.tiling(layer)
        requantise = op.requantise
        fields = {
            "pad_top": op.window.pad_top,
            "pad_left": op.window.pad_left,
            "tile_rows": tiling.rows,
            "tile_columns": tiling.columns,
            "transformed": int(self.transformed),
            "rounding": _rounding(op),
            "input_zero_point": op.input_zero_point,
            "weights": Reference("weights"),
            "channels": Reference("channels"),
            "range": {
                "output_zero_point": requantise.output_zero_point,
                "activation_min": requantise.activation.minimum,
                "activation_max": requantise.activation.maximum,
            },
        }
        return Constants((self._weights(op), _channels(op, self.transformed)), fields)

    def scratch_bytes(self, layer: Layer) -> int:
        """The larger of a quad's columns and, unless they are in flash, two channels' weights; then the tiles."""
        tiling = self.tiling(layer)
        columns = 4 * 12 * (4 * tiling.columns + 2)
        weights = 0 if self.transformed else ELEMENTS * 16 * _quads(layer.inputs[0])
        return max(columns, weights) + tiling.rows * (tiling.columns // 2) * _pair_bytes(layer)

    def row_step(self, layer: Layer) -> int:
        """Four rows, or several times four where transforming the weights is shared by more tiles."""
        return 4 * self.tiling(layer).rows

    def tiling(self, layer: Layer) -> Tiling:
        """As many tiles as `element_bytes` hold: first a row's, then (weights not in flash) several rows of them."""
        pairs = max(1, self.element_bytes // _pair_bytes(layer))
        row = -(-layer.output.width // 8)
        # Groups of one width, so that none is left over with few tiles.
        columns = -(-row // -(-row // pairs))
        rows = 1 if self.transformed else max(1, min(pairs // columns, -(-layer.output.height // 4)))
        return Tiling(rows, 2 * columns)

    def instructions(self, layer: Layer) -> int:
        """Fitted on an emulated M4 to 34 layers of 3 to 64 channels: within 4 %."""
        op, output, quads = _conv2d(layer), layer.output, _quads(layer.inputs[0])
        tiling = self.tiling(layer)
        rows, columns = -(-output.height // 4), -(-output.width // 4)
        groups, left_over = -(-columns // tiling.columns), columns % tiling.columns
        channels, pairs = output.channels, -(-output.channels // 2)
        inputs = rows * quads * (100 * (4 * columns + 2 * groups) + 12 * (9 * groups + 18 * columns))
        blocks = rows * pairs * (columns // tiling.columns * tiling.columns // 2 + -(-left_over // 2))
        products = blocks * (ELEMENTS * (10 * quads + (2.6 if quads <= 4 else 4.3)) + 30)
        pixel = {POSITIVE: 4.2, SIGNED: 7, ANY: 23.6}[_rounding(op)] + (5.4 if _clamps(op) else 0)
        tile = 140 if self.transformed else 190
        outputs = channels * (rows * columns * tile + rows * output.width * 20 + output.height * output.width * pixel)
        weights = 0 if self.transformed else -(-rows // tiling.rows) * groups * pairs * quads * 4 * 172
        return round(inputs + products + outputs + weights)

    def code_bytes(self, layer: Layer) -> int:
        """The transforms, and the inner loop of the products: up to 16 quads unrolled, for four elements if few."""
        quads = _quads(layer.inputs[0])
        products = 40 * (4 * quads if quads <= 4 else min(quads, 16))
        return (3400 if self.transformed else 5100) + products

    def _weights(self, op: Conv2D) -> ConstantArray:
        quads = padded(padded(op.weights, 3, 4), 0, 2)
        out, _, _, channels = quads.shape
        split = quads.reshape(out // 2, 2, 3, 3, channels // 4, 4)
        if self.transformed:
            comment = (
                "G w G' as [out / 2][36][in / 4], each {in 0 and 2, in 1 and 3} x {out 0, out 1} as pairs of int16"
            )
            words = _pairs(np.einsum("iy,jx,okyxqc->oijqck", STORED, STORED, split.astype(np.int64)))
        else:
            comment = "[out / 2][in / 4][2][9], each four input channels as int8"
            words = np.ascontiguousarray(split.transpose(0, 4, 1, 2, 3, 5)).view(np.uint32)
        return ConstantArray("weights", "uint32_t", words.reshape(-1), comment)


class WinogradF4(_WinogradF4):
    """Weights transformed offline: the fastest, and eight bytes of flash per weight."""

    name = "Winograd F4"
    transformed = True
    element_bytes = 12 * 1024


class WinogradF4Unpacking(_WinogradF4):
    """Weights as they are in flash, transformed once for all tiles computed together: one byte per weight."""

    name = "Winograd F4, int8 weights"
    transformed = False
    element_bytes = 24 * 1024


def accumulator_range(op: Conv2D) -> tuple[int, int]:
    """The least and the largest accumulator, bias included, over all output channels and all int8 inputs."""
    weights = op.weights.reshape(len(op.weights), -1).astype(np.int64)
    ends = [weights * (limit - op.input_zero_point) for limit in (-128, 127)]
    bias = _bias(op)
    low, high = bias + np.minimum(*ends).sum(1), bias + np.maximum(*ends).sum(1)
    return int(low.min()), int(high.max())


def _conv2d(layer: Layer) -> Conv2D:
    assert isinstance(layer.params, Conv2D)
    return layer.params


def _quads(view: View) -> int:
    return -(-view.channels // 4)


def _pair_bytes(layer: Layer) -> int:
    """Elements of two tiles, and their sums for two output channels."""
    return ELEMENTS * 16 * (_quads(layer.inputs[0]) + 1)


def _bias(op: Conv2D) -> npt.NDArray[np.int64]:
    return np.zeros(len(op.weights), np.int64) if op.bias is None else op.bias.astype(np.int64)


def _right_shifts(op: Conv2D) -> list[int]:
    """A multiplier of 0 gives 0 with any shift."""
    pairs = zip(op.requantise.multipliers, op.requantise.shifts, strict=True)
    return [-shift if multiplier else 1 for multiplier, shift in pairs]


def _rounding(op: Conv2D) -> int:
    shifts = _right_shifts(op)
    rectified = op.requantise.activation.minimum >= op.requantise.output_zero_point
    if min(shifts) >= 1 and rectified and max(shifts) <= LARGEST_RIGHT_SHIFT[POSITIVE]:
        return POSITIVE
    return SIGNED if min(shifts) >= 1 and max(shifts) <= LARGEST_RIGHT_SHIFT[SIGNED] else ANY


def _clamps(op: Conv2D) -> bool:
    activation = op.requantise.activation
    return (activation.minimum, activation.maximum) != (-128, 127)


def _pairs(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """[..., 4 input channels, 2 output channels] to [..., 2, 2] words: channel 0 below 2, and 1 below 3."""
    halves = values.astype(np.int16)
    assert np.array_equal(halves, values)
    low, high = halves[..., :2, :].view(np.uint16), halves[..., 2:, :].view(np.uint16)
    return low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16)


def _channels(op: Conv2D, transformed: bool) -> ConstantArray:
    weights = op.weights.astype(np.int64)
    bias = _bias(op) - (op.input_zero_point + 128) * weights.sum((1, 2, 3))
    low = padded(weights, 3, 4).reshape(len(weights), 3, 3, -1, 4)[..., :2].sum((3, 4))
    # What 2x2 inputs of OFFSET in the lower right corner of a tile add to its lower right 2x2 outputs.
    seen = [low[:, 2, 2], low[:, 2, 1:].sum(1), low[:, 1:, 2].sum(1), low[:, 1:, 1:].sum((1, 2))]
    shifts, kind = np.array(_right_shifts(op)), _rounding(op)
    rounding = np.zeros_like(shifts)
    if kind != ANY:
        rounding = (2 * op.requantise.output_zero_point + 1) << shifts >> 1
    if kind == POSITIVE:
        # Before the product has been rounded, which is before its last five bits have gone.
        rounding, shifts = 32 * rounding + 16, shifts + 5
    columns: list[Any] = [
        bias * (SCALE if transformed else SCALE // 16),
        op.requantise.multipliers,
        rounding,
        shifts,
        *(-64 * OFFSET * values for values in seen),
    ]
    return ConstantArray(
        "channels",
        "int32_t",
        _wrapped(np.stack([np.asarray(column, np.int64) for column in columns], 1)).reshape(-1),
        "bias, multiplier, rounding, right shift, four corners",
    )


def _wrapped(values: npt.NDArray[np.int64]) -> Int32Array:
    """Modulo 2^32."""
    return values.astype(np.uint64).astype(np.uint32).view(np.int32)
