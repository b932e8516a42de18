"""Reads a full-int8 .tflite file into a `Graph`, and refuses by name what cannot be sliced."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite

from disco_converter import graph as g
from disco_converter.folding import fold
from disco_targets.errors import DiscoError


def read_tflite(content: bytes, where: str = "model") -> g.Graph:
    """Parses a .tflite file.

    Args:
        content: The file's bytes.
        where: What to call the file in messages.

    Raises:
        DiscoError: Not a .tflite file, not full-int8, a dynamic shape, more than one input, or an op that is not
        supported
            (with its place in the graph and the list of those supported).
    """
    try:
        return _Reader(_parse(content, where), where).graph()
    except _DAMAGE as error:
        raise DiscoError(
            f"{where} is a damaged .tflite file ({str(error) or type(error).__name__}): make it again"
        ) from error


def supported_operators() -> tuple[str, ...]:
    """TFLite's names of the builtin operators that can be sliced, sorted."""
    return tuple(sorted(_PARSERS))


def _parse(content: bytes, where: str) -> Any:
    if len(content) < 8 or not tflite.Model.ModelBufferHasIdentifier(content, 0):
        raise DiscoError(f"{where} is not a .tflite file: give a float .onnx or a full-int8 .tflite")
    model = tflite.Model.GetRootAsModel(content, 0)
    if model.SubgraphsLength() != 1:
        raise DiscoError(
            f"{where} has {model.SubgraphsLength()} subgraphs: only models without control flow can be sliced"
        )
    return model


_DAMAGE = (struct.error, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, MemoryError)
"""What offsets, counts and indices that make no sense raise in the flatbuffers library and here."""
_BUILTIN_NAMES = {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}
_TYPE_NAMES = {v: k for k, v in vars(tflite.TensorType).items() if isinstance(v, int)}
_ACTIVATIONS = {v: k for k, v in vars(tflite.ActivationFunctionType).items() if isinstance(v, int)}
_NUMPY_TYPES = {
    tflite.TensorType.INT8: np.int8,
    tflite.TensorType.INT32: np.int32,
    tflite.TensorType.INT64: np.int64,
}


@dataclass(frozen=True)
class _Context:
    """One op in the file, with what its parser needs."""

    reader: _Reader
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
        return self.reader.shape(self.inputs[position])

    def error(self, problem: str) -> DiscoError:
        return self.reader.error(f"op {self.index} ({self.kind}, writing {self.reader.name(self.output)!r}) {problem}")


