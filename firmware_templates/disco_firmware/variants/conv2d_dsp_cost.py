"""How many instructions variants/conv2d_dsp.h takes, and how large its code becomes.

The inner loop's count is exact; what surrounds it was fitted to counts of an emulated Cortex-M4 (arm-none-eabi-gcc
12.2, -O3) over the convolutions of ResNet-8, MobileNetV1 0.25 and DS-CNN, which it meets within 3 %.
"""

from __future__ import annotations

from disco_firmware.kernel_params import Conv2D
from disco_firmware.variants.base import Layer
from disco_firmware.variants.conv2d_dsp_plan import Plan, half
from disco_firmware.variants.conv2d_scaling import GENERAL, SIGNED, Scaling

PAIR = 11
"""Of the inner loop: for a pair of values, two pixels and four output channels."""
_CHECK = 3
"""The end of the inner loop, every 16 pairs."""
_FLAT_STEP, _FLAT_STEP_VARYING, _RING_STEP, _KERNEL_ROW = 22.2, 45.0, 12.3, 14.0
"""Around the sums of two pixels and four output channels: in turns of one size, of several sizes; in the ring, and
there for every kernel row."""
_BLOCK_ROW = 74.0
"""For an output row, or a flat turn, and four output channels."""
_OUTPUT = {"positive": 3.5, "signed": 5.7, "general": 25.0}
_OUTPUT_SHIFT = 1.5
"""More where channels shift differently."""
_WINDOW_ROW = 24.0
"""A row of a window that is kept as a whole, of few values."""
_GATHERED = 2.0
"""More for each of its values where there are gaps between them."""
_PIXEL, _FOUR_VALUES, _SCALED_PAIR = 3.0, 3.25, 1.4
"""Into the ring: an input pixel, four of its values, and doubling of a pair."""
_EIGHT_WEIGHTS = 7.6
"""Widened."""
_UNROLLED_WIDTH = 12
"""Below it GCC may repeat the code for a pixel pair."""


def predict_instructions(layer: Layer, plan: Plan, scaling: Scaling, weight_bytes: int) -> int:
    """For the whole layer."""
    output = layer.output
    blocks = -(-output.channels // 4)
    turns = -(-output.height // plan.rows_together)
    sums, runs, rows = _sums(layer, plan)
    run = plan.row_values // 2 * (_window_h(layer) if plan.patches else 1)
    count: float = blocks * runs * (PAIR * run + (_CHECK * (1 + run // 16) if run >= 32 else 0))
    if plan.flat:
        count += blocks * sums * (_FLAT_STEP_VARYING if output.height % plan.rows_together else _FLAT_STEP)
    else:
        count += blocks * (sums * _RING_STEP + runs * _KERNEL_ROW)
    count += blocks * rows * _BLOCK_ROW
    count += 2 * sums * output.channels * _per_output(scaling)
    count += _filling(layer, plan, scaling)
    count += turns * blocks * plan.block_words / 4 * _EIGHT_WEIGHTS if weight_bytes == 1 else 0
    return round(count)


def estimate_code_bytes(layer: Layer, plan: Plan, scaling: Scaling, weight_bytes: int) -> int:
    """Upper bound, for arm-none-eabi-gcc 12.2 -O3."""
    run = plan.row_values // 2 * (_window_h(layer) if plan.patches else 1)
    unrolled = run if run < 32 else 16 + run % 16
    bodies = 1 + (layer.output.channels % 4 > 0) + (not plan.flat and layer.output.width < _UNROLLED_WIDTH)
    around = 700 if plan.flat and not plan.patches else 1200
    around += 600 if layer.inputs[0].channels % 4 else 0
    around += 1700 if _dilated(layer) else 0
    body = 4 * PAIR * unrolled + (700 if scaling.form == GENERAL else 0)
    return around + body + (bodies - 1) * (body + 1000) + (450 if weight_bytes == 1 else 0)


def _dilated(layer: Layer) -> bool:
    assert isinstance(layer.params, Conv2D)
    return layer.params.window.dilation_w > 1


def _sums(layer: Layer, plan: Plan) -> tuple[int, int, int]:
    """Pairs of output pixels, runs of the inner loop for each block over all of them, rows they are computed in."""
    output = layer.output
    if plan.flat:
        begins = range(0, output.height, plan.rows_together)
        sums = sum(half(min(plan.rows_together, output.height - begin) * output.width) for begin in begins)
        return sums, sums, len(begins)
    return half(output.width) * output.height, half(output.width) * _kernel_rows(layer), output.height


def _kernel_rows(layer: Layer) -> int:
    """Kernel rows inside of the input, over all output rows."""
    assert isinstance(layer.params, Conv2D)
    window = layer.params.window
    tops = range(-window.pad_top, layer.output.height * window.stride_h - window.pad_top, window.stride_h)
    offsets = range(0, window.kernel_h * window.dilation_h, window.dilation_h)
    return sum(0 <= top + offset < layer.inputs[0].height for top in tops for offset in offsets)


def _window_h(layer: Layer) -> int:
    assert isinstance(layer.params, Conv2D)
    return layer.params.window.kernel_h


def _per_output(scaling: Scaling) -> float:
    form = {GENERAL: "general", SIGNED: "signed"}.get(scaling.form, "positive")
    return _OUTPUT[form] + (_OUTPUT_SHIFT if scaling.shift == 0 else 0)


def _filling(layer: Layer, plan: Plan, scaling: Scaling) -> float:
    view, output = layer.inputs[0], layer.output
    assert isinstance(layer.params, Conv2D)
    window = layer.params.window
    if plan.patches:
        rows = output.height * output.width * window.kernel_h
        values = window.kernel_w * view.channels
        more = _FOUR_VALUES * max(0, values - 9) / 4
        if window.dilation_w > 1 or view.stride > view.channels:
            more += _GATHERED * values
        return rows * (_WINDOW_ROW + more + half(values) * scaling.pixel_scale * _SCALED_PAIR)
    width = output.width if window.kernel_w == 1 else view.width + max(0, window.kernel_w - window.stride_w)
    pixels = width * (output.height if window.kernel_h == 1 else view.height)
    pairs = half(view.channels)
    return pixels * (_PIXEL + _FOUR_VALUES * half(pairs) + pairs * scaling.pixel_scale * _SCALED_PAIR)
