"""Cases of the portable kernels turned into the ops that kernel variants compute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tflite

from disco_firmware import quantisation as q
from disco_firmware.kernel_params import (
    Add,
    AveragePool2D,
    DepthwiseConv2D,
    FullyConnected,
    KernelParams,
    MaxPool2D,
    Mean,
    Mul,
    Relu,
    Softmax,
    Window,
)
from helpers.kernel_cases import GENERATORS, depthwise_conv2d_of, fully_connected_of
from helpers.kernel_driver import Case
from helpers.kernel_parts import Generator
from helpers.kernel_parts import Window as PartsWindow


def params_of(case: Case) -> KernelParams:
    """The op of a case."""
    return _PARAMS[case.kernel](case)


def _window(values: tuple[int, ...]) -> Window:
    return Window(*values[:8])


def _requantisation(case: Case, first: int) -> q.Requantisation:
    """Its scalar part begins at parameter `first`; the arrays are the third and fourth."""
    zero_point, low, high = case.params[first : first + 3]
    multipliers, shifts = (tuple(int(v) for v in np.asarray(array)) for array in case.arrays[2:4])
    return q.Requantisation(multipliers, shifts, zero_point, q.ActivationRange(low, high))


def _depthwise(case: Case) -> KernelParams:
    weights, bias, _, _ = case.arrays
    assert weights is not None
    return DepthwiseConv2D(
        _window(case.params), weights[0], bias, case.params[12], case.params[8], _requantisation(case, 9)
    )


def _connected(case: Case) -> KernelParams:
    weights, bias, _, _ = case.arrays
    assert weights is not None
    return FullyConnected(weights, bias, case.params[0], _requantisation(case, 1))


def _add(case: Case) -> KernelParams:
    zero1, zero2, zero, m1, m2, m, s1, s2, s, left, low, high = case.params
    multipliers = (q.Multiplier(m1, s1), q.Multiplier(m2, s2), q.Multiplier(m, s))
    return Add(q.AddParameters(zero1, zero2, zero, *multipliers, left, q.ActivationRange(low, high)))


def _mul(case: Case) -> KernelParams:
    zero1, zero2, zero, multiplier, shift, low, high = case.params
    return Mul(q.MulParameters(zero1, zero2, zero, q.Multiplier(multiplier, shift), q.ActivationRange(low, high)))


def _average_pool(case: Case) -> KernelParams:
    return AveragePool2D(_window(case.params), q.ActivationRange(*case.params[8:10]))


def _max_pool(case: Case) -> KernelParams:
    return MaxPool2D(_window(case.params), q.ActivationRange(*case.params[8:10]))


def _mean(case: Case) -> KernelParams:
    zero_in, zero_out, multiplier, shift = case.params
    return Mean(q.MeanParameters(zero_in, zero_out, q.Multiplier(multiplier, shift)))


def _relu(case: Case) -> KernelParams:
    zero_in, zero_out, multiplier, shift, low, high = case.params
    return Relu(q.ReluParameters(zero_in, zero_out, q.Multiplier(multiplier, shift), q.ActivationRange(low, high)))


def _softmax(case: Case) -> KernelParams:
    return Softmax(q.SoftmaxParameters(q.Multiplier(*case.params[:2]), case.params[2]))


_PARAMS: dict[str, Callable[[Case], KernelParams]] = {
    "depthwise_conv2d": _depthwise,
    "fully_connected": _connected,
    "add": _add,
    "mul": _mul,
    "average_pool2d": _average_pool,
    "max_pool2d": _max_pool,
    "mean": _mean,
    "relu": _relu,
    "softmax": _softmax,
}


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
}