class _Reader:
    def __init__(self, model: Any, where: str) -> None:
        self._model = model
        self._subgraph = model.Subgraphs(0)
        self._where = where
        self._names = self._unique_names()
        self._tensors: dict[str, g.Tensor] = {}

    def error(self, problem: str) -> DiscoError:
        return DiscoError(f"{self._where}: {problem}")

    def graph(self) -> g.Graph:
        inputs = [self._subgraph.Inputs(i) for i in range(self._subgraph.InputsLength())]
        outputs = [self._subgraph.Outputs(i) for i in range(self._subgraph.OutputsLength())]
        if len(inputs) != 1:
            raise self.error(f"the model has {len(inputs)} inputs; exactly one is supported")
        self._refuse_float([*inputs, *outputs])
        source = self._activation(inputs[0])
        ops = tuple(self._op(i) for i in range(self._subgraph.OperatorsLength()))
        if not ops or not outputs:
            raise self.error("the model has no ops or no outputs")
        sinks = tuple(self._activation(index) for index in outputs)
        self._check_order(source, ops, sinks)
        return fold(g.Graph(self._tensors, ops, source, sinks))

    def _refuse_float(self, indices: list[int]) -> None:
        for index in indices:
            kind = self._subgraph.Tensors(index).Type()
            if kind != tflite.TensorType.INT8:
                raise self.error(
                    f"tensor {self.name(index)!r} is {_TYPE_NAMES[kind].lower()}, not int8: quantise the model to "
                    "full int8 "
                    "with int8 input and output, or give the .onnx and let disco-export quantise it"
                )

    def _check_order(self, source: str, ops: tuple[g.Op, ...], sinks: tuple[str, ...]) -> None:
        """Every tensor is written once, and before it is read."""
        written = {source}
        for op in ops:
            for name in op.inputs:
                if name not in written:
                    raise self.error(f"op {op.index} ({op.kind}) reads tensor {name!r} before it is written")
            if op.output in written:
                raise self.error(f"op {op.index} ({op.kind}) writes tensor {op.output!r} again")
            written.add(op.output)
        for name in sinks:
            if name not in written:
                raise self.error(f"no op writes the model output {name!r}")

    def _op(self, index: int) -> g.Op:
        flat = self._subgraph.Operators(index)
        code = self._model.OperatorCodes(flat.OpcodeIndex())
        builtin = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        kind = _BUILTIN_NAMES.get(builtin, str(builtin))
        if builtin == tflite.BuiltinOperator.CUSTOM:
            kind = f"CUSTOM {code.CustomCode().decode(errors='replace')}"
        inputs = tuple(flat.Inputs(i) for i in range(flat.InputsLength()))
        context = _Context(self, flat, index, kind, inputs, flat.Outputs(0))
        if kind not in _PARSERS:
            raise context.error(f"is not supported; supported are {', '.join(supported_operators())}")
        params = _PARSERS[kind](context)
        activations = tuple(self._activation(i) for i in inputs if i >= 0 and self.constant(i) is None)
        return g.Op(index, kind, activations, self._activation(flat.Outputs(0)), params)

    def _activation(self, index: int) -> str:
        name = self.name(index)
        if name in self._tensors:
            return name
        flat = self._subgraph.Tensors(index)
        self._refuse_float([index])
        shape = self.shape(index)
        if not 2 <= len(shape) <= 4 or shape[0] != 1:
            raise self.error(
                f"tensor {name!r} has shape {list(shape)}: [1,c], [1,h,c] or [1,h,w,c] with a batch of 1 is needed"
            )
        signature = [int(s) for s in flat.ShapeSignatureAsNumpy()] if flat.ShapeSignatureLength() else list(shape)
        if min(signature[1:]) < 0 or min(shape) < 1:
            raise self.error(
                f"tensor {name!r} has the dynamic shape {signature}: convert the model with a static batch of 1"
            )
        if max(shape) > 0xFFFF:
            raise self.error(f"tensor {name!r} has shape {list(shape)}: at most 65535 along any axis are supported")
        quantisation = flat.Quantization()
        if quantisation is None or quantisation.ScaleLength() != 1:
            raise self.error(f"tensor {name!r} carries no scale: quantise the model to full int8")
        zero_point = int(quantisation.ZeroPoint(0)) if quantisation.ZeroPointLength() else 0
        if not 0 < quantisation.Scale(0) < math.inf or not -128 <= zero_point <= 127:
            raise self.error(
                f"tensor {name!r} has scale {quantisation.Scale(0):g} and zero point {zero_point}: a scale above 0 and "
                "a zero point from -128 to 127 are needed; quantise the model again"
            )
        self._tensors[name] = g.Tensor(name, index, shape, float(quantisation.Scale(0)), zero_point)
        return name

    def name(self, index: int) -> str:
        if index < 0:
            raise IndexError(f"tensor {index}")
        return self._names[index]

    def shape(self, index: int) -> tuple[int, ...]:
        flat = self._subgraph.Tensors(index)
        return tuple(int(s) for s in flat.ShapeAsNumpy()) if flat.ShapeLength() else ()

    def constant(self, index: int) -> npt.NDArray[Any] | None:
        if index < 0:
            return None
        flat = self._subgraph.Tensors(index)
        buffer = self._model.Buffers(flat.Buffer())
        if buffer is None or buffer.DataLength() == 0:
            return None
        if flat.Type() not in _NUMPY_TYPES:
            raise self.error(
                f"constant {self.name(index)!r} is {_TYPE_NAMES[flat.Type()].lower()}, not int8 or int32: quantise "
                "the model to full int8"
            )
        data = np.frombuffer(buffer.DataAsNumpy().tobytes(), dtype=_NUMPY_TYPES[flat.Type()])
        if data.size != int(np.prod(self.shape(index))):
            raise self.error(f"constant {self.name(index)!r} does not fill its shape: the file is damaged")
        return data.reshape(self.shape(index))

    def quantisation(self, index: int) -> tuple[float, int]:
        """(scale, zero point) of an activation."""
        tensor = self._tensors[self._activation(index)]
        return tensor.scale, tensor.zero_point

    def weight_scales(self, index: int, outputs: int, axis: int) -> tuple[g.Float32Array, bool]:
        """One scale per output channel, and whether the file had so. Weight zero points must be 0."""
        quantisation = self._subgraph.Tensors(index).Quantization()
        count = quantisation.ScaleLength() if quantisation is not None else 0
        if count not in (1, outputs):
            raise self.error(f"weights {self.name(index)!r} carry {count} scales for {outputs} output channels")
        if count > 1 and quantisation.QuantizedDimension() != axis:
            raise self.error(
                f"weights {self.name(index)!r} are quantised along axis {quantisation.QuantizedDimension()}, not {axis}"
            )
        if any(quantisation.ZeroPoint(i) for i in range(quantisation.ZeroPointLength())):
            raise self.error(f"weights {self.name(index)!r} have zero points other than 0")
        scales = np.array([quantisation.Scale(i) for i in range(count)], np.float32)
        if not np.isfinite(scales).all() or (scales < 0).any():
            raise self.error(f"weights {self.name(index)!r} have a scale that is negative or not finite")
        per_channel = count == outputs and count > 1
        return np.ascontiguousarray(np.broadcast_to(scales, (outputs,))), per_channel

    def _unique_names(self) -> list[str]:
        names: list[str] = []
        seen: set[str] = set()
        for index in range(self._subgraph.TensorsLength()):
            raw = self._subgraph.Tensors(index).Name()
            name = raw.decode() if raw else f"tensor_{index}"
            name = name if name not in seen else f"{name}:{index}"
            seen.add(name)
            names.append(name)
        return names


