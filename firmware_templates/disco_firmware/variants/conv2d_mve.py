"""CONV_2D with Helium (variants/conv2d_mve.h)."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from disco_firmware.kernel_params import Conv2D
from disco_firmware.variants.accumulators import folded_bias
from disco_firmware.variants.base import ConstantArray, Constants, Layer, Reference, Variant, first_row
from disco_firmware.variants.mve import (
    LARGEST_OFFSET,
    VECTOR,
    channel_constants,
    channel_groups,
    filter_groups,
    requantise_fields,
    requantise_instructions,
)

GROUP = 4
"""Output channels computed together."""
UNROLLED = 16
"""Vectors of a dot product that are written out one after the other."""
_STEP = 14
"""Instructions of the inner loop for a vector of inputs, two pixels and a group of outputs."""


class Conv2DMve(Variant):
    """Two pixels by four output channels at a time."""

    name = "Helium, 2 x 4"
    header = "variants/conv2d_mve.h"
    function = "disco_conv2d_mve"
    structure = "disco_conv2d_mve_t"
    instruction_set = "mve"
    params = Conv2D
    instructions_per_mac = _STEP / (2 * GROUP * VECTOR)

    def fits(self, layer: Layer) -> bool:
        """Every geometry, as long as a scattering store reaches from a pixel to the next."""
        return layer.output.stride + GROUP <= LARGEST_OFFSET

    def constants(self, layer: Layer) -> Constants:
        """Filters in the order of the strip, cut into vectors, four of them in turn."""
        op = _op(layer)
        filters = op.weights.transpose(0, 2, 1, 3).reshape(len(op.weights), -1)
        bias = folded_bias(op.bias, op.weights, op.input_zero_point)
        channels = channel_groups(channel_constants(bias, op.requantise), GROUP).transpose(0, 2, 1)
        spread, columns = _spread(layer)
        requantise = op.requantise
        return Constants(
            (
                ConstantArray("weights", "int8_t", filter_groups(filters, GROUP), "4 filters, 16 values in turn"),
                ConstantArray("channels", "int32_t", np.ascontiguousarray(channels), "bias, multiplier, shift of 4"),
                ConstantArray("spread", "uint8_t", spread, "places of 16 bytes of an input row in the strip"),
            ),
            {
                "window": asdict(op.window),
                "weights": Reference("weights"),
                "channels": Reference("channels"),
                "spread": Reference("spread"),
                "vectors": _vectors(op),
                "spread_columns": columns,
                "input_zero_point": op.input_zero_point,
                "requantise": requantise_fields(requantise.output_zero_point, requantise.activation, requantise.shifts),
            },
        )

    def scratch_bytes(self, layer: Layer) -> int:
        """The strip of one output row, and what the last vector of its last window reads beyond."""
        if _is_direct(layer):
            return 0
        columns, step = _strip(layer)
        column = _op(layer).window.kernel_h * layer.inputs[0].channels
        return max(columns * column, (layer.output.width - 1) * step * column + _vectors(_op(layer)) * VECTOR)

    def rows_at_once(self, layer: Layer) -> int:
        """All, where the rows of input and output are one."""
        return layer.output.height if _is_dense(layer) else 1

    def first_unread(self, layer: Layer, begin: int, end: int) -> int:
        """The strip is filled before its row is written."""
        return first_row(_op(layer).window, begin if _is_direct(layer) else end)

    def instructions(self, layer: Layer) -> int:
        """Dot products, requantisation and what surrounds a pair of pixels; then the strip."""
        op, out = _op(layer), layer.output
        dense = _is_dense(layer)
        runs, length = (1, out.height * out.width) if dense else (out.height, out.width)
        groups = -(-out.channels // GROUP)
        requantise = op.requantise
        looped = _vectors(op) > UNROLLED
        pair = _STEP * _vectors(op) + looped * (2 * ((_vectors(op) - 1) // 8) + 1) + 4
        pair += requantise_instructions(requantise.output_zero_point, requantise.activation, requantise.shifts)
        pair += 7 + 2 * (out.channels % GROUP > 0) - _moved_by_loads(layer)
        begin = (20 if dense else 40 if _vectors(op) <= 8 else 28) + 16 * (length % 2)
        total = runs * groups * (-(-length // 2) * pair + begin)
        if not _is_direct(layer):
            total += out.height * _strip_instructions(layer)
        return total

    def code_bytes(self, layer: Layer) -> int:
        """The unrolled dot product once or, with a last group of fewer channels, twice."""
        steps = min(_vectors(_op(layer)), UNROLLED)
        loops = 2 if layer.output.channels % GROUP and layer.output.channels > GROUP else 1
        return loops * (56 * steps + 650) + (0 if _is_direct(layer) else 1300)


def _op(layer: Layer) -> Conv2D:
    assert isinstance(layer.params, Conv2D)
    return layer.params


def _vectors(op: Conv2D) -> int:
    return int(-(-op.weights[0].size // VECTOR))


def _is_dense(layer: Layer) -> bool:
    window = _op(layer).window
    return _is_direct(layer) and (window.stride_h, window.stride_w) == (1, 1)


def _is_direct(layer: Layer) -> bool:
    """Whether pixels are read where they are."""
    w = _op(layer).window
    return (w.kernel_h, w.kernel_w, w.pad_top, w.pad_left) == (1, 1, 0, 0) and layer.inputs[0].channels % VECTOR == 0


def _moved_by_loads(layer: Layer) -> int:
    """Pointers that the last loads of a dot product take where the next one begins."""
    op, view = _op(layer), layer.inputs[0]
    step = (
        op.window.stride_w * view.stride if _is_direct(layer) else _strip(layer)[1] * op.window.kernel_h * view.channels
    )
    values = abs(2 * step - VECTOR * (_vectors(op) - 1)) < 128
    return (_vectors(op) <= 8) + 2 * (values and _vectors(op) <= UNROLLED)


def _strip(layer: Layer) -> tuple[int, int]:
    """Columns of the strip, and from one window to the next."""
    w, width = _op(layer).window, layer.output.width
    if w.dilation_w == 1 and w.stride_w <= w.kernel_w:
        return (width - 1) * w.stride_w + w.kernel_w, w.stride_w
    return width * w.kernel_w, w.kernel_w


def _spread(layer: Layer) -> tuple[np.typing.NDArray[np.uint8], int]:
    """Where the bytes of a vector of an input row go in the strip, and the pixels among them."""
    channels = layer.inputs[0].channels
    column = _op(layer).window.kernel_h * channels
    if channels >= VECTOR:
        return np.arange(VECTOR, dtype=np.uint8), 1
    places = np.arange(VECTOR) // channels * column + np.arange(VECTOR) % channels
    if places[-1] > 0xFF:
        return np.zeros(VECTOR, np.uint8), 1
    return places.astype(np.uint8), VECTOR // channels


def _strip_instructions(layer: Layer) -> int:
    """Of the strip of one output row."""
    op, view = _op(layer), layer.inputs[0]
    columns, _ = _strip(layer)
    at_once = _spread(layer)[1] if view.channels == view.stride else 1
    if at_once > 1:
        row = -(-columns // at_once) * 5 + 35
    else:
        row = columns * (-(-view.channels // VECTOR) * (3 if view.channels % VECTOR == 0 else 7) + 1) + 8
    return int(op.window.kernel_h * row)
