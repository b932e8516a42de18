"""Reads the operators of a .tflite file, and refuses by name what cannot be sliced or is not exact.

One function for each operator; graph.py says what they return.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import tflite

from disco_converter import graph as g
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from disco_converter.tflite_reader import Reader

_ACTIVATIONS = {v: k for k, v in vars(tflite.ActivationFunctionType).items() if isinstance(v, int)}


@dataclass(frozen=True)
class OpContext:
    """One op in the file, with what its parser needs."""

    reader: Reader
    flat: Any
    index: int
    kind: str
    inputs: tuple[int, ...]
    output: int

    def options(self, cls: Any) -> Any:
        """The op's builtin options table."""
        options = cls()
        table = self.flat.BuiltinOptions()
        if table is None:
            raise self.error("has no options")
        options.Init(table.Bytes, table.Pos)
        return options

    def constant(self, position: int) -> npt.NDArray[Any]:
        """The constant data of input `position`."""
        data = self.reader.constant(self.inputs[position])
        if data is None:
            raise self.error(f"needs a constant as input {position}")
        return data

    def shape(self, position: int) -> tuple[int, ...]:
        """The shape of input `position`."""
        return self.reader.shape(self.inputs[position])

    def error(self, problem: str) -> DiscoError:
        """An error that names the op and its place."""
        return self.reader.error(f"op {self.index} ({self.kind}, writing {self.reader.name(self.output)!r}) {problem}")


def _filter(op: OpContext, outputs: int, axis: int, weights: npt.NDArray[Any]) -> g.Filter:
    if weights.dtype != np.int8:
        raise op.error(f"has {weights.dtype} weights; int8 is needed")
    scales, per_channel = op.reader.weight_scales(op.inputs[1], outputs, axis)
    bias = None
    if len(op.inputs) > 2 and op.inputs[2] >= 0:
        bias = op.constant(2).reshape(-1)
        if bias.dtype != np.int32 or bias.size != outputs:
            raise op.error(f"has a bias of {bias.size} {bias.dtype} values; {outputs} int32 are needed")
    return g.Filter(np.ascontiguousarray(weights), scales, per_channel, bias)


def _window(op: OpContext, size: tuple[int, int], options: Any, dilated: bool) -> g.Window:
    stride = (int(options.StrideH()), int(options.StrideW()))
    dilation = (int(options.DilationHFactor()), int(options.DilationWFactor())) if dilated else (1, 1)
    height, width = op.shape(0)[1:3]
    if options.Padding() == tflite.Padding.VALID:
        return g.Window(size, stride, dilation)
    return g.Window(size, stride, dilation, g.same_padding((height, width), size, stride, dilation))


