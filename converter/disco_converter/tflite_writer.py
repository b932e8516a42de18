"""Writes one stage of one node as a .tflite file (the schema's `Model` with one subgraph)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import flatbuffers
import numpy as np
import numpy.typing as npt
import tflite

from disco_converter import graph as g
from disco_converter.partition import NodeSlice, Operand, SlicedOp
from disco_converter.stages import Stage, is_internal

_ACTIVATION = {name: value for name, value in vars(tflite.ActivationFunctionType).items() if isinstance(value, int)}
_Options: TypeAlias = tuple[int, Callable[[Any], int]]
"""Number of a table in the BuiltinOptions union, and what writes it."""
_VERSIONS = {
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    "FULLY_CONNECTED": 4,
    "ADD": 2,
    "MUL": 2,
    "SOFTMAX": 2,
    "RELU": 2,
    "RELU6": 2,
    "RELU_N1_TO_1": 1,
    "RESHAPE": 1,
}


def write_stage(graph: g.Graph, slice_: NodeSlice, stage: Stage) -> bytes:
    """The stage as a .tflite file: inputs in the order of `stage.inputs`, outputs in the order of `stage.outputs`."""
    return _StageWriter(graph, slice_, stage).write()


class _StageWriter:
    def __init__(self, graph: g.Graph, slice_: NodeSlice, stage: Stage) -> None:
        self._graph, self._slice, self._stage = graph, slice_, stage
        self._builder = flatbuffers.Builder(1 << 16)
        self._buffers = [self._buffer(None)]
        self._tensors: list[int] = []
        self._operators: list[int] = []
        self._codes: list[str] = []
        self._places: dict[Operand, int] = {}

    def write(self) -> bytes:
        inputs = [self._activation(operand) for operand in self._stage.inputs]
        for op in self._stage.ops:
            self._op(op)
        outputs = [self._places[self._computed(name)] for name in self._stage.outputs]
        return self._finish(inputs, outputs)

    # -- tensors -------------------------------------------------------------------------------------------------

    def _computed(self, buffer: str) -> Operand:
        return Operand(buffer, self._slice.buffers[buffer].computed)

    def _tensor_of(self, operand: Operand) -> g.Tensor:
        return self._graph.tensors[self._slice.buffers[operand.buffer].tensor]

    def _shape(self, operand: Operand) -> list[int]:
        return [*self._tensor_of(operand).shape[:-1], len(operand.channels)]

    def _activation(self, operand: Operand) -> int:
        if operand not in self._places:
            quantisation = self._quantisation_of(self._tensor_of(operand))
            computed, read = len(self._computed(operand.buffer).channels), len(operand.channels)
            part = "" if read == computed else "+halo" if read > computed else f"/first{read}"
            name = operand.buffer + part
            self._places[operand] = self._tensor(name, self._shape(operand), tflite.TensorType.INT8, 0, quantisation)
        return self._places[operand]

    def _input(self, operand: Operand) -> int:
        produced = {op.output for op in self._stage.ops}
        if is_internal(self._slice, produced, operand) and operand not in self._places:
            return self._leading(operand)
        return self._activation(operand)

    def _leading(self, operand: Operand) -> int:
        """The first of the channels that the stage has computed."""
        places = np.arange(len(operand.channels), dtype=np.int32)
        positions = self._constant(f"{operand.buffer}/positions{places.size}", places)
        whole, axis = self._places[self._computed(operand.buffer)], len(self._shape(operand)) - 1
        self._append("GATHER", [whole, positions], [self._activation(operand)], _options("Gather", Axis=axis))
        return self._places[operand]

    def _constant(self, name: str, data: npt.NDArray[Any], quantisation: int | None = None) -> int:
        kind = {np.dtype(np.int8): tflite.TensorType.INT8, np.dtype(np.int32): tflite.TensorType.INT32}[data.dtype]
        self._buffers.append(self._buffer(data))
        return self._tensor(name, list(data.shape), kind, len(self._buffers) - 1, quantisation)

    def _tensor(self, name: str, shape: list[int], kind: int, buffer: int, quantisation: int | None) -> int:
        b = self._builder
        text = b.CreateString(name)
        dimensions = b.CreateNumpyVector(np.array(shape, np.int32))
        tflite.TensorStart(b)
        tflite.TensorAddShape(b, dimensions)
        tflite.TensorAddType(b, kind)
        tflite.TensorAddBuffer(b, buffer)
        tflite.TensorAddName(b, text)
        if quantisation is not None:
            tflite.TensorAddQuantization(b, quantisation)
        self._tensors.append(tflite.TensorEnd(b))
        return len(self._tensors) - 1

    def _buffer(self, data: npt.NDArray[Any] | None) -> int:
        b = self._builder
        vector = None
        if data is not None:
            raw = np.ascontiguousarray(data).tobytes()
            b.StartVector(1, len(raw), 16)
            b.head -= len(raw)
            b.Bytes[b.head : b.head + len(raw)] = raw
            vector = b.EndVector()
        tflite.BufferStart(b)
        if vector is not None:
            tflite.BufferAddData(b, vector)
        return int(tflite.BufferEnd(b))

    def _quantisation_of(self, tensor: g.Tensor) -> int:
        return self._quantisation(np.array([tensor.scale], np.float32), tensor.zero_point, 0)

    def _quantisation(self, scales: npt.NDArray[np.float32], zero_point: int, axis: int) -> int:
        b = self._builder
        scale_vector = b.CreateNumpyVector(scales)
        zero_vector = b.CreateNumpyVector(np.full(scales.size, zero_point, np.int64))
        tflite.QuantizationParametersStart(b)
        tflite.QuantizationParametersAddScale(b, scale_vector)
        tflite.QuantizationParametersAddZeroPoint(b, zero_vector)
        tflite.QuantizationParametersAddQuantizedDimension(b, axis)
        return int(tflite.QuantizationParametersEnd(b))

    # -- ops -----------------------------------------------------------------------------------------------------

    def _op(self, op: SlicedOp) -> None:
        inputs = [self._input(operand) for operand in op.operands]
        params = op.params
        if isinstance(params, (g.Conv2D, g.DepthwiseConv2D)):
            self._convolution(op, params, inputs[0])
        elif isinstance(params, g.FullyConnected):
            self._operator(op, [*inputs, *self._filter(op, params.filter, 0)], _fully_connected_options(params))
        elif isinstance(params, g.Pool2D):
            padding = _implicit_padding(params.window, self._shape(op.operands[0]))
            assert padding is not None, "pooling has no padding of its own"
            self._operator(op, inputs, _pool_options(params, padding))
        elif isinstance(params, g.Pad):
            self._operator(
                op,
                [*inputs, self._paddings(op.name, params.padding), *self._pad_value(op, params)],
                _options("PadV2"),
                kind="PADV2",
            )
        elif isinstance(params, g.Mean):
            axes = self._constant(f"{op.name}/axes", np.array([1, 2], np.int32))
            self._operator(op, [*inputs, axes], _options("Reducer", KeepDims=params.keep_dims))
        elif isinstance(params, g.Reshape):
            shape = np.array(self._shape(self._computed(op.output)), np.int32)
            self._operator(op, [*inputs, self._constant(f"{op.name}/shape", shape)], _options("Reshape"))
        elif isinstance(params, g.SelectChannels):
            positions = self._constant(f"{op.name}/positions", np.array(params.positions, np.int32))
            axis = len(self._shape(op.operands[0])) - 1
            self._operator(op, [*inputs, positions], _options("Gather", Axis=axis), kind="GATHER")
        else:
            self._operator(op, inputs, _simple_options(params, len(self._shape(self._computed(op.output)))))

    def _convolution(self, op: SlicedOp, params: g.Conv2D | g.DepthwiseConv2D, source: int) -> None:
        padding = _implicit_padding(params.window, self._shape(op.operands[0]))
        if padding is None:
            source = self._padded(op, params.window.padding, source)
            padding = tflite.Padding.VALID
        axis = 0 if isinstance(params, g.Conv2D) else 3
        self._operator(op, [source, *self._filter(op, params.filter, axis)], _convolution_options(params, padding))

    def _padded(self, op: SlicedOp, padding: g.Padding, source: int) -> int:
        """A PAD in front, for padding that is neither SAME nor VALID."""
        _, height, width, channels = self._shape(op.operands[0])
        shape = [1, height + padding.top + padding.bottom, width + padding.left + padding.right, channels]
        quantisation = self._quantisation_of(self._tensor_of(op.operands[0]))
        result = self._tensor(f"{op.name}/padded", shape, tflite.TensorType.INT8, 0, quantisation)
        self._append("PAD", [source, self._paddings(op.name, padding)], [result], _options("Pad"))
        return result

    def _paddings(self, name: str, padding: g.Padding) -> int:
        rows = [[0, 0], [padding.top, padding.bottom], [padding.left, padding.right], [0, 0]]
        return self._constant(f"{name}/paddings", np.array(rows, np.int32))

    def _pad_value(self, op: SlicedOp, params: g.Pad) -> list[int]:
        quantisation = self._quantisation_of(self._graph.tensors[op.source.output])
        return [self._constant(f"{op.name}/value", np.array([params.value], np.int8), quantisation)]

    def _filter(self, op: SlicedOp, filter_: g.Filter, axis: int) -> list[int]:
        scales = filter_.scales if filter_.per_channel else filter_.scales[:1]
        weights = self._constant(f"{op.name}/weights", filter_.weights, self._quantisation(scales, 0, axis))
        if filter_.bias is None:
            return [weights, -1]
        source = self._tensor_of(op.operands[0])
        quantisation = self._quantisation(np.float32(source.scale) * scales, 0, 0)
        return [weights, self._constant(f"{op.name}/bias", filter_.bias, quantisation)]

    def _operator(self, op: SlicedOp, inputs: list[int], options: _Options, kind: str | None = None) -> None:
        self._append(kind or op.kind, inputs, [self._activation(self._computed(op.output))], options)

    def _append(self, kind: str, inputs: list[int], outputs: list[int], options: _Options) -> None:
        b = self._builder
        if kind not in self._codes:
            self._codes.append(kind)
        table, write = options
        option = write(b)
        input_vector = b.CreateNumpyVector(np.array(inputs, np.int32))
        output_vector = b.CreateNumpyVector(np.array(outputs, np.int32))
        tflite.OperatorStart(b)
        tflite.OperatorAddOpcodeIndex(b, self._codes.index(kind))
        tflite.OperatorAddInputs(b, input_vector)
        tflite.OperatorAddOutputs(b, output_vector)
        tflite.OperatorAddBuiltinOptionsType(b, table)
        tflite.OperatorAddBuiltinOptions(b, option)
        self._operators.append(tflite.OperatorEnd(b))

    # -- model ---------------------------------------------------------------------------------------------------

    def _finish(self, inputs: list[int], outputs: list[int]) -> bytes:
        b = self._builder
        codes = self._vector(tflite.ModelStartOperatorCodesVector, [self._code(kind) for kind in self._codes])
        subgraphs = self._vector(tflite.ModelStartSubgraphsVector, [self._subgraph(inputs, outputs)])
        buffers = self._vector(tflite.ModelStartBuffersVector, self._buffers)
        description = b.CreateString(f"disco-edge node {self._stage.node} stage {self._stage.index}")
        tflite.ModelStart(b)
        tflite.ModelAddVersion(b, 3)
        tflite.ModelAddOperatorCodes(b, codes)
        tflite.ModelAddSubgraphs(b, subgraphs)
        tflite.ModelAddDescription(b, description)
        tflite.ModelAddBuffers(b, buffers)
        b.Finish(tflite.ModelEnd(b), b"TFL3")
        return bytes(b.Output())

    def _code(self, kind: str) -> int:
        b = self._builder
        builtin = getattr(tflite.BuiltinOperator, kind)
        tflite.OperatorCodeStart(b)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(builtin, 127))
        tflite.OperatorCodeAddVersion(b, _VERSIONS.get(kind, 2))
        tflite.OperatorCodeAddBuiltinCode(b, builtin)
        return int(tflite.OperatorCodeEnd(b))

    def _subgraph(self, inputs: list[int], outputs: list[int]) -> int:
        b = self._builder
        tensors = self._vector(tflite.SubGraphStartTensorsVector, self._tensors)
        operators = self._vector(tflite.SubGraphStartOperatorsVector, self._operators)
        input_vector = b.CreateNumpyVector(np.array(inputs, np.int32))
        output_vector = b.CreateNumpyVector(np.array(outputs, np.int32))
        tflite.SubGraphStart(b)
        tflite.SubGraphAddTensors(b, tensors)
        tflite.SubGraphAddInputs(b, input_vector)
        tflite.SubGraphAddOutputs(b, output_vector)
        tflite.SubGraphAddOperators(b, operators)
        return int(tflite.SubGraphEnd(b))

    def _vector(self, start: Callable[[Any, int], Any], offsets: Sequence[int]) -> int:
        start(self._builder, len(offsets))
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return int(self._builder.EndVector())


def _implicit_padding(window: g.Window, shape: list[int]) -> int | None:
    """TFLite's VALID or SAME where one of them means this window's padding on this input, else None."""
    if not window.padding:
        return int(tflite.Padding.VALID)
    same = g.same_padding((shape[1], shape[2]), window.size, window.stride, window.dilation)
    return int(tflite.Padding.SAME) if window.padding == same else None


def _options(table: str, **fields: Any) -> _Options:
    """The table with these fields."""

    def build(b: Any) -> int:
        getattr(tflite, f"{table}OptionsStart")(b)
        for name, value in fields.items():
            getattr(tflite, f"{table}OptionsAdd{name}")(b, value)
        return int(getattr(tflite, f"{table}OptionsEnd")(b))

    return int(getattr(tflite.BuiltinOptions, f"{table}Options")), build


def _convolution_options(params: g.Conv2D | g.DepthwiseConv2D, padding: int) -> _Options:
    window = params.window
    fields: dict[str, Any] = {
        "Padding": padding,
        "StrideW": window.stride[1],
        "StrideH": window.stride[0],
        "FusedActivationFunction": _ACTIVATION[params.activation],
        "DilationWFactor": window.dilation[1],
        "DilationHFactor": window.dilation[0],
    }
    if isinstance(params, g.DepthwiseConv2D):
        return _options("DepthwiseConv2D", **fields, DepthMultiplier=params.multiplier)
    return _options("Conv2D", **fields)


def _fully_connected_options(params: g.FullyConnected) -> _Options:
    return _options(
        "FullyConnected", FusedActivationFunction=_ACTIVATION[params.activation], KeepNumDims=params.keep_dims
    )


def _pool_options(params: g.Pool2D, padding: int) -> _Options:
    window = params.window
    return _options(
        "Pool2D",
        Padding=padding,
        StrideW=window.stride[1],
        StrideH=window.stride[0],
        FilterWidth=window.size[1],
        FilterHeight=window.size[0],
        FusedActivationFunction=_ACTIVATION[params.activation],
    )


def _simple_options(params: g.Params, rank: int) -> _Options:
    if isinstance(params, g.Add):
        return _options("Add", FusedActivationFunction=_ACTIVATION[params.activation])
    if isinstance(params, g.Mul):
        return _options("Mul", FusedActivationFunction=_ACTIVATION[params.activation])
    if isinstance(params, g.Concatenation):
        return _options("Concatenation", Axis=rank - 1)
    if isinstance(params, g.Softmax):
        return _options("Softmax", Beta=params.beta)
    assert isinstance(params, g.Activation), params
    return 0, lambda _builder: 0