def _filter(op: _Context, outputs: int, axis: int, weights: npt.NDArray[Any]) -> g.Filter:
    if weights.dtype != np.int8:
        raise op.error(f"has {weights.dtype} weights; int8 is needed")
    scales, per_channel = op.reader.weight_scales(op.inputs[1], outputs, axis)
    bias = None
    if len(op.inputs) > 2 and op.inputs[2] >= 0:
        bias = op.constant(2).reshape(-1)
        if bias.dtype != np.int32 or bias.size != outputs:
            raise op.error(f"has a bias of {bias.size} {bias.dtype} values; {outputs} int32 are needed")
    return g.Filter(np.ascontiguousarray(weights), scales, per_channel, bias)


def _window(op: _Context, size: tuple[int, int], options: Any, dilated: bool) -> g.Window:
    stride = (int(options.StrideH()), int(options.StrideW()))
    dilation = (int(options.DilationHFactor()), int(options.DilationWFactor())) if dilated else (1, 1)
    height, width = op.shape(0)[1:3]
    if options.Padding() == tflite.Padding.VALID:
        return g.Window(size, stride, dilation)
    top, bottom = g.same_padding(height, size[0], stride[0], dilation[0])
    left, right = g.same_padding(width, size[1], stride[1], dilation[1])
    return g.Window(size, stride, dilation, g.Padding(top, bottom, left, right))


def _conv_2d(op: _Context) -> g.Params:
    weights = op.constant(1)
    channels = op.shape(0)[-1]
    if len(op.shape(0)) != 4 or weights.ndim != 4:
        raise op.error("needs a 4-D input and 4-D weights")
    if weights.shape[3] != channels:
        raise op.error(
            f"is grouped ({channels} input channels, weights for {weights.shape[3]}): only groups = 1 and depthwise "
            "are supported"
        )
    options = op.options(tflite.Conv2DOptions)
    size = (weights.shape[1], weights.shape[2])
    return g.Conv2D(
        _window(op, size, options, dilated=True),
        _filter(op, weights.shape[0], 0, weights),
        _ACTIVATIONS[options.FusedActivationFunction()],
    )


def _depthwise_conv_2d(op: _Context) -> g.Params:
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


def _fully_connected(op: _Context) -> g.Params:
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


def _check_operands(op: _Context) -> None:
    if any(op.reader.constant(i) is not None for i in op.inputs) or op.shape(0) != op.shape(1):
        raise op.error(
            f"takes {list(op.shape(0))} and {list(op.shape(1))}: two activations of one shape are needed (no "
            "broadcast, no constant)"
        )


def _add(op: _Context) -> g.Params:
    _check_operands(op)
    return g.Add(_ACTIVATIONS[op.options(tflite.AddOptions).FusedActivationFunction()])


def _mul(op: _Context) -> g.Params:
    _check_operands(op)
    return g.Mul(_ACTIVATIONS[op.options(tflite.MulOptions).FusedActivationFunction()])


def _pool_2d(op: _Context) -> g.Params:
    options = op.options(tflite.Pool2DOptions)
    size = (int(options.FilterHeight()), int(options.FilterWidth()))
    return g.Pool2D(_window(op, size, options, dilated=False), _ACTIVATIONS[options.FusedActivationFunction()])


def _mean(op: _Context) -> g.Params:
    rank = len(op.shape(0))
    axes = sorted({int(axis) % rank for axis in op.constant(1).reshape(-1)})
    if rank != 4 or axes not in ([1, 2], [2, 3]):
        raise op.error(f"is taken over the axes {axes} of {rank}; only height and width of [1,h,w,c] are supported")
    # Axes [2, 3] come behind a TRANSPOSE to NCHW; folding makes both one mean over height and width.
    return g.MeanNchw() if axes == [2, 3] else g.Mean(bool(op.options(tflite.ReducerOptions).KeepDims()))


def _pad(op: _Context) -> g.Params:
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


def _concatenation(op: _Context) -> g.Params:
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


def _reshape(op: _Context) -> g.Params:
    if op.reader.quantisation(op.inputs[0]) != op.reader.quantisation(op.output):
        raise op.error("changes the scale")
    return g.Reshape()


def _transpose(op: _Context) -> g.Params:
    return g.Transpose(tuple(int(axis) for axis in op.constant(1).reshape(-1)))


def _activation(op: _Context) -> g.Params:
    return g.Activation(op.kind)


def _softmax(op: _Context) -> g.Params:
    if op.reader.quantisation(op.output) != (1 / 256, -128):
        raise op.error("has an output scale other than 1/256 with zero point -128")
    return g.Softmax(float(op.options(tflite.SoftmaxOptions).Beta()))


_PARSERS: dict[str, Callable[[_Context], g.Params]] = {
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
