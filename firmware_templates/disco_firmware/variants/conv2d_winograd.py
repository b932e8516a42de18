"""CONV_2D 3x3 of stride 1 by Winograd's F(4x4, 3x3) or F(2x2, 3x3) in exact integers (variants/conv2d_winograd.h)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from disco_firmware.kernel_params import Conv2D
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
from disco_firmware.variants.conv2d_winograd_cost import (
    ANY,
    LINE,
    QUAD,
    SIGNED,
    TWO_LINES,
    Tiling,
    estimate_code_bytes,
    pairs_of,
    predict_instructions,
)
from disco_firmware.variants.winograd_scaling import find_lines

STORED = {
    4: np.array([[3, 0, 0], [4, 4, 4], [4, -4, 4], [1, 2, 4], [1, -2, 4], [0, 0, 3]], np.int64),
    2: np.array([[1, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 1]], np.int64),
}
"""G by the outputs along a tile's side, in integers; its first row is halved, as the outputs' transform doubles it."""
SCALE = {4: 576, 2: 4}
"""What the outputs' transform yields: this times the accumulator."""
LINE_SCALE = {4: 576, 2: 64}
"""The same with lines. F2's transformed weights leave room for 16 times as much."""
FRACTION_BITS = {4: 6, 2: 2}
"""What is requantised is the accumulator times two to this power, which must fit int32."""
OFFSET = 0x3800
"""DISCO_WINOGRAD_OFFSET: what the channels in the low halves of the input elements are too large by (F4)."""
LARGEST_RIGHT_SHIFT = 23
"""SIGNED: beyond it the rounding, which holds the zero point, does not fit int32."""


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
        cls.instructions_per_mac = QUAD / 16 * (cls.tile + 2) ** 2 / (9 * cls.tile**2)

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
        """The weights, and of two output channels each the numbers from DISCO_WINOGRAD_BIAS on."""
        op = _conv2d(layer)
        tiling = self.tiling(layer)
        requantise = op.requantise
        lines = find_lines(op, LINE_SCALE[self.tile])
        fields = {
            "tile": self.tile,
            "pad_top": op.window.pad_top,
            "pad_left": op.window.pad_left,
            "tile_rows": tiling.rows,
            "tile_columns": tiling.columns,
            "transformed": int(self.transformed),
            "rounding": self.rounding(op),
            "shift": 0 if lines is None else lines.shift,
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
        weights = 0 if self.transformed else self._elements * 8 * pairs_of(layer.inputs[0])
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
        """Within 5 % on the layers it was fitted to."""
        op = _conv2d(layer)
        return predict_instructions(layer, self.tile, self.tiling(layer), self.rounding(op), self.transformed)

    def code_bytes(self, layer: Layer) -> int:
        """Upper bound."""
        return estimate_code_bytes(layer, self.tile, self.rounding(_conv2d(layer)), self.transformed)

    def rounding(self, op: Conv2D) -> int:
        """LINE and so on."""
        lines = find_lines(op, LINE_SCALE[self.tile])
        if lines is not None:
            return TWO_LINES if lines.two else LINE
        shifts = _right_shifts(op)
        return SIGNED if min(shifts) >= 1 and max(shifts) <= LARGEST_RIGHT_SHIFT else ANY

    def _weights(self, op: Conv2D) -> ConstantArray:
        pairs = padded(paired(op.weights), 0, 2)
        out, _, _, count, _ = pairs.shape
        if self.transformed:
            comment = "G w G' as [out / 2][element][in / 2], each out 0 and out 1 as pairs of int16"
            stored, split = STORED[self.tile], pairs.reshape(out // 2, 2, 3, 3, count, 2)
            words = np.einsum("iy,jx,okyxpc->oijpkc", stored, stored, split) * (self._scale(op) // SCALE[self.tile])
            packed = words.astype("<i2")
            assert np.array_equal(packed, words)
        else:
            comment = "[out / 2][in / 4][2][9], each two pairs of int8, byte by byte"
            quads = padded(pairs, 3, 2).reshape(out // 2, 2, 3, 3, -1, 2, 2)
            packed = quads.transpose(0, 4, 1, 2, 3, 6, 5).astype(np.int8)
        return ConstantArray("weights", "uint32_t", np.ascontiguousarray(packed).reshape(-1).view("<u4"), comment)

    def _scale(self, op: Conv2D) -> int:
        """What the outputs' transform yields, divided by the accumulator."""
        return (SCALE if find_lines(op, LINE_SCALE[self.tile]) is None else LINE_SCALE)[self.tile]

    @property
    def _elements(self) -> int:
        return (self.tile + 2) ** 2

    def _pair_bytes(self, layer: Layer) -> int:
        """Elements of two tiles, and their sums for two output channels."""
        return self._elements * 8 * (pairs_of(layer.inputs[0]) + 2)

    def _channels(self, op: Conv2D) -> ConstantArray:
        scale, lines = self._scale(op), find_lines(op, LINE_SCALE[self.tile])
        bias = folded_bias(op.bias, op.weights, op.input_zero_point + 128) * scale
        columns = [bias if self.transformed else bias // 16]
        if lines is None:
            columns += _requantisation(op, self.rounding(op))
        else:
            columns += [lines.multipliers, lines.roundings, lines.jumps]
        if self.tile == 4:
            columns += _corners(op, 64 if lines is None else scale)
        pairs = padded(np.stack(columns, 1), 0, 2).reshape(-1, 2, len(columns)).transpose(0, 2, 1)
        pairs[:, 1:3] = pairs[:, 1:3].transpose(0, 2, 1).copy()  # multiplier and rounding of a channel side by side
        corners = ", four corners" if self.tile == 4 else ""
        last = "right shift" if lines is None else "jump"
        comment = f"of two channels each: bias, multiplier, rounding, {last}{corners}"
        return ConstantArray("channels", "int32_t", wrapped(pairs).reshape(-1), comment)


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


_LEFT_OVER: tuple[tuple[int, ...], ...] = ((), (0, 1), (0, 1), (0, 2, 1, 3))
"""The pairs of so many channels that are left of fours."""


def paired(weights: npt.NDArray[np.int8]) -> Int64Array:
    """[out, y, x, in] to [out, y, x, pair, 2] in the order that SXTB16 makes of four channels, and what is left.

    0 stands beside a channel that has no other.
    """
    channels = weights.shape[3]
    whole = channels - channels % 4
    order = [base + offset for base in range(0, whole, 4) for offset in (0, 2, 1, 3)]
    order += [whole + offset if offset < channels - whole else channels for offset in _LEFT_OVER[channels % 4]]
    with_zero = np.pad(weights.astype(np.int64), ((0, 0), (0, 0), (0, 0), (0, 1)))
    return with_zero[..., order].reshape(*weights.shape[:3], -1, 2)


def _right_shifts(op: Conv2D) -> list[int]:
    """A multiplier of 0 gives 0 with any shift."""
    pairs = zip(op.requantise.multipliers, op.requantise.shifts, strict=True)
    return [-shift if multiplier else 1 for multiplier, shift in pairs]


def _requantisation(op: Conv2D, kind: int) -> list[Int64Array]:
    """(multipliers, rounding, right shifts) per channel where there are no lines."""
    multipliers, shifts = np.array(op.requantise.multipliers, np.int64), np.array(_right_shifts(op), np.int64)
    if kind == ANY:
        return [multipliers, np.zeros_like(shifts), shifts]
    return [multipliers, rounding_offset(op.requantise.output_zero_point, shifts), shifts]


def _corners(op: Conv2D, scale: int) -> list[Int64Array]:
    """What undoes 2x2 inputs of OFFSET in the lower right corner of a tile, in its lower right 2x2 outputs."""
    low = paired(op.weights)[..., 0].sum(3)
    seen = [low[:, 2, 2], low[:, 2, 1:].sum(1), low[:, 1:, 2].sum(1), low[:, 1:, 1:].sum((1, 2))]
    return [-scale * OFFSET * values for values in seen]
