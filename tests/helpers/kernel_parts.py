"""The parts of random kernel cases: shapes, windows, layers with weights, buffers with halos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import tflite

from disco_firmware.kernel_params import Requantisation
from disco_firmware.reference import ReferenceModel
from helpers.kernel_driver import Buffer, Case, Int8Array
from helpers.tflite_models import Op, Tensor, build

Generator = np.random.Generator
Int32Array = npt.NDArray[np.int32]

ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")


@dataclass(frozen=True)
class Window:
    size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int]
    """Above and to the left."""
    padding: int
    """TFLite's code."""
    in_size: tuple[int, int]
    """As the output size sees it: with all padding when that is not SAME."""

    @property
    def out_size(self) -> tuple[int, int]:
        first, second = (self._out(axis) for axis in (0, 1))
        return first, second

    def _out(self, axis: int) -> int:
        stride = self.stride[axis]
        if self.padding == tflite.Padding.SAME:
            return -(-self.in_size[axis] // stride)
        extent = (self.size[axis] - 1) * self.dilation[axis] + 1
        return (self.in_size[axis] - extent) // stride + 1

    @property
    def params(self) -> tuple[int, ...]:
        return (*self.size, *self.stride, *self.dilation, *self.pad)


def random_window(rng: Generator, shape: Sequence[int], *, dilated: bool = True) -> Window:
    """A window that fits the input, or with SAME padding any, larger than the input too."""
    sizes, strides, dilations, pads = [], [], [], []
    padding = int(rng.choice([tflite.Padding.SAME, tflite.Padding.VALID]))
    dilate = dilated and rng.random() < 0.3
    for length in shape[1:3]:
        dilation = int(rng.integers(1, 4)) if dilate else 1
        stride = int(rng.integers(1, 4)) if dilation == 1 else 1
        size = int(rng.integers(1, 6))
        if padding == tflite.Padding.VALID:
            size = min(size, (length - 1) // dilation + 1)
        extent = (size - 1) * dilation + 1
        total = max((-(-length // stride) - 1) * stride + extent - length, 0)
        sizes.append(size)
        strides.append(stride)
        dilations.append(dilation)
        pads.append(total // 2 if padding == tflite.Padding.SAME else 0)
    return Window(
        (sizes[0], sizes[1]),
        (strides[0], strides[1]),
        (dilations[0], dilations[1]),
        (pads[0], pads[1]),
        padding,
        (shape[1], shape[2]),
    )


@dataclass(frozen=True, eq=False)
class Layer:
    """Weights and bias, quantised."""

    filter: Tensor
    weights: Int8Array
    bias: Int32Array | None
    channels: int

    @property
    def channel_scales(self) -> tuple[float, ...]:
        scales = self.filter.scales
        return scales if len(scales) == self.channels else scales * self.channels

    def bias_tensor(self, source: Tensor) -> Tensor:
        scales = tuple(float32(source.scale * scale) for scale in self.filter.scales)
        data = np.zeros(self.channels, np.int32) if self.bias is None else self.bias
        return Tensor((self.channels,), scales, (0,) * len(scales), data=data)


def random_weights(rng: Generator, shape: tuple[int, ...]) -> Int8Array:
    weights = rng.integers(-127, 128, shape).astype(np.int8)
    if rng.random() < 0.2:
        weights[rng.random(shape) < 0.7] = 0
    return weights


def random_layer(rng: Generator, weights: Int8Array, axis: int, depth: int) -> Layer:
    channels = weights.shape[axis]
    count = channels if rng.random() < 0.7 else 1
    scales = tuple(float32(s) for s in np.exp(rng.uniform(-7, -3, count)))
    tensor = Tensor(weights.shape, scales, (0,) * count, axis, weights)
    bias: Int32Array | None = None
    if rng.random() < 0.9:
        bias = rng.normal(0, 3000 * depth**0.5, channels).astype(np.int32)
        if rng.random() < 0.1:
            bias[rng.integers(channels)] = int(rng.choice([1 << 30, -(1 << 30), 1 << 28]))
    return Layer(tensor, weights, bias, channels)


def layer_output(
    rng: Generator,
    layer: Layer,
    source: Tensor,
    depth: int,
    shape: tuple[int, ...],
) -> Tensor:
    """Mostly a scale that spreads the outputs over int8; sometimes so small that shifts go left."""
    spread = source.scale * float(np.mean(layer.filter.scales)) * 60 * depth**0.5
    scale = spread * float(np.exp(rng.uniform(-1.5, 1.5)))
    if rng.random() < 0.15:
        scale *= float(np.exp(-rng.uniform(0, 12)))
    return Tensor(shape, (float32(scale),), (random_zero_point(rng),))


def random_shape(rng: Generator, largest: int = 9, deepest: int = 12) -> tuple[int, int, int, int]:
    height, width = (int(v) for v in rng.integers(1, largest + 1, 2))
    return 1, height, width, int(rng.integers(1, deepest + 1))


def float32(value: float) -> float:
    return float(np.float32(value))


def random_zero_point(rng: Generator) -> int:
    return int(rng.choice([-128, 127, 0, rng.integers(-128, 128), rng.integers(-128, 128)]))


def random_activation(rng: Generator, shape: tuple[int, ...]) -> Tensor:
    return Tensor(shape, (float32(float(np.exp(rng.uniform(-5, -1)))),), (random_zero_point(rng),))


def random_fused(rng: Generator) -> str:
    return str(rng.choice(ACTIVATIONS))


def activation_code(activation: str) -> int:
    return int(getattr(tflite.ActivationFunctionType, activation))


def random_values(rng: Generator, shape: Sequence[int], near: float = 0.0) -> Int8Array:
    """Any int8 values; with probability `near` values that lie close together."""
    if rng.random() < near:
        low = int(rng.integers(-128, 120))
        return rng.integers(low, low + 8, tuple(shape)).astype(np.int8)
    return rng.integers(-128, 128, tuple(shape)).astype(np.int8)


def reference(tensors: Sequence[Tensor], ops: Sequence[Op], inputs: Sequence[Int8Array]) -> Int8Array:
    content = build(tensors, ops, [ops[-1].outputs[0]])
    return ReferenceModel(content).run(inputs)[0]


def run_reference(rng: Generator, tensors: Sequence[Tensor], ops: Sequence[Op]) -> tuple[Int8Array, Int8Array]:
    """Random data for tensor 0, and the output."""
    data = random_values(rng, tensors[0].shape)
    return data, reference(tensors, ops, [data])


def requantise_params(r: Requantisation) -> tuple[int, ...]:
    return r.output_zero_point, r.activation.minimum, r.activation.maximum


def requantise_arrays(r: Requantisation) -> tuple[Int32Array, Int8Array]:
    return np.array(r.multipliers, np.int32), np.array(r.shifts, np.int8)


def planes(data: Int8Array) -> Int8Array:
    """[height, width, channels] of any tensor."""
    shape = data.shape[1:] if data.ndim == 4 else (-1, 1, data.shape[-1])
    return data.reshape(shape)


def finish_case(
    rng: Generator,
    kernel: str,
    params: tuple[int, ...],
    arrays: tuple[npt.NDArray[np.int8] | npt.NDArray[np.int32] | npt.NDArray[np.uint16] | None, ...],
    inputs: Sequence[Int8Array],
    expected: Int8Array,
    *,
    whole: bool = False,
) -> Case:
    """Adds what a node adds: halo bytes in every pixel, row ranges, a poisoned output."""
    rows = expected.shape[0]
    output = _with_halo(rng, np.zeros_like(expected))
    # Anything but what must be written, so that a value left out is seen.
    output.leading[...] = ~expected
    return Case(
        kernel,
        params,
        arrays,
        tuple(_with_halo(rng, data) for data in inputs),
        output,
        ((0, rows),) if whole else _ranges(rng, rows),
        expected,
    )


def _with_halo(rng: Generator, data: Int8Array) -> Buffer:
    height, width, channels = data.shape
    stride = channels + int(rng.choice([0, 0, 1, 5]))
    pixels = rng.integers(-128, 128, (height, width, stride)).astype(np.int8)
    pixels[:, :, :channels] = data
    return Buffer(pixels, channels)


def _ranges(rng: Generator, rows: int) -> tuple[tuple[int, int], ...]:
    """All rows at once, row by row, or a part of them."""
    style = rng.random()
    if style < 0.3:
        return ((0, rows),)
    if style < 0.6:
        return tuple((row, row + 1) for row in range(rows))
    begin, end = sorted(int(v) for v in rng.integers(0, rows + 1, 2))
    return ((begin, end),)
