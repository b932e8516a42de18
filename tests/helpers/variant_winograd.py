"""Random 3x3 convolutions of stride 1; TFLite's reference kernels say what they must give."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tflite

from disco_firmware import quantisation as q
from disco_firmware.kernel_params import Conv2D, View, Window
from disco_firmware.variants.base import Layer
from helpers import kernel_parts as parts
from helpers.kernel_driver import Buffer, Int8Array
from helpers.tflite_models import Op, Tensor
from helpers.variant_calls import VariantCase


def random_case(rng: parts.Generator) -> VariantCase:
    """Any padding up to 4, sizes from 1 pixel to four tiles, 1 to 20 channels, halos, left shifts, narrow clamps."""
    height, width = (int(v) for v in rng.integers(1, 18, 2))
    channels, filters = int(rng.integers(1, 21)), int(rng.integers(1, 8))
    top, left = (int(v) for v in rng.choice([0, 1, 1, 2, 4], 2))
    bottom, right = (
        max(int(rng.choice([0, 1, 1, 3])), 3 - height - top),
        max(int(rng.choice([0, 1, 1, 3])), 3 - width - left),
    )
    weights = parts.random_weights(rng, (filters, 3, 3, channels))
    data = parts.random_values(rng, (1, height, width, channels))
    if rng.random() < 0.2:
        data, weights = rng.choice([-128, 127], data.shape), rng.choice([-127, 127], weights.shape)
    return convolution(rng, data.astype(np.int8), weights.astype(np.int8), (top, bottom, left, right))


def extreme_cases(transform: npt.NDArray[Any]) -> list[VariantCase]:
    """One tile of inputs for each sign of each element of B' d B, which takes it to the end of its range.

    `transform` is B'.
    """
    rng = np.random.default_rng(36)
    tiles = [np.outer(row, column) * sign for row in transform for column in transform for sign in (1, -1)]
    cases = []
    for tile in tiles:
        size = len(tile)
        data = np.where(tile > 0, 127, -128).astype(np.int8).reshape(1, size, size, 1).repeat(5, 3)
        cases.append(convolution(rng, data, parts.random_weights(rng, (2, 3, 3, 5)), (0, 0, 0, 0)))
    return cases


def convolution(
    rng: parts.Generator, data: Int8Array, weights: Int8Array, padding: tuple[int, int, int, int]
) -> VariantCase:
    """With random scales, zero points, bias, activation and halos. `padding` is top, bottom, left, right."""
    top, bottom, left, right = padding
    depth = weights[0].size
    layer = parts.random_layer(rng, weights, 0, depth)
    source = parts.random_activation(rng, data.shape)
    padded = (1, data.shape[1] + top + bottom, data.shape[2] + left + right, data.shape[3])
    output_shape = (1, padded[1] - 2, padded[2] - 2, len(weights))
    output = parts.layer_output(rng, layer, source, depth, output_shape)
    activation = parts.random_fused(rng)
    options: dict[str, int | float] = {
        "Padding": tflite.Padding.VALID,
        "StrideH": 1,
        "StrideW": 1,
        "DilationHFactor": 1,
        "DilationWFactor": 1,
        "FusedActivationFunction": parts.activation_code(activation),
    }
    border = np.array([[0, 0], [top, bottom], [left, right], [0, 0]], np.int32)
    tensors = [
        source,
        Tensor((4, 2), data=border),
        Tensor(padded, source.scales, source.zero_points),
        layer.filter,
        layer.bias_tensor(source),
        output,
    ]
    ops = [Op("PAD", (0, 1), (2,), "PadOptions"), Op("CONV_2D", (2, 3, 4), (5,), "Conv2DOptions", options)]
    expected = parts.planes(parts.reference(tensors, ops, [data]))
    requantise = q.convolution_requantisation(
        source.scale, layer.channel_scales, output.scale, output.zero_points[0], activation
    )
    window = Window(3, 3, pad_top=top, pad_left=left)
    params = Conv2D(window, weights, layer.bias, source.zero_point, requantise)
    case = parts.finish_case(rng, "conv2d", (), (), [parts.planes(data)], expected)
    return VariantCase(
        Layer(params, (_view(case.inputs[0]),), _view(case.output)), case.inputs[0], case.output, expected
    )


def _view(buffer: Buffer) -> View:
    height, width, stride = buffer.pixels.shape
    return View(height, width, buffer.channels, stride)
