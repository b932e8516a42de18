"""Random cases for the C kernels; TFLite's reference kernels say what they must give.

The parameters come from `disco_firmware.quantisation`, as they do in the converter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import tflite

from disco_firmware import quantisation as q
from disco_firmware.reference import ReferenceModel
from helpers.kernel_driver import Buffer, Case, Int8Array
from helpers.tflite_models import Op, Tensor, build

Generator = np.random.Generator
Int32Array = npt.NDArray[np.int32]

ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")


def conv2d_case(rng: Generator) -> Case:
    """CONV_2D: kernels, strides, dilations, paddings, per-channel and per-tensor scales."""
    shape = _shape(rng)
    window = _window(rng, shape)
    out_channels = int(rng.integers(1, 14))
    depth = window.size[0] * window.size[1] * shape[3]
    weights = _weights(rng, (out_channels, *window.size, shape[3]))
    layer = _layer(rng, weights, 0, depth)
    source = _activation(rng, shape)
    output = _output(rng, layer, source, depth, (1, *window.out_size, out_channels))
    activation = _activation_of(rng)
    data, expected = _run_reference(
        rng,
        [source, layer.filter, layer.bias_tensor(source), output],
        _convolution_ops("CONV_2D", "Conv2DOptions", window, activation, layer),
    )
    return _convolution_case(
        rng, "conv2d", window, layer, source, output, activation, data, expected, ()
    )


def padded_conv2d_case(rng: Generator) -> Case:
    """PAD by the zero point, then CONV_2D without padding, as one CONV_2D with padding."""
    shape = _shape(rng)
    kernel = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    top, bottom, left, right = (int(v) for v in rng.integers(0, 5, 4))
    padded = (1, shape[1] + top + bottom + 2, shape[2] + left + right + 2, shape[3])
    bottom, right = bottom + 2, right + 2
    stride = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    inner = _Window(kernel, stride, (1, 1), (0, 0), tflite.Padding.VALID, padded[1:3])
    out_channels = int(rng.integers(1, 10))
    depth = kernel[0] * kernel[1] * shape[3]
    layer = _layer(rng, _weights(rng, (out_channels, *kernel, shape[3])), 0, depth)
    source = _activation(rng, shape)
    output = _output(rng, layer, source, depth, (1, *inner.out_size, out_channels))
    activation = _activation_of(rng)
    paddings = np.array([[0, 0], [top, bottom], [left, right], [0, 0]], np.int32)
    conv = _convolution_ops("CONV_2D", "Conv2DOptions", inner, activation, layer)[0]
    data, expected = _run_reference(
        rng,
        [
            source,
            Tensor((4, 2), data=paddings),
            Tensor(padded, source.scales, source.zero_points),
            layer.filter,
            layer.bias_tensor(source),
            output,
        ],
        [
            Op("PAD", (0, 1), (2,), "PadOptions"),
            Op("CONV_2D", (2, 3, 4), (5,), conv.options, conv.values),
        ],
    )
    window = _Window(kernel, stride, (1, 1), (top, left), tflite.Padding.VALID, padded[1:3])
    return _convolution_case(
        rng, "conv2d", window, layer, source, output, activation, data, expected, ()
    )


def depthwise_conv2d_case(rng: Generator) -> Case:
    """DEPTHWISE_CONV_2D with multipliers, sometimes with shuffled input channels."""
    shape = _shape(rng)
    multiplier = int(rng.choice([1, 1, 1, 2, 3]))
    window = _window(rng, shape)
    out_channels = shape[3] * multiplier
    depth = window.size[0] * window.size[1]
    layer = _layer(rng, _weights(rng, (1, *window.size, out_channels)), 3, depth)
    source = _activation(rng, shape)
    output = _output(rng, layer, source, depth, (1, *window.out_size, out_channels))
    activation = _activation_of(rng)
    ops = _convolution_ops("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", window, activation, layer)
    ops[0].values["DepthMultiplier"] = multiplier
    data, expected = _run_reference(
        rng, [source, layer.filter, layer.bias_tensor(source), output], ops
    )
    index: npt.NDArray[np.uint16] | None = None
    if rng.random() < 0.4:
        # The same channels stored in another order: reading through the index undoes it.
        order = rng.permutation(shape[3])
        data = data[..., order]
        index = np.argsort(order)[np.arange(out_channels) // multiplier].astype(np.uint16)
    return _convolution_case(
        rng,
        "depthwise_conv2d",
        window,
        layer,
        source,
        output,
        activation,
        data,
        expected,
        (multiplier,),
        index,
    )


def fully_connected_case(rng: Generator) -> Case:
    """FULLY_CONNECTED of one or several rows; several axes are kept for per-tensor weights only."""
    depth, out_channels = int(rng.integers(1, 70)), int(rng.integers(1, 20))
    rows = int(rng.choice([1, 1, 3, 6]))
    layer = _layer(rng, _weights(rng, (out_channels, depth)), 0, depth)
    keep = len(layer.filter.scales) == 1 and rng.random() < 0.4
    lead = (1, rows) if keep else (rows,)
    source = _activation(rng, (*lead, depth))
    output = _output(rng, layer, source, depth, (*lead, out_channels))
    activation = _activation_of(rng)
    inputs = (0, 1) if layer.bias is None else (0, 1, 2)
    values = {"FusedActivationFunction": _code(activation), "KeepNumDims": int(keep)}
    data, expected = _run_reference(
        rng,
        [source, layer.filter, layer.bias_tensor(source), output],
        [Op("FULLY_CONNECTED", inputs, (3,), "FullyConnectedOptions", values, 5)],
    )
    requantisation = q.fully_connected_requantisation(
        source.scale,
        layer.channel_scales,
        *output.quantisation,
        activation,
        per_channel=len(layer.filter.scales) > 1,
    )
    params = (source.zero_point, *_requantise_params(requantisation))
    return _case(
        rng,
        "fully_connected",
        params,
        (layer.weights, layer.bias, *_requantise_arrays(requantisation)),
        [_planes(data)],
        _planes(expected),
    )


def add_case(rng: Generator) -> Case:
    """ADD of two tensors of one shape."""
    shape = _shape(rng)
    inputs = [_activation(rng, shape), _activation(rng, shape)]
    if rng.random() < 0.2:
        inputs[1] = inputs[0]
    size = max(tensor.scale for tensor in inputs) * float(np.exp(rng.uniform(-4, 4)))
    output = Tensor(shape, (_float32(size),), (_zero_point(rng),))
    activation = _activation_of(rng)
    values = {"FusedActivationFunction": _code(activation)}
    data = [_values(rng, shape), _values(rng, shape)]
    expected = _reference([*inputs, output], [Op("ADD", (0, 1), (2,), "AddOptions", values)], data)
    p = q.add_parameters(
        inputs[0].quantisation, inputs[1].quantisation, output.quantisation, activation
    )
    multipliers = (p.input1, p.input2, p.output)
    params = (
        *(p.input1_zero_point, p.input2_zero_point, p.output_zero_point),
        *(m.multiplier for m in multipliers),
        *(m.shift for m in multipliers),
        *(p.left_shift, p.activation.minimum, p.activation.maximum),
    )
    return _case(rng, "add", params, (), [_planes(v) for v in data], _planes(expected))


def average_pool2d_case(rng: Generator) -> Case:
    """AVERAGE_POOL_2D."""
    return _pool_case(rng, "AVERAGE_POOL_2D", "average_pool2d")


def max_pool2d_case(rng: Generator) -> Case:
    """MAX_POOL_2D."""
    return _pool_case(rng, "MAX_POOL_2D", "max_pool2d")


def mean_case(rng: Generator) -> Case:
    """MEAN over height and width, from one pixel to thousands."""
    shape = _shape(rng, largest=60 if rng.random() < 0.1 else 9)
    source = _activation(rng, shape)
    ratio = float(np.exp(rng.uniform(-3, 3))) * float(rng.choice([1, 1, 1, 1e-7, 1e5]))
    keep = bool(rng.random() < 0.5)
    out_shape = (1, 1, 1, shape[3]) if keep else (1, shape[3])
    output = Tensor(out_shape, (_float32(source.scale / ratio),), (_zero_point(rng),))
    if rng.random() < 0.2:
        output = Tensor(out_shape, source.scales, source.zero_points)
    axes = Tensor((2,), data=np.array([1, 2] if rng.random() < 0.7 else [2, 1], np.int32))
    data = _values(rng, shape, near=0.3)
    values = {"KeepDims": int(keep)}
    expected = _reference(
        [source, axes, output], [Op("MEAN", (0, 1), (2,), "ReducerOptions", values)], [data]
    )
    p = q.mean_parameters(source.quantisation, output.quantisation, shape[1] * shape[2])
    params = (
        *(p.input_zero_point, p.output_zero_point),
        *(p.multiplier.multiplier, p.multiplier.shift),
    )
    return _case(rng, "mean", params, (), [_planes(data)], expected.reshape(1, 1, -1))


def pad_case(rng: Generator) -> Case:
    """PAD by the zero point, or PADV2 by any value."""
    shape = _shape(rng)
    top, bottom, left, right = (int(v) for v in rng.integers(0, 4, 4))
    source = _activation(rng, shape)
    padded = (1, shape[1] + top + bottom, shape[2] + left + right, shape[3])
    output = Tensor(padded, source.scales, source.zero_points)
    paddings = np.array([[0, 0], [top, bottom], [left, right], [0, 0]], np.int32)
    tensors = [source, Tensor((4, 2), data=paddings), output]
    data, value = _values(rng, shape), source.zero_point
    if rng.random() < 0.5:
        expected = _reference(tensors, [Op("PAD", (0, 1), (2,), "PadOptions")], [data])
    else:
        value = int(rng.integers(-128, 128))
        constant = Tensor((), source.scales, source.zero_points, data=np.array(value, np.int8))
        op = Op("PADV2", (0, 1, 3), (2,), "PadV2Options")
        expected = _reference([*tensors, constant], [op], [data])
    return _case(rng, "pad", (top, left, value), (), [_planes(data)], _planes(expected))


def copy_channels_case(rng: Generator) -> Case:
    """CONCATENATION of two tensors along the channels."""
    shape = _shape(rng)
    source = _activation(rng, shape)
    other = Tensor((*shape[:3], int(rng.integers(1, 12))), source.scales, source.zero_points)
    total = (*shape[:3], shape[3] + other.shape[3])
    output = Tensor(total, source.scales, source.zero_points)
    data = [_values(rng, shape), _values(rng, other.shape)]
    op = Op("CONCATENATION", (0, 1), (2,), "ConcatenationOptions", {"Axis": 3})
    expected = _reference([source, other, output], [op], data)
    params = (0, shape[3])
    return _case(rng, "copy_channels", params, (), [_planes(v) for v in data], _planes(expected))


def select_channels_case(rng: Generator) -> Case:
    """Any choice of channels; TFLite has no such op."""
    data = _planes(_values(rng, _shape(rng)))
    index = rng.integers(0, data.shape[2], int(rng.integers(1, 12))).astype(np.uint16)
    return _case(rng, "select_channels", (), (index,), [data], data[:, :, index])


def reshape_case(rng: Generator) -> Case:
    """RESHAPE between shapes of three axes."""
    data = _planes(_values(rng, _shape(rng)))
    sizes = list(data.shape)
    rng.shuffle(sizes)
    shape = (sizes[0] * sizes[1], 1, sizes[2]) if rng.random() < 0.5 else tuple(sizes)
    expected = data.reshape(shape)
    return _case(rng, "reshape", (), (), [data], expected, whole=True)


def transpose_case(rng: Generator) -> Case:
    """TRANSPOSE of height, width and channels by any permutation."""
    shape = _shape(rng)
    source = _activation(rng, shape)
    axes = [int(a) for a in rng.permutation(3)]
    output = Tensor((1, *(shape[1 + a] for a in axes)), source.scales, source.zero_points)
    permutation = Tensor((4,), data=np.array([0, *(1 + a for a in axes)], np.int32))
    data = _values(rng, shape)
    op = Op("TRANSPOSE", (0, 1), (2,), "TransposeOptions")
    expected = _reference([source, permutation, output], [op], [data])
    steps = (shape[2] * shape[3], shape[3], 1)
    params = tuple(steps[a] for a in axes)
    return _case(rng, "transpose", params, (), [_planes(data)], _planes(expected), whole=True)


def relu_case(rng: Generator) -> Case:
    """RELU, RELU6 and RELU_N1_TO_1 as ops of their own, with and without rescaling."""
    shape = _shape(rng)
    source = _activation(rng, shape)
    scale = source.scale * float(np.exp(rng.uniform(-3, 3)))
    output = Tensor(shape, (_float32(scale),), (_zero_point(rng),))
    if rng.random() < 0.3:
        output = Tensor(shape, source.scales, source.zero_points)
    activation = str(rng.choice(ACTIVATIONS[1:]))
    data = _values(rng, shape)
    expected = _reference([source, output], [Op(activation, (0,), (1,), version=1)], [data])
    p = q.relu_parameters(activation, source.quantisation, output.quantisation)
    params = (
        *(p.input_zero_point, p.output_zero_point),
        *(p.multiplier.multiplier, p.multiplier.shift),
        *(p.activation.minimum, p.activation.maximum),
    )
    return _case(rng, "relu", params, (), [_planes(data)], _planes(expected))


def softmax_case(rng: Generator) -> Case:
    """SOFTMAX over the channels, of scales from useless to extreme."""
    shape = _shape(rng, deepest=200 if rng.random() < 0.2 else 24)
    scale = _float32(float(np.exp(rng.uniform(-7, 3))))
    source = Tensor(shape, (scale,), (_zero_point(rng),))
    output = Tensor(shape, (q.SOFTMAX_OUTPUT_SCALE,), (q.SOFTMAX_OUTPUT_ZERO_POINT,))
    beta = float(rng.choice([1.0, 1.0, 0.37, 2.5, 100.0]))
    data = _values(rng, shape, near=0.3)
    op = Op("SOFTMAX", (0,), (1,), "SoftmaxOptions", {"Beta": beta}, 2)
    expected = _reference([source, output], [op], [data])
    p = q.softmax_parameters(scale, beta)
    params = (p.multiplier.multiplier, p.multiplier.shift, p.diff_min)
    return _case(rng, "softmax", params, (), [_planes(data)], _planes(expected))


GENERATORS: dict[str, Callable[[Generator], Case]] = {
    "conv2d": conv2d_case,
    "padded_conv2d": padded_conv2d_case,
    "depthwise_conv2d": depthwise_conv2d_case,
    "fully_connected": fully_connected_case,
    "add": add_case,
    "average_pool2d": average_pool2d_case,
    "max_pool2d": max_pool2d_case,
    "mean": mean_case,
    "pad": pad_case,
    "copy_channels": copy_channels_case,
    "select_channels": select_channels_case,
    "reshape": reshape_case,
    "transpose": transpose_case,
    "relu": relu_case,
    "softmax": softmax_case,
}


def random_cases(name: str, count: int, seed: int) -> list[Case]:
    """`count` cases of one generator; the same seed gives the same cases."""
    generator = GENERATORS[name]
    return [generator(np.random.default_rng([seed, number])) for number in range(count)]


# The rest: windows, layers with weights, buffers, the reference.


@dataclass(frozen=True)
class _Window:
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


def _window(rng: Generator, shape: Sequence[int], *, dilated: bool = True) -> _Window:
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
    return _Window(
        (sizes[0], sizes[1]),
        (strides[0], strides[1]),
        (dilations[0], dilations[1]),
        (pads[0], pads[1]),
        padding,
        (shape[1], shape[2]),
    )


@dataclass(frozen=True, eq=False)
class _Layer:
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
        scales = tuple(_float32(source.scale * scale) for scale in self.filter.scales)
        data = np.zeros(self.channels, np.int32) if self.bias is None else self.bias
        return Tensor((self.channels,), scales, (0,) * len(scales), data=data)


def _weights(rng: Generator, shape: tuple[int, ...]) -> Int8Array:
    weights = rng.integers(-127, 128, shape).astype(np.int8)
    if rng.random() < 0.2:
        weights[rng.random(shape) < 0.7] = 0
    return weights


def _layer(rng: Generator, weights: Int8Array, axis: int, depth: int) -> _Layer:
    channels = weights.shape[axis]
    count = channels if rng.random() < 0.7 else 1
    scales = tuple(_float32(s) for s in np.exp(rng.uniform(-7, -3, count)))
    tensor = Tensor(weights.shape, scales, (0,) * count, axis, weights)
    bias: Int32Array | None = None
    if rng.random() < 0.9:
        bias = rng.normal(0, 3000 * depth**0.5, channels).astype(np.int32)
        if rng.random() < 0.1:
            bias[rng.integers(channels)] = int(rng.choice([1 << 30, -(1 << 30), 1 << 28]))
    return _Layer(tensor, weights, bias, channels)


def _output(
    rng: Generator,
    layer: _Layer,
    source: Tensor,
    depth: int,
    shape: tuple[int, ...],
) -> Tensor:
    """Mostly a scale that spreads the outputs over int8; sometimes so small that shifts go left."""
    spread = source.scale * float(np.mean(layer.filter.scales)) * 60 * depth**0.5
    scale = spread * float(np.exp(rng.uniform(-1.5, 1.5)))
    if rng.random() < 0.15:
        scale *= float(np.exp(-rng.uniform(0, 12)))
    return Tensor(shape, (_float32(scale),), (_zero_point(rng),))


def _shape(rng: Generator, largest: int = 9, deepest: int = 12) -> tuple[int, int, int, int]:
    height, width = (int(v) for v in rng.integers(1, largest + 1, 2))
    return 1, height, width, int(rng.integers(1, deepest + 1))


def _float32(value: float) -> float:
    return float(np.float32(value))


def _zero_point(rng: Generator) -> int:
    return int(rng.choice([-128, 127, 0, rng.integers(-128, 128), rng.integers(-128, 128)]))


def _activation(rng: Generator, shape: tuple[int, ...]) -> Tensor:
    return Tensor(shape, (_float32(float(np.exp(rng.uniform(-5, -1)))),), (_zero_point(rng),))


def _activation_of(rng: Generator) -> str:
    return str(rng.choice(ACTIVATIONS))


def _code(activation: str) -> int:
    return int(getattr(tflite.ActivationFunctionType, activation))


def _values(rng: Generator, shape: Sequence[int], near: float = 0.0) -> Int8Array:
    """Any int8 values; with probability `near` values that lie close together."""
    if rng.random() < near:
        low = int(rng.integers(-128, 120))
        return rng.integers(low, low + 8, tuple(shape)).astype(np.int8)
    return rng.integers(-128, 128, tuple(shape)).astype(np.int8)


def _reference(
    tensors: Sequence[Tensor], ops: Sequence[Op], inputs: Sequence[Int8Array]
) -> Int8Array:
    content = build(tensors, ops, [ops[-1].outputs[0]])
    return ReferenceModel(content).run(inputs)[0]


def _run_reference(
    rng: Generator, tensors: Sequence[Tensor], ops: Sequence[Op]
) -> tuple[Int8Array, Int8Array]:
    """Random data for tensor 0, and the output."""
    data = _values(rng, tensors[0].shape)
    return data, _reference(tensors, ops, [data])


def _convolution_ops(
    kind: str, options: str, window: _Window, activation: str, layer: _Layer
) -> list[Op]:
    values: dict[str, int | float] = {
        "Padding": window.padding,
        "StrideH": window.stride[0],
        "StrideW": window.stride[1],
        "DilationHFactor": window.dilation[0],
        "DilationWFactor": window.dilation[1],
        "FusedActivationFunction": _code(activation),
    }
    return [Op(kind, (0, 1, 2), (3,), options, values)]


def _convolution_case(
    rng: Generator,
    kernel: str,
    window: _Window,
    layer: _Layer,
    source: Tensor,
    output: Tensor,
    activation: str,
    data: Int8Array,
    expected: Int8Array,
    extra: tuple[int, ...],
    index: npt.NDArray[np.uint16] | None = None,
) -> Case:
    requantisation = q.convolution_requantisation(
        source.scale, layer.channel_scales, *output.quantisation, activation
    )
    params = (
        *window.params,
        source.zero_point,
        *_requantise_params(requantisation),
        *extra,
    )
    arrays = (layer.weights, layer.bias, *_requantise_arrays(requantisation))
    if kernel == "depthwise_conv2d":
        return _case(rng, kernel, params, (*arrays, index), [_planes(data)], _planes(expected))
    return _case(rng, kernel, params, arrays, [_planes(data)], _planes(expected))


def _pool_case(rng: Generator, kind: str, kernel: str) -> Case:
    shape = _shape(rng)
    window = _window(rng, shape, dilated=False)
    source = _activation(rng, shape)
    output = Tensor((1, *window.out_size, shape[3]), source.scales, source.zero_points)
    activation = _activation_of(rng)
    values: dict[str, int | float] = {
        "Padding": window.padding,
        "StrideH": window.stride[0],
        "StrideW": window.stride[1],
        "FilterHeight": window.size[0],
        "FilterWidth": window.size[1],
        "FusedActivationFunction": _code(activation),
    }
    data, expected = _run_reference(
        rng, [source, output], [Op(kind, (0,), (1,), "Pool2DOptions", values, 2)]
    )
    limits = q.activation_range(activation, *output.quantisation)
    params = (*window.params, limits.minimum, limits.maximum)
    return _case(rng, kernel, params, (), [_planes(data)], _planes(expected))


def _requantise_params(r: q.Requantisation) -> tuple[int, ...]:
    return r.output_zero_point, r.activation.minimum, r.activation.maximum


def _requantise_arrays(r: q.Requantisation) -> tuple[Int32Array, Int8Array]:
    return np.array(r.multipliers, np.int32), np.array(r.shifts, np.int8)


def _planes(data: Int8Array) -> Int8Array:
    """[height, width, channels] of any tensor."""
    if data.ndim == 4:
        return data[0]
    return data.reshape(-1, 1, data.shape[-1])


def _case(
    rng: Generator,
    kernel: str,
    params: tuple[int, ...],
    arrays: tuple[
        npt.NDArray[np.int8] | npt.NDArray[np.int32] | npt.NDArray[np.uint16] | None, ...
    ],
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
