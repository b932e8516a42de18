"""Random cases for the C kernels; TFLite's reference kernels say what they must give.

The parameters come from `disco_firmware.quantisation`, as they do in the converter.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tflite

from disco_firmware import quantisation as q
from helpers.kernel_driver import Case, Int8Array
from helpers.kernel_parts import (
    ACTIVATIONS,
    Generator,
    Layer,
    Window,
    activation_code,
    finish_case,
    float32,
    layer_output,
    planes,
    random_activation,
    random_fused,
    random_layer,
    random_shape,
    random_values,
    random_weights,
    random_window,
    random_zero_point,
    reference,
    requantise_arrays,
    requantise_params,
    run_reference,
)
from helpers.tflite_models import Op, Tensor


def conv2d_case(rng: Generator, deepest: int = 12) -> Case:
    """CONV_2D: kernels, strides, dilations, paddings, per-channel and per-tensor scales."""
    shape = random_shape(rng, deepest=deepest)
    window = random_window(rng, shape)
    return conv2d_of(rng, shape, window, out_channels=int(rng.integers(1, 14)))


def conv2d_of(rng: Generator, shape: tuple[int, int, int, int], window: Window, out_channels: int) -> Case:
    """CONV_2D of one geometry."""
    depth = window.size[0] * window.size[1] * shape[3]
    weights = random_weights(rng, (out_channels, *window.size, shape[3]))
    layer = random_layer(rng, weights, 0, depth)
    source = random_activation(rng, shape)
    output = layer_output(rng, layer, source, depth, (1, *window.out_size, out_channels))
    activation = random_fused(rng)
    data, expected = run_reference(
        rng,
        [source, layer.filter, layer.bias_tensor(source), output],
        _convolution_ops("CONV_2D", "Conv2DOptions", window, activation),
    )
    return _convolution_case(rng, "conv2d", window, layer, source, output, activation, data, expected, ())


def padded_conv2d_case(rng: Generator) -> Case:
    """PAD by the zero point, then CONV_2D without padding, as one CONV_2D with padding."""
    shape = random_shape(rng)
    kernel = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    top, bottom, left, right = (int(v) for v in rng.integers(0, 5, 4))
    size = (shape[1] + top + bottom + 2, shape[2] + left + right + 2)
    stride = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    window = Window(kernel, stride, (1, 1), (top, left), tflite.Padding.VALID, size)
    weights = random_weights(rng, (int(rng.integers(1, 10)), *kernel, shape[3]))
    return padded_conv2d_of(rng, random_values(rng, shape), weights, window)


def padded_conv2d_of(rng: Generator, data: Int8Array, weights: Int8Array, window: Window) -> Case:
    """The same of given values; `window.in_size` tells the padding below and to the right."""
    (top, left), channels = window.pad, len(weights)
    bottom, right = window.in_size[0] - top - data.shape[1], window.in_size[1] - left - data.shape[2]
    depth = weights[0].size
    layer = random_layer(rng, weights, 0, depth)
    source = random_activation(rng, data.shape)
    output = layer_output(rng, layer, source, depth, (1, *window.out_size, channels))
    activation = random_fused(rng)
    paddings = np.array([[0, 0], [top, bottom], [left, right], [0, 0]], np.int32)
    padded = Tensor((1, *window.in_size, data.shape[3]), source.scales, source.zero_points)
    conv = _convolution_ops("CONV_2D", "Conv2DOptions", window, activation)[0]
    expected = reference(
        [source, Tensor((4, 2), data=paddings), padded, layer.filter, layer.bias_tensor(source), output],
        [Op("PAD", (0, 1), (2,), "PadOptions"), Op("CONV_2D", (2, 3, 4), (5,), conv.options, conv.values)],
        [data],
    )
    return _convolution_case(rng, "conv2d", window, layer, source, output, activation, data, expected, ())


def depthwise_conv2d_case(rng: Generator) -> Case:
    """DEPTHWISE_CONV_2D with multipliers."""
    shape = random_shape(rng)
    multiplier = int(rng.choice([1, 1, 1, 2, 3]))
    return depthwise_conv2d_of(rng, shape, random_window(rng, shape), multiplier)


def depthwise_conv2d_of(rng: Generator, shape: tuple[int, int, int, int], window: Window, multiplier: int) -> Case:
    """DEPTHWISE_CONV_2D of one geometry."""
    out_channels = shape[3] * multiplier
    depth = window.size[0] * window.size[1]
    layer = random_layer(rng, random_weights(rng, (1, *window.size, out_channels)), 3, depth)
    source = random_activation(rng, shape)
    output = layer_output(rng, layer, source, depth, (1, *window.out_size, out_channels))
    activation = random_fused(rng)
    ops = _convolution_ops("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", window, activation)
    data, expected = run_reference(rng, [source, layer.filter, layer.bias_tensor(source), output], ops)
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
    )


def fully_connected_case(rng: Generator) -> Case:
    """FULLY_CONNECTED of one or several rows; several axes are kept for per-tensor weights only."""
    depth, out_channels = int(rng.integers(1, 70)), int(rng.integers(1, 20))
    return fully_connected_of(rng, depth, out_channels, int(rng.choice([1, 1, 3, 6])))


def fully_connected_of(rng: Generator, depth: int, out_channels: int, rows: int) -> Case:
    """FULLY_CONNECTED of one geometry."""
    layer = random_layer(rng, random_weights(rng, (out_channels, depth)), 0, depth)
    keep = len(layer.filter.scales) == 1 and rng.random() < 0.4
    lead = (1, rows) if keep else (rows,)
    source = random_activation(rng, (*lead, depth))
    output = layer_output(rng, layer, source, depth, (*lead, out_channels))
    activation = random_fused(rng)
    inputs = (0, 1) if layer.bias is None else (0, 1, 2)
    values: dict[str, int | float] = {
        "FusedActivationFunction": activation_code(activation),
        "KeepNumDims": int(keep),
    }
    data, expected = run_reference(
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
    params = (source.zero_point, *requantise_params(requantisation))
    return finish_case(
        rng,
        "fully_connected",
        params,
        (layer.weights, layer.bias, *requantise_arrays(requantisation)),
        [planes(data)],
        planes(expected),
    )


def add_case(rng: Generator) -> Case:
    """ADD of two tensors of one shape."""
    shape = random_shape(rng)
    inputs = [random_activation(rng, shape), random_activation(rng, shape)]
    if rng.random() < 0.2:
        inputs[1] = inputs[0]
    size = max(tensor.scale for tensor in inputs) * float(np.exp(rng.uniform(-4, 4)))
    output = Tensor(shape, (float32(size),), (random_zero_point(rng),))
    activation = random_fused(rng)
    values: dict[str, int | float] = {"FusedActivationFunction": activation_code(activation)}
    data = [random_values(rng, shape), random_values(rng, shape)]
    expected = reference([*inputs, output], [Op("ADD", (0, 1), (2,), "AddOptions", values)], data)
    p = q.add_parameters(inputs[0].quantisation, inputs[1].quantisation, output.quantisation, activation)
    multipliers = (p.input1, p.input2, p.output)
    params = (
        *(p.input1_zero_point, p.input2_zero_point, p.output_zero_point),
        *(m.multiplier for m in multipliers),
        *(m.shift for m in multipliers),
        *(p.left_shift, p.activation.minimum, p.activation.maximum),
    )
    return finish_case(rng, "add", params, (), [planes(v) for v in data], planes(expected))


def mul_case(rng: Generator) -> Case:
    """MUL of two tensors of one shape, or of one with a single pixel."""
    shape = random_shape(rng)
    shapes = [shape, shape]
    if rng.random() < 0.3:
        shapes[int(rng.integers(2))] = (1, 1, 1, shape[3])
    inputs = [random_activation(rng, each) for each in shapes]
    size = inputs[0].scale * inputs[1].scale * 100 * float(np.exp(rng.uniform(-6, 3)))
    output = Tensor(shape, (float32(size),), (random_zero_point(rng),))
    activation = random_fused(rng)
    values: dict[str, int | float] = {"FusedActivationFunction": activation_code(activation)}
    data = [random_values(rng, each) for each in shapes]
    expected = reference([*inputs, output], [Op("MUL", (0, 1), (2,), "MulOptions", values)], data)
    p = q.mul_parameters(inputs[0].quantisation, inputs[1].quantisation, output.quantisation, activation)
    params = (
        *(p.input1_zero_point, p.input2_zero_point, p.output_zero_point),
        *(p.multiplier.multiplier, p.multiplier.shift),
        *(p.activation.minimum, p.activation.maximum),
    )
    return finish_case(rng, "mul", params, (), [planes(v) for v in data], planes(expected))


def average_pool2d_case(rng: Generator) -> Case:
    """AVERAGE_POOL_2D."""
    return _pool_case(rng, "AVERAGE_POOL_2D", "average_pool2d")


def max_pool2d_case(rng: Generator) -> Case:
    """MAX_POOL_2D."""
    return _pool_case(rng, "MAX_POOL_2D", "max_pool2d")


def mean_case(rng: Generator) -> Case:
    """MEAN over height and width, from one pixel to thousands."""
    shape = random_shape(rng, largest=60 if rng.random() < 0.1 else 9)
    source = random_activation(rng, shape)
    ratio = float(np.exp(rng.uniform(-3, 3))) * float(rng.choice([1, 1, 1, 1e-7, 1e5]))
    keep = bool(rng.random() < 0.5)
    out_shape = (1, 1, 1, shape[3]) if keep else (1, shape[3])
    output = Tensor(out_shape, (float32(source.scale / ratio),), (random_zero_point(rng),))
    if rng.random() < 0.2:
        output = Tensor(out_shape, source.scales, source.zero_points)
    axes = Tensor((2,), data=np.array([1, 2] if rng.random() < 0.7 else [2, 1], np.int32))
    data = random_values(rng, shape, near=0.3)
    values: dict[str, int | float] = {"KeepDims": int(keep)}
    expected = reference([source, axes, output], [Op("MEAN", (0, 1), (2,), "ReducerOptions", values)], [data])
    p = q.mean_parameters(source.quantisation, output.quantisation, shape[1] * shape[2])
    params = (
        *(p.input_zero_point, p.output_zero_point),
        *(p.multiplier.multiplier, p.multiplier.shift),
    )
    return finish_case(rng, "mean", params, (), [planes(data)], expected.reshape(1, 1, -1))


def pad_case(rng: Generator) -> Case:
    """PAD by the zero point, or PADV2 by any value."""
    shape = random_shape(rng)
    top, bottom, left, right = (int(v) for v in rng.integers(0, 4, 4))
    source = random_activation(rng, shape)
    padded = (1, shape[1] + top + bottom, shape[2] + left + right, shape[3])
    output = Tensor(padded, source.scales, source.zero_points)
    paddings = np.array([[0, 0], [top, bottom], [left, right], [0, 0]], np.int32)
    tensors = [source, Tensor((4, 2), data=paddings), output]
    data, value = random_values(rng, shape), source.zero_point
    if rng.random() < 0.5:
        expected = reference(tensors, [Op("PAD", (0, 1), (2,), "PadOptions")], [data])
    else:
        value = int(rng.integers(-128, 128))
        constant = Tensor((), source.scales, source.zero_points, data=np.array(value, np.int8))
        op = Op("PADV2", (0, 1, 3), (2,), "PadV2Options")
        expected = reference([*tensors, constant], [op], [data])
    return finish_case(rng, "pad", (top, left, value), (), [planes(data)], planes(expected))


def copy_channels_case(rng: Generator) -> Case:
    """CONCATENATION of two tensors along the channels."""
    shape = random_shape(rng)
    source = random_activation(rng, shape)
    other = Tensor((*shape[:3], int(rng.integers(1, 12))), source.scales, source.zero_points)
    total = (*shape[:3], shape[3] + other.shape[3])
    output = Tensor(total, source.scales, source.zero_points)
    data = [random_values(rng, shape), random_values(rng, other.shape)]
    op = Op("CONCATENATION", (0, 1), (2,), "ConcatenationOptions", {"Axis": 3})
    expected = reference([source, other, output], [op], data)
    params = (0, shape[3])
    return finish_case(rng, "copy_channels", params, (), [planes(v) for v in data], planes(expected))


def select_channels_case(rng: Generator) -> Case:
    """Any choice of channels; TFLite has no such op."""
    data = planes(random_values(rng, random_shape(rng)))
    index = rng.integers(0, data.shape[2], int(rng.integers(1, 12))).astype(np.uint16)
    return finish_case(rng, "select_channels", (), (index,), [data], data[:, :, index])


def reshape_case(rng: Generator) -> Case:
    """RESHAPE between shapes of three axes."""
    data = planes(random_values(rng, random_shape(rng)))
    sizes = list(data.shape)
    rng.shuffle(sizes)
    shape = (sizes[0] * sizes[1], 1, sizes[2]) if rng.random() < 0.5 else tuple(sizes)
    expected = data.reshape(shape)
    return finish_case(rng, "reshape", (), (), [data], expected, whole=True)


def relu_case(rng: Generator) -> Case:
    """RELU, RELU6 and RELU_N1_TO_1 as ops of their own, with and without rescaling."""
    shape = random_shape(rng)
    source = random_activation(rng, shape)
    scale = source.scale * float(np.exp(rng.uniform(-3, 3)))
    output = Tensor(shape, (float32(scale),), (random_zero_point(rng),))
    if rng.random() < 0.3:
        output = Tensor(shape, source.scales, source.zero_points)
    activation = str(rng.choice(ACTIVATIONS[1:]))
    data = random_values(rng, shape)
    expected = reference([source, output], [Op(activation, (0,), (1,), version=1)], [data])
    p = q.relu_parameters(activation, source.quantisation, output.quantisation)
    params = (
        *(p.input_zero_point, p.output_zero_point),
        *(p.multiplier.multiplier, p.multiplier.shift),
        *(p.activation.minimum, p.activation.maximum),
    )
    return finish_case(rng, "relu", params, (), [planes(data)], planes(expected))


def softmax_case(rng: Generator) -> Case:
    """SOFTMAX over the channels, of scales from useless to extreme."""
    shape = random_shape(rng, deepest=200 if rng.random() < 0.2 else 24)
    scale = float32(float(np.exp(rng.uniform(-7, 3))))
    source = Tensor(shape, (scale,), (random_zero_point(rng),))
    output = Tensor(shape, (q.SOFTMAX_OUTPUT_SCALE,), (q.SOFTMAX_OUTPUT_ZERO_POINT,))
    beta = float(rng.choice([1.0, 1.0, 0.37, 2.5, 100.0]))
    data = random_values(rng, shape, near=0.3)
    op = Op("SOFTMAX", (0,), (1,), "SoftmaxOptions", {"Beta": beta}, 2)
    expected = reference([source, output], [op], [data])
    p = q.softmax_parameters(scale, beta)
    params = (p.multiplier.multiplier, p.multiplier.shift, p.diff_min)
    return finish_case(rng, "softmax", params, (), [planes(data)], planes(expected))


def _convolution_ops(kind: str, options: str, window: Window, activation: str) -> list[Op]:
    values: dict[str, int | float] = {
        "Padding": window.padding,
        "StrideH": window.stride[0],
        "StrideW": window.stride[1],
        "DilationHFactor": window.dilation[0],
        "DilationWFactor": window.dilation[1],
        "FusedActivationFunction": activation_code(activation),
    }
    return [Op(kind, (0, 1, 2), (3,), options, values)]


def _convolution_case(
    rng: Generator,
    kernel: str,
    window: Window,
    layer: Layer,
    source: Tensor,
    output: Tensor,
    activation: str,
    data: Int8Array,
    expected: Int8Array,
    extra: tuple[int, ...],
) -> Case:
    requantisation = q.convolution_requantisation(source.scale, layer.channel_scales, *output.quantisation, activation)
    params = (
        *window.params,
        source.zero_point,
        *requantise_params(requantisation),
        *extra,
    )
    arrays = (layer.weights, layer.bias, *requantise_arrays(requantisation))
    return finish_case(rng, kernel, params, arrays, [planes(data)], planes(expected))


def _pool_case(rng: Generator, kind: str, kernel: str) -> Case:
    shape = random_shape(rng)
    window = random_window(rng, shape, dilated=False)
    source = random_activation(rng, shape)
    output = Tensor((1, *window.out_size, shape[3]), source.scales, source.zero_points)
    activation = random_fused(rng)
    values: dict[str, int | float] = {
        "Padding": window.padding,
        "StrideH": window.stride[0],
        "StrideW": window.stride[1],
        "FilterHeight": window.size[0],
        "FilterWidth": window.size[1],
        "FusedActivationFunction": activation_code(activation),
    }
    data, expected = run_reference(rng, [source, output], [Op(kind, (0,), (1,), "Pool2DOptions", values, 2)])
    limits = q.activation_range(activation, *output.quantisation)
    params = (*window.params, limits.minimum, limits.maximum)
    return finish_case(rng, kernel, params, (), [planes(data)], planes(expected))


GENERATORS: dict[str, Callable[[Generator], Case]] = {
    "conv2d": conv2d_case,
    "padded_conv2d": padded_conv2d_case,
    "depthwise_conv2d": depthwise_conv2d_case,
    "fully_connected": fully_connected_case,
    "add": add_case,
    "mul": mul_case,
    "average_pool2d": average_pool2d_case,
    "max_pool2d": max_pool2d_case,
    "mean": mean_case,
    "pad": pad_case,
    "copy_channels": copy_channels_case,
    "select_channels": select_channels_case,
    "reshape": reshape_case,
    "relu": relu_case,
    "softmax": softmax_case,
}


def random_cases(name: str, count: int, seed: int) -> list[Case]:
    """`count` cases of one generator; the same seed gives the same cases."""
    generator = GENERATORS[name]
    return [generator(np.random.default_rng([seed, number])) for number in range(count)]
