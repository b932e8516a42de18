"""CONV_2D 3 wide with columns of stride 2 by Winograd along rows in exact integers (variants/conv2d_winograd_s2.h)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from disco_firmware.kernel_params import Conv2D
from disco_firmware.variants.accumulators import folded_bias, wrapped
from disco_firmware.variants.base import ConstantArray, Constants, Layer, Reference, Variant, first_row, padded
from disco_firmware.variants.conv2d_winograd import paired
from disco_firmware.variants.conv2d_winograd_cost import PAIR, QUAD, pairs_of
from disco_firmware.variants.winograd_scaling import Lines, find_lines

OUTER = np.array([[-3, -3], [-1, 1], [1, 2], [3, 0], [0, 6]], np.int64)
"""G for a window's outer two columns, in the order of the elements."""
INNER = 6
"""For the middle one."""
_MORE = 32
"""What all of them are multiplied by: int16 holds it, and requantisation is the more exact."""
_SCALE = 6 * _MORE


class WinogradStride2(Variant):
    """Three quarters of the products; weights as int16, twice as many."""

    name: ClassVar[str] = "Winograd F4, stride 2"
    header: ClassVar[str] = "variants/conv2d_winograd_s2.h"
    function: ClassVar[str] = "disco_conv2d_winograd_s2"
    structure: ClassVar[str] = "disco_conv2d_winograd_s2_t"
    instruction_set: ClassVar[str] = "dsp"
    params: ClassVar[type] = Conv2D
    instructions_per_mac: ClassVar[float | None] = QUAD / 16 * 9 / 12
    spends_memory: ClassVar[bool] = True

    def fits(self, layer: Layer) -> bool:
        """No dilation, and lines that requantise."""
        window = _conv2d(layer).window
        if (window.kernel_w, window.stride_w, window.dilation_h, window.dilation_w) != (3, 2, 1, 1):
            return False
        return len(layer.inputs) == 1 and find_lines(_conv2d(layer), _SCALE) is not None

    def constants(self, layer: Layer) -> Constants:
        """Transformed weights, and eight numbers for two channels."""
        op = _conv2d(layer)
        window, activation, lines = op.window, op.requantise.activation, _lines(layer)
        fields: dict[str, object] = {
            "kernel_h": window.kernel_h,
            "stride_h": window.stride_h,
            "pad_top": window.pad_top,
            "pad_left": window.pad_left,
            "two_lines": int(lines.two),
            "shift": lines.shift,
            "input_zero_point": op.input_zero_point,
            "weights": Reference("weights"),
            "channels": Reference("channels"),
            "activation_min": activation.minimum,
            "activation_max": activation.maximum,
        }
        return Constants((_weights(op), _channels(op, lines)), fields)

    def scratch_bytes(self, layer: Layer) -> int:
        """An output row's elements, for two tiles each, and their sums for two output channels."""
        depth = _conv2d(layer).window.kernel_h * pairs_of(layer.inputs[0])
        return -(-layer.output.width // 8) * 9 * 4 * (2 * depth + 4)

    def first_unread(self, layer: Layer, begin: int, end: int) -> int:  # noqa: ARG002
        """All that a row needs is read before any of it is written, and kept if the next one needs it too."""
        window = _conv2d(layer).window
        return max(first_row(window, end - 1) + window.kernel_h, first_row(window, end))

    def instructions(self, layer: Layer) -> int:
        """Fitted on an emulated M4 to 15 layers of 3 to 40 channels: within 6 %, mostly 2 %."""
        op, output, pairs = _conv2d(layer), layer.output, pairs_of(layer.inputs[0])
        window, limits = op.window, op.requantise.activation
        depth, tiles, twos = window.kernel_h * pairs, -(-output.width // 4), -(-output.channels // 2)
        rows = window.kernel_h + (output.height - 1) * min(window.kernel_h, window.stride_h)
        # The last tile may read beyond its row by more than one pixel.
        cut = 8 * tiles - window.pad_left > layer.inputs[0].width
        inputs = rows * pairs * (40 * tiles + 107 * cut)
        kept = output.height * max(0, window.kernel_h - window.stride_h) * -(-tiles // 2) * 9 * pairs * 10
        element = QUAD * (depth // 2) + PAIR * (depth % 2) + 6
        products = output.height * -(-tiles // 2) * twos * (9 * element + 10)
        pixel = (5 if _lines(layer).two else 3) + 4.7 * ((limits.minimum, limits.maximum) != (-128, 127))
        outputs = output.height * (2 * twos * tiles * 30 + output.channels * output.width * pixel)
        return round(inputs + kept + products + outputs)

    def code_bytes(self, layer: Layer) -> int:
        """More where tiles are cut, and for channels that fill no word; over a hundred random layers."""
        output = layer.output
        return 6500 + 800 * (layer.inputs[0].channels % 4 > 0) + 2800 * (output.width % 4 > 0)


def _conv2d(layer: Layer) -> Conv2D:
    assert isinstance(layer.params, Conv2D)
    return layer.params


def _lines(layer: Layer) -> Lines:
    lines = find_lines(_conv2d(layer), _SCALE)
    assert lines is not None
    return lines


def _weights(op: Conv2D) -> ConstantArray:
    pairs = padded(paired(op.weights), 0, 2) * _MORE
    out, height, _, count, _ = pairs.shape
    split = pairs.reshape(out // 2, 2, height, 3, count, 2)
    outer = np.einsum("ex,okyxpc->oeypkc", OUTER, split[:, :, :, ::2])
    inner = INNER * split[:, :, :, 1].transpose(0, 2, 3, 1, 4)[:, None]
    words = np.concatenate([outer, inner], axis=1)
    packed = words.astype("<i2")
    assert np.array_equal(packed, words)
    comment = "[out / 2][6][kernel row][in / 2], each out 0 and out 1 as pairs of int16"
    return ConstantArray("weights", "uint32_t", np.ascontiguousarray(packed).reshape(-1).view("<u4"), comment)


def _channels(op: Conv2D, lines: Lines) -> ConstantArray:
    bias = folded_bias(op.bias, op.weights, op.input_zero_point + 128) * _SCALE
    products = np.stack([lines.multipliers, lines.roundings], 1)
    twos = [padded(values, 0, 2).reshape(-1, 2 * values[0].size) for values in (bias, products, lines.jumps)]
    comment = "of two channels each: biases, multiplier and rounding of each, jumps"
    return ConstantArray("channels", "int32_t", wrapped(np.concatenate(twos, 1)).reshape(-1), comment)
