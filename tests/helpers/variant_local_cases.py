"""Random cases of the sizes that kernel variants are made for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tflite

from helpers.kernel_cases import GENERATORS, depthwise_conv2d_of, fully_connected_of
from helpers.kernel_driver import Case
from helpers.kernel_parts import Generator
from helpers.kernel_parts import Window as PartsWindow


def depthwise_3x3_case(rng: Generator) -> Case:
    """3 x 3 of stride 1 or 2, as in networks: larger pictures, often a fused RELU with its usual zero point."""
    stride, same = int(rng.choice([1, 1, 2])), bool(rng.random() < 0.7)
    low = 1 if same else 3
    height, width = (int(v) for v in rng.integers(low, 24, 2))
    shape = (1, height, width, int(rng.integers(4, 14)))
    pads = [max((-(-size // stride) - 1) * stride + 3 - size, 0) // 2 if same else 0 for size in (height, width)]
    padding = tflite.Padding.SAME if same else tflite.Padding.VALID
    window = PartsWindow((3, 3), (stride, stride), (1, 1), (pads[0], pads[1]), padding, (height, width))
    return depthwise_conv2d_of(rng, shape, window, 1)


def deep_fully_connected_case(rng: Generator) -> Case:
    """So many and such large weights that sums go in chunks."""
    return fully_connected_of(rng, int(rng.integers(300, 900)), int(rng.integers(1, 6)), 1)


def cases_for(name: str, count: int, seed: int) -> list[Case]:
    """`count` cases of a generator here or of kernel_cases; the same seed gives the same cases."""
    generator = _GENERATORS.get(name) or GENERATORS[name]
    return [generator(np.random.default_rng([seed, number])) for number in range(count)]


_GENERATORS: dict[str, Callable[[Generator], Case]] = {
    "depthwise_3x3": depthwise_3x3_case,
    "deep_fully_connected": deep_fully_connected_case,
    "add_products": GENERATORS["add"],
}
