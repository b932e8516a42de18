"""CONV_2D 3x3 of stride 1 by Winograd's F(4x4, 3x3) or F(2x2, 3x3) in exact integers (variants/conv2d_winograd.h)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from disco_firmware.kernel_params import Conv2D, View
from disco_firmware.variants.accumulators import (
    Int64Array,
    accumulator_range,
    folded_bias,
    rounding_offset,
    wrapped,
)
from disco_firmware.variants.base import (
    ConstantArray,
    Constants,
    Layer,
    Reference,
    Variant,
    first_row,
    output_fields,
    padded,
)

STORED = {
    4: np.array([[3, 0, 0], [4, 4, 4], [4, -4, 4], [1, 2, 4], [1, -2, 4], [0, 0, 3]], np.int64),
    2: np.array([[1, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 1]], np.int64),
}
"""G by the outputs along a tile's side, in integers; its first row is halved, as the outputs' transform doubles it."""
SCALE = {4: 576, 2: 4}
"""What the outputs' transform yields: this times the accumulator."""
FRACTION_BITS = {4: 6, 2: 2}
"""What is requantised is the accumulator times two to this power, which must fit int32."""
OFFSET = 0x3800
"""DISCO_WINOGRAD_OFFSET: what the channels in the low halves of the input elements are too large by (F4)."""
POSITIVE, SIGNED, ANY = 0, 1, 2
"""DISCO_WINOGRAD_POSITIVE and so on: how accumulators are requantised."""
LARGEST_RIGHT_SHIFT = {POSITIVE: 17, SIGNED: 23}
"""Beyond it the rounding, which holds the zero point, does not fit int32."""
_QUAD = 10
"""Instructions of the inner loop for an element of two tiles: four channels and two outputs."""


@dataclass(frozen=True)
class Tiling:
    """How many tiles of outputs are computed together."""

    rows: int
    columns: int
    """Even; the tiles of a row go in twos."""


@dataclass(frozen=True)
class _Costs:
    """Instructions, fitted, and bytes of code."""

    column: float
    """Four channels of a column of inputs."""
    row: float
    """Two channels of a row of a tile."""
    tile: float
    """First half of the outputs' transform; the second half goes by columns."""
    output_column: float
    code_bytes: int


_COSTS = {4: _Costs(85, 26.7, 121, 20.3, 3400), 2: _Costs(47.7, 14.2, 36.5, 8.1, 3100)}


