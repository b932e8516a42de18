"""Cases of the portable kernels turned into the ops that kernel variants compute, and parts of their C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from disco_firmware import kernel_params as k
from disco_firmware.variants.base import Layer, Reference
from helpers.kernel_driver import Buffer, Case, Int8Array


def layer_of(case: Case) -> Layer:
    """What the converter would know of the op of a case."""
    return Layer(_PARAMS[case.kernel](case), tuple(_view(buffer) for buffer in case.inputs), _view(case.output))


def with_any_most_rows(layer: Layer, rng: np.random.Generator | None) -> Layer:
    """Half of the layers as they are, half with few rows computed together; without `rng` as it is."""
    if rng is None or rng.random() < 0.5:
        return layer
    return replace(layer, most_rows=int(rng.integers(1, 9)))


def named_fields(fields: Mapping[str, object], prefix: str) -> dict[str, object]:
    """Fields of a parameter structure with the names of the arrays in C, which begin with `prefix`."""
    return {name: _named(value, prefix) for name, value in fields.items()}


def _named(value: object, prefix: str) -> object:
    if isinstance(value, Reference):
        return f"{prefix}{value.array}"
    return named_fields(value, prefix) if isinstance(value, Mapping) else value


def sizes(buffer: Buffer) -> str:
    """What follows the data in an initialiser of disco_input_t or disco_output_t."""
    height, width, stride = buffer.pixels.shape
    return f"{height}, {width}, {buffer.channels}, {stride}"


def _view(buffer: Buffer) -> k.View:
    height, width, stride = buffer.pixels.shape
    return k.View(height, width, buffer.channels, stride)


def _window(case: Case) -> k.Window:
    return k.Window(*case.params[:8])


def _weights(case: Case) -> Int8Array:
    weights = case.arrays[0]
    assert weights is not None
    return np.ascontiguousarray(weights)


def _requantisation(case: Case, first: int) -> k.Requantisation:
    """Its scalar part begins at parameter `first`; the arrays are the third and fourth."""
    zero_point, low, high = case.params[first : first + 3]
    multipliers, shifts = (tuple(int(v) for v in np.asarray(array)) for array in case.arrays[2:4])
    return k.Requantisation(multipliers, shifts, zero_point, k.ActivationRange(low, high))


def _conv2d(case: Case) -> k.Conv2D:
    return k.Conv2D(_window(case), _weights(case), case.arrays[1], case.params[8], _requantisation(case, 9))


def _depthwise(case: Case) -> k.DepthwiseConv2D:
    p = case.params
    weights = _weights(case)[0]
    return k.DepthwiseConv2D(_window(case), weights, case.arrays[1], p[12], p[8], _requantisation(case, 9))


def _connected(case: Case) -> k.FullyConnected:
    return k.FullyConnected(_weights(case), case.arrays[1], case.params[0], _requantisation(case, 1))


def _add(case: Case) -> k.Add:
    p = case.params
    one, two, out = (k.Multiplier(*pair) for pair in zip(p[3:6], p[6:9], strict=True))
    return k.Add(p[0], p[1], p[2], one, two, out, p[9], k.ActivationRange(p[10], p[11]))


def _mul(case: Case) -> k.Mul:
    p = case.params
    return k.Mul(p[0], p[1], p[2], k.Multiplier(p[3], p[4]), k.ActivationRange(p[5], p[6]))


def _average_pool(case: Case) -> k.AveragePool2D:
    return k.AveragePool2D(_window(case), k.ActivationRange(*case.params[8:10]))


def _max_pool(case: Case) -> k.MaxPool2D:
    return k.MaxPool2D(_window(case), k.ActivationRange(*case.params[8:10]))


def _mean(case: Case) -> k.Mean:
    p = case.params
    return k.Mean(p[0], p[1], k.Multiplier(p[2], p[3]))


def _relu(case: Case) -> k.Relu:
    p = case.params
    return k.Relu(p[0], p[1], k.Multiplier(p[2], p[3]), k.ActivationRange(p[4], p[5]))


def _softmax(case: Case) -> k.Softmax:
    return k.Softmax(k.Multiplier(*case.params[:2]), case.params[2])


_PARAMS: dict[str, Callable[[Case], k.KernelParams]] = {
    "conv2d": _conv2d,
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