def _conv_2d(op: OpContext) -> g.Params:
    weights = op.constant(1)
    channels = op.shape(0)[-1]
    if len(op.shape(0)) != 4 or weights.ndim != 4:
        raise op.error("needs a 4-D input and 4-D weights")
    options = op.options(tflite.Conv2DOptions)
    outputs, height, width, read = weights.shape
    window = _window(op, (height, width), options, dilated=True)
    filter_ = _filter(op, outputs, 0, weights)
    activation = _ACTIVATIONS[options.FusedActivationFunction()]
    if read == channels:
        return g.Conv2D(window, filter_, activation)
    if read == 1 and outputs % channels == 0:
        # TensorFlow's depthwise convolution has one stride for both axes: with two, converters write a group for each
        # channel. TFLite's reference kernels compute both alike.
        filter_ = dataclasses.replace(filter_, weights=np.ascontiguousarray(weights.transpose(3, 1, 2, 0)))
        return g.DepthwiseConv2D(window, filter_, outputs // channels, activation)
    raise op.error(
        f"is grouped ({channels} input channels, weights for {read}): only groups = 1 and depthwise are supported"
    )


def _depthwise_conv_2d(op: OpContext) -> g.Params:
    weights = op.constant(1)
    options = op.options(tflite.DepthwiseConv2DOptions)
    outputs = weights.shape[3]
    multiplier, rest = divmod(outputs, op.shape(0)[-1])
    if rest or multiplier < 1:
        raise op.error(f"has {outputs} outputs for {op.shape(0)[-1]} input channels")
    return g.DepthwiseConv2D(
        _window(op, (weights.shape[1], weights.shape[2]), options, dilated=True),
        _filter(op, outputs, 3, weights),
        multiplier,
        _ACTIVATIONS[options.FusedActivationFunction()],
    )


def _fully_connected(op: OpContext) -> g.Params:
    weights = op.constant(1)
    options = op.options(tflite.FullyConnectedOptions)
    if options.WeightsFormat() != tflite.FullyConnectedOptionsWeightsFormat.DEFAULT:
        raise op.error("has shuffled weights: convert the model without them")
    if weights.ndim != 2 or weights.shape[1] != op.shape(0)[-1]:
        raise op.error(
            f"flattens its input {list(op.shape(0))} by itself: put a RESHAPE to [1, {weights.shape[-1]}] in front"
        )
    keep = bool(options.KeepNumDims())
    filter_ = _filter(op, weights.shape[0], 0, weights)
    pixels = int(np.prod(op.shape(0)[:-1]))
    if pixels > 1 and not keep:
        raise op.error(f"flattens the leading axes of {list(op.shape(0))}: put a RESHAPE in front")
    if filter_.per_channel and len(op.reader.shape(op.output)) > 2:
        # tflite-runtime 2.14's reference kernel writes garbage there.
        raise op.error(
            "has more than two output axes and one scale per output channel: use per-tensor scales for dense layers"
        )
    return g.FullyConnected(filter_, _ACTIVATIONS[options.FusedActivationFunction()], keep)


def _check_operands(op: OpContext) -> None:
    if any(op.reader.constant(i) is not None for i in op.inputs) or op.shape(0) != op.shape(1):
        raise op.error(
            f"takes {list(op.shape(0))} and {list(op.shape(1))}: two activations of one shape are needed (no "
            "broadcast, no constant)"
        )


def _add(op: OpContext) -> g.Params:
    _check_operands(op)
    return g.Add(_ACTIVATIONS[op.options(tflite.AddOptions).FusedActivationFunction()])


def _mul(op: OpContext) -> g.Params:
    _check_operands(op)
    return g.Mul(_ACTIVATIONS[op.options(tflite.MulOptions).FusedActivationFunction()])


def _pool_2d(op: OpContext) -> g.Params:
    options = op.options(tflite.Pool2DOptions)
    size = (int(options.FilterHeight()), int(options.FilterWidth()))
    return g.Pool2D(_window(op, size, options, dilated=False), _ACTIVATIONS[options.FusedActivationFunction()])


def _mean(op: OpContext) -> g.Params:
    rank = len(op.shape(0))
    axes = sorted({int(axis) % rank for axis in op.constant(1).reshape(-1)})
    if rank != 4 or axes not in ([1, 2], [2, 3]):
        raise op.error(f"is taken over the axes {axes} of {rank}; only height and width of [1,h,w,c] are supported")
    # Axes [2, 3] come behind a TRANSPOSE to NCHW; folding makes both one mean over height and width.
    return g.MeanNchw() if axes == [2, 3] else g.Mean(bool(op.options(tflite.ReducerOptions).KeepDims()))


def _pad(op: OpContext) -> g.Params:
    pads = op.constant(1)
    if pads.shape != (4, 2) or pads[0].any() or pads[3].any():
        raise op.error(f"pads {pads.tolist()}: only height and width of [1,h,w,c] can be padded")
    if op.reader.quantisation(op.inputs[0]) != op.reader.quantisation(op.output):
        raise op.error("changes the scale")
    value = op.reader.quantisation(op.inputs[0])[1]
    if len(op.inputs) > 2 and op.inputs[2] >= 0:
        value = int(op.constant(2).reshape(-1)[0])
    (top, bottom), (left, right) = pads[1].tolist(), pads[2].tolist()
    return g.Pad(g.Padding(top, bottom, left, right), value)


def _concatenation(op: OpContext) -> g.Params:
    options = op.options(tflite.ConcatenationOptions)
    rank = len(op.shape(0))
    if options.Axis() % rank != rank - 1:
        raise op.error(f"joins along axis {options.Axis()}: only the channels (last axis) are supported")
    if options.FusedActivationFunction() != tflite.ActivationFunctionType.NONE:
        raise op.error("has a fused activation")
    if any(op.reader.constant(i) is not None for i in op.inputs):
        raise op.error("joins a constant: only activations are supported")
    if len({op.reader.quantisation(i) for i in (*op.inputs, op.output)}) != 1:
        raise op.error("joins tensors of different scales: all inputs and the output must share scale and zero point")
    return g.Concatenation()


def _reshape(op: OpContext) -> g.Params:
    if op.reader.quantisation(op.inputs[0]) != op.reader.quantisation(op.output):
        raise op.error("changes the scale")
    return g.Reshape()


def _transpose(op: OpContext) -> g.Params:
    if op.reader.quantisation(op.inputs[0]) != op.reader.quantisation(op.output):
        raise op.error("changes the scale")
    return g.Transpose(tuple(int(axis) for axis in op.constant(1).reshape(-1)))


def _activation(op: OpContext) -> g.Params:
    return g.Activation(op.kind)


def _softmax(op: OpContext) -> g.Params:
    if op.reader.quantisation(op.output) != (1 / 256, -128):
        raise op.error("has an output scale other than 1/256 with zero point -128")
    return g.Softmax(float(op.options(tflite.SoftmaxOptions).Beta()))


PARSERS: dict[str, Callable[[OpContext], g.Params]] = {
    "ADD": _add,
    "AVERAGE_POOL_2D": _pool_2d,
    "CONCATENATION": _concatenation,
    "CONV_2D": _conv_2d,
    "DEPTHWISE_CONV_2D": _depthwise_conv_2d,
    "FULLY_CONNECTED": _fully_connected,
    "MAX_POOL_2D": _pool_2d,
    "MEAN": _mean,
    "MUL": _mul,
    "PAD": _pad,
    "PADV2": _pad,
    "RELU": _activation,
    "RELU6": _activation,
    "RELU_N1_TO_1": _activation,
    "RESHAPE": _reshape,
    "SOFTMAX": _softmax,
    "TRANSPOSE": _transpose,
}
"""By TFLite's name of the builtin operator."""