class _Winograd(Variant):
    header = "variants/conv2d_winograd.h"
    function = "disco_conv2d_winograd"
    structure = "disco_conv2d_winograd_t"
    instruction_set = "dsp"
    params = Conv2D
    spends_memory = True
    tile: ClassVar[int]
    """Outputs along its side: 4 or 2."""
    transformed: ClassVar[bool]
    element_bytes: ClassVar[int]
    """RAM that the tiles computed together should not pass; two tiles may."""

    def __init_subclass__(cls) -> None:
        """A quad makes 16 products; the transformed tile has fewer than the MACs that it stands for."""
        cls.instructions_per_mac = _QUAD / 16 * (cls.tile + 2) ** 2 / (9 * cls.tile**2)

    def fits(self, layer: Layer) -> bool:
        """Stride 1, 3x3, no dilation, and no accumulator beyond 2^25 (F2: 2^29), whatever the input."""
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
        low, high = accumulator_range(op.weights, folded_bias(op.bias, op.weights, op.input_zero_point))
        limit = 1 << (31 - FRACTION_BITS[self.tile])
        return bool(-limit < low.min() and high.max() < limit)

    def constants(self, layer: Layer) -> Constants:
        """The weights, and per output channel what the enumeration of DISCO_WINOGRAD_CHANNEL says."""
        op = _conv2d(layer)
        tiling = self.tiling(layer)
        requantise = op.requantise
        fields = {
            "tile": self.tile,
            "pad_top": op.window.pad_top,
            "pad_left": op.window.pad_left,
            "tile_rows": tiling.rows,
            "tile_columns": tiling.columns,
            "transformed": int(self.transformed),
            "rounding": _rounding(op),
            "input_zero_point": op.input_zero_point,
            "weights": Reference("weights"),
            "channels": Reference("channels"),
            **output_fields(requantise.output_zero_point, requantise.activation),
        }
        return Constants((self._weights(op), self._channels(op)), fields)

    def scratch_bytes(self, layer: Layer) -> int:
        """The larger of a quad's columns and, unless they are in flash, two channels' weights; then the tiles."""
        tiling = self.tiling(layer)
        columns = 4 * 2 * (self.tile + 2) * (self.tile * tiling.columns + 2)
        weights = 0 if self.transformed else self._elements * 16 * _quads(layer.inputs[0])
        return max(columns, weights) + tiling.rows * (tiling.columns // 2) * self._pair_bytes(layer)

    def row_step(self, layer: Layer) -> int:
        """A tile's rows, or those of several where transforming the weights is shared by more tiles."""
        return self.tile * self.tiling(layer).rows

    def first_unread(self, layer: Layer, begin: int, end: int) -> int:
        """Where a group of tiles is as wide as the output, all of it is read before any of it is written."""
        whole = self.tile * self.tiling(layer).columns >= layer.output.width
        return first_row(_conv2d(layer).window, end if whole else begin)

    def tiling(self, layer: Layer) -> Tiling:
        """As many tiles as `element_bytes` hold: first a row's, then (weights not in flash) several rows of them."""
        pairs = max(1, self.element_bytes // self._pair_bytes(layer))
        row = -(-layer.output.width // (2 * self.tile))
        # Groups of one width, so that none is left over with few tiles.
        columns = -(-row // -(-row // pairs))
        rows = 1 if self.transformed else max(1, min(pairs // columns, layer.blocks_together(self.tile)))
        return Tiling(rows, 2 * columns)

    def instructions(self, layer: Layer) -> int:
        """Fitted on an emulated M4 to 40 layers of 3 to 64 channels: within 7 %, mostly 3 %."""
        op, output, cost, quads = _conv2d(layer), layer.output, _COSTS[self.tile], _quads(layer.inputs[0])
        tiling = self.tiling(layer)
        rows, tiles = -(-output.height // self.tile), -(-output.width // self.tile)
        groups, pairs = -(-tiles // tiling.columns), -(-output.channels // 2)
        inputs = rows * (self.tile * tiles + 2 * groups) * (cost.column * quads + (24 if _has_tail(layer) else 0))
        inputs += rows * tiles * 2 * (self.tile + 2) * quads * cost.row
        # The last group of a row may end with half of a block of two tiles.
        blocks = rows * pairs * (tiles // tiling.columns * tiling.columns // 2 + -(-(tiles % tiling.columns) // 2))
        products = blocks * (self._elements * (_QUAD * quads + (2.4 if quads <= 4 else 5)) + 30)
        pixel = {POSITIVE: 4.8, SIGNED: 7.4, ANY: 25}[_rounding(op)] + (4.7 if _clamps(op) else 0)
        tile = cost.tile + (0 if self.transformed else 60)
        outputs = rows * tiles * tile + rows * output.width * cost.output_column + output.height * output.width * pixel
        weights = 0 if self.transformed else -(-rows // tiling.rows) * groups * pairs * quads * 4 * 180
        return round(inputs + products + output.channels * outputs + weights)

    def code_bytes(self, layer: Layer) -> int:
        """The transforms, and the inner loop of the products: up to 16 quads unrolled, for four elements if few.

        Where all are few, the transforms are there several times.
        """
        quads = _quads(layer.inputs[0])
        few = 3200 if quads <= 4 and layer.output.width <= 2 * self.tile else 300
        products = 40 * (4 * quads if quads <= 4 else min(quads, 32))
        return _COSTS[self.tile].code_bytes + (0 if self.transformed else 1700) + products + few

    def _weights(self, op: Conv2D) -> ConstantArray:
        quads = padded(padded(op.weights, 3, 4), 0, 2)
        out, _, _, channels = quads.shape
        split = quads.reshape(out // 2, 2, 3, 3, channels // 4, 4)
        if self.transformed:
            comment = (
                "G w G' as [out / 2][element][in / 4], each {in 0 and 2, in 1 and 3} x {out 0, out 1} as pairs of int16"
            )
            stored = STORED[self.tile]
            words = _pairs(np.einsum("iy,jx,okyxqc->oijqck", stored, stored, split.astype(np.int64)))
        else:
            comment = "[out / 2][in / 4][2][9], each four input channels as int8"
            words = np.ascontiguousarray(split.transpose(0, 4, 1, 2, 3, 5)).view(np.uint32)
        return ConstantArray("weights", "uint32_t", words.reshape(-1), comment)

    @property
    def _elements(self) -> int:
        return (self.tile + 2) ** 2

    def _pair_bytes(self, layer: Layer) -> int:
        """Elements of two tiles, and their sums for two output channels."""
        return self._elements * 16 * (_quads(layer.inputs[0]) + 1)

    def _channels(self, op: Conv2D) -> ConstantArray:
        shifts, rounding = _requantisation(op, FRACTION_BITS[self.tile] - 1)
        bias = folded_bias(op.bias, op.weights, op.input_zero_point + 128)
        columns = [
            bias * (SCALE[self.tile] if self.transformed else SCALE[self.tile] // 16),
            np.array(op.requantise.multipliers, np.int64),
            rounding,
            shifts,
            *(_corners(op) if self.tile == 4 else ()),
        ]
        values = wrapped(np.stack(columns, 1)).reshape(-1)
        corners = ", four corners" if self.tile == 4 else ""
        return ConstantArray("channels", "int32_t", values, f"bias, multiplier, rounding, right shift{corners}")


class WinogradF4(_Winograd):
    """Weights transformed offline: the fastest, and eight bytes of flash per weight."""

    name = "Winograd F4"
    tile = 4
    transformed = True
    element_bytes = 12 * 1024


class WinogradF4Unpacking(_Winograd):
    """Weights as they are in flash, transformed once for all tiles computed together: one byte per weight."""

    name = "Winograd F4, int8 weights"
    tile = 4
    transformed = False
    element_bytes = 24 * 1024


class WinogradF2(_Winograd):
    """Weights transformed offline, to three and a half bytes per weight."""

    name = "Winograd F2"
    tile = 2
    transformed = True
    element_bytes = 8 * 1024


def _conv2d(layer: Layer) -> Conv2D:
    assert isinstance(layer.params, Conv2D)
    return layer.params


def _quads(view: View) -> int:
    return -(-view.channels // 4)


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


def _has_tail(layer: Layer) -> bool:
    """Whether the last input channels do not fill a word."""
    return layer.inputs[0].channels % 4 != 0


def _pairs(values: Int64Array) -> npt.NDArray[np.uint32]:
    """[..., 4 input channels, 2 output channels] to [..., 2, 2] words: channel 0 below 2, and 1 below 3."""
    halves = values.astype(np.int16)
    assert np.array_equal(halves, values)
    low, high = halves[..., :2, :].view(np.uint16), halves[..., 2:, :].view(np.uint16)
    return low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16)


def _requantisation(op: Conv2D, extra: int) -> tuple[Int64Array, Int64Array]:
    """(right shifts, rounding) per channel, as the enumeration in the C header says; `extra` is its k."""
    shifts, kind = np.array(_right_shifts(op), np.int64), _rounding(op)
    if kind == ANY:
        return shifts, np.zeros_like(shifts)
    rounding = rounding_offset(op.requantise.output_zero_point, shifts)
    if kind == SIGNED:
        return shifts, rounding
    # Before the product has been rounded, which is before its last bits have gone.
    return shifts + extra, (rounding << extra) + (1 << extra >> 1)


def _corners(op: Conv2D) -> list[Int64Array]:
    """What undoes 2x2 inputs of OFFSET in the lower right corner of a tile, in its lower right 2x2 outputs."""
    low = padded(op.weights.astype(np.int64), 3, 4).reshape(len(op.weights), 3, 3, -1, 4)[..., :2].sum((3, 4))
    seen = [low[:, 2, 2], low[:, 2, 1:].sum(1), low[:, 1:, 2].sum(1), low[:, 1:, 1:].sum((1, 2))]
    return [-64 * OFFSET * values for values in seen]
