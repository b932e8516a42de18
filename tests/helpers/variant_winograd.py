"""Random 3x3 convolutions of stride 1; TFLite's reference kernels say what they must give."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tflite

from helpers import kernel_parts as parts
from helpers.kernel_cases import padded_conv2d_of
from helpers.kernel_driver import Case, Int8Array


def random_case(rng: parts.Generator) -> Case:
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


def extreme_cases(transform: npt.NDArray[Any]) -> list[Case]:
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


def random_stride2_case(rng: parts.Generator) -> Case:
    """Kernels 3 wide and 1 to 4 high, columns of stride 2, rows of any; else as above."""
    kernel_h, stride_h = int(rng.integers(1, 5)), int(rng.choice([1, 2, 2, 3]))
    height, width = (int(v) for v in rng.integers(1, 24, 2))
    channels, filters = int(rng.integers(1, 21)), int(rng.integers(1, 8))
    top, left = (int(v) for v in rng.choice([0, 1, 1, 2, 3], 2))
    bottom = max(int(rng.choice([0, 1, 2])), kernel_h - height - top)
    right = max(int(rng.choice([0, 1, 3])), 3 - width - left)
    weights = parts.random_weights(rng, (filters, kernel_h, 3, channels))
    data = parts.random_values(rng, (1, height, width, channels))
    if rng.random() < 0.2:
        data, weights = rng.choice([-128, 127], data.shape), rng.choice([-127, 127], weights.shape)
    padding = (top, bottom, left, right)
    return convolution(rng, data.astype(np.int8), weights.astype(np.int8), padding, (stride_h, 2))


def convolution(
    rng: parts.Generator,
    data: Int8Array,
    weights: Int8Array,
    padding: tuple[int, int, int, int],
    strides: tuple[int, int] = (1, 1),
) -> Case:
    """With random scales, zero points, bias, activation and halos. `padding` is top, bottom, left, right."""
    top, bottom, left, right = padding
    kernel = (weights.shape[1], weights.shape[2])
    size = (data.shape[1] + top + bottom, data.shape[2] + left + right)
    window = parts.Window(kernel, strides, (1, 1), (top, left), tflite.Padding.VALID, size)
    return padded_conv2d_of(rng, data, weights, window)
