"""Sizes and turns of variants/conv2d_dsp.h for one layer: disco_conv2d_dsp_plan_t, beside what only Python decides."""

from __future__ import annotations

from dataclasses import dataclass

from disco_firmware.kernel_params import Conv2D
from disco_firmware.variants.base import Layer

_FEW_CHANNELS = 4
"""Below it whole windows are kept: filling up every column to an even number of channels would cost too much."""
_ENOUGH_PIXELS = {1: 64, 2: 16}
"""Output pixels per turn worth having, by bytes per weight: int8 weights are widened once per turn."""
_MOST_RING_BYTES = 8192
"""Of the ring, beside what a single output row needs."""


@dataclass(frozen=True)
class Plan:
    """Sizes in words of two int16."""

    patches: bool
    """Whole windows instead of rows."""
    flat: bool
    """Output rows of a turn are computed as one."""
    rows_together: int
    row_values: int
    """Values of a kernel row, filled up."""
    ring_words: int
    block_words: int
    """int16 weights of four output channels."""
    gathered_bytes: int


def plan_layer(layer: Layer, weight_bytes: int) -> Plan:
    """The plan of a convolution with weights of 1 or 2 bytes."""
    params, view, output = layer.params, layer.inputs[0], layer.output
    assert isinstance(params, Conv2D)
    window = params.window
    if view.channels < _FEW_CHANNELS or window.dilation_w > 1:
        values = window.kernel_w * view.channels
        words = window.kernel_h * even(values) // 2
        together = _rows_together(layer, 4 * words * output.width, weight_bytes)
        ring = 2 * words * half(together * output.width)
        return Plan(True, True, together, even(values), ring, 4 * words, values)
    channels = even(view.channels)
    columns = (half(output.width) - 1) * (1 if window.kernel_w == 1 else window.stride_w) + window.kernel_w
    row_words = columns * channels
    together = _rows_together(layer, 4 * row_words * window.stride_h, weight_bytes)
    flat = (window.kernel_h, window.kernel_w, window.stride_h, window.stride_w) == (1, 1, 1, 1)
    flat = flat and window.pad_top == window.pad_left == 0
    if flat:
        ring = half(together * output.width) * channels
    else:
        ring = row_words * ((window.kernel_h - 1) * window.dilation_h + 1 + (together - 1) * window.stride_h)
    values = window.kernel_w * channels
    return Plan(False, flat, together, values, ring, 2 * window.kernel_h * values, 0)


def even(number: int) -> int:
    """`number`, or the next one if it is odd."""
    return number + number % 2


def half(number: int) -> int:
    """Half of it, rounded up."""
    return (number + 1) // 2


def _rows_together(layer: Layer, row_bytes: int, weight_bytes: int) -> int:
    """Few rows with enough pixels in them; if it can be, an even number of pixels, and a divisor of the height."""
    height, width = layer.output.height, layer.output.width
    most = min(layer.blocks_together(), max(1, _MOST_RING_BYTES // row_bytes))
    least = min(most, -(-_ENOUGH_PIXELS[weight_bytes] // width))
    numbers = range(least, min(most, 2 * least) + 1)
    return min(numbers, key=lambda rows: (rows * width % 2, height % rows != 0, rows))
