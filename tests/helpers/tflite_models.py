"""Builds small int8 .tflite models from tensors and ops, to compare with the reference kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
import tflite

_TYPES = {np.dtype(np.int8): tflite.TensorType.INT8, np.dtype(np.int32): tflite.TensorType.INT32}


@dataclass(frozen=True)
class Tensor:
    """A tensor with its quantisation; `data` makes it a constant."""

    shape: tuple[int, ...]
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    axis: int = 0
    """The axis that several scales lie along."""
    data: npt.NDArray[Any] | None = None

    @property
    def scale(self) -> float:
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        return self.zero_points[0]

    @property
    def quantisation(self) -> tuple[float, int]:
        return self.scale, self.zero_point


@dataclass(frozen=True)
class Op:
    """One builtin operator; inputs and outputs are positions in the model's tensors."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: str = ""
    """Name of the options table, e.g. Conv2DOptions."""
    values: dict[str, int | float] = field(default_factory=dict)
    version: int = 3


def build(tensors: Sequence[Tensor], ops: Sequence[Op], outputs: Sequence[int]) -> bytes:
    """The model as a file; its inputs are the tensors that are neither constant nor written."""
    builder = flatbuffers.Builder(4096)
    written = {index for op in ops for index in op.outputs}
    inputs = [i for i, t in enumerate(tensors) if t.data is None and i not in written]
    buffers = [_buffer(builder, None)] + [_buffer(builder, tensor.data) for tensor in tensors]
    graph = _table(
        builder,
        "SubGraph",
        Tensors=_offsets(builder, [_tensor(builder, i, t) for i, t in enumerate(tensors)]),
        Inputs=_ints(builder, inputs),
        Outputs=_ints(builder, outputs),
        Operators=_offsets(builder, [_operator(builder, i, op) for i, op in enumerate(ops)]),
    )
    model = _table(
        builder,
        "Model",
        Version=3,
        OperatorCodes=_offsets(builder, [_code(builder, op) for op in ops]),
        Subgraphs=_offsets(builder, [graph]),
        Buffers=_offsets(builder, buffers),
    )
    builder.Finish(model, file_identifier=b"TFL3")
    return bytes(builder.Output())


def _table(builder: flatbuffers.Builder, name: str, **values: Any) -> int:
    getattr(tflite, f"{name}Start")(builder)
    for key, value in values.items():
        getattr(tflite, f"{name}Add{key}")(builder, value)
    return int(getattr(tflite, f"{name}End")(builder))


def _offsets(builder: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _ints(builder: flatbuffers.Builder, values: Sequence[int]) -> int:
    return int(builder.CreateNumpyVector(np.array(values, np.int32)))


def _buffer(builder: flatbuffers.Builder, data: npt.NDArray[Any] | None) -> int:
    if data is None:
        return _table(builder, "Buffer")
    content = np.frombuffer(data.tobytes(), np.uint8)
    builder.StartVector(1, content.size, 16)
    builder.head -= content.size
    builder.Bytes[builder.head : builder.head + content.size] = content.tobytes()
    return _table(builder, "Buffer", Data=builder.EndVector())


def _tensor(builder: flatbuffers.Builder, index: int, tensor: Tensor) -> int:
    dtype = np.dtype(np.int8) if tensor.data is None else tensor.data.dtype
    name = builder.CreateString(f"tensor{index}")
    shape = _ints(builder, tensor.shape)
    values: dict[str, int] = {}
    if tensor.scales:
        scales = builder.CreateNumpyVector(np.array(tensor.scales, np.float32))
        zero_points = builder.CreateNumpyVector(np.array(tensor.zero_points, np.int64))
        values["Quantization"] = _table(
            builder,
            "QuantizationParameters",
            Scale=scales,
            ZeroPoint=zero_points,
            QuantizedDimension=tensor.axis,
        )
    return _table(builder, "Tensor", Shape=shape, Type=_TYPES[dtype], Buffer=index + 1, Name=name, **values)


def _operator(builder: flatbuffers.Builder, index: int, op: Op) -> int:
    inputs, outputs = _ints(builder, op.inputs), _ints(builder, op.outputs)
    values: dict[str, int] = {}
    if op.options:
        values["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, op.options)
        values["BuiltinOptions"] = _table(builder, op.options, **op.values)
    return _table(builder, "Operator", OpcodeIndex=index, Inputs=inputs, Outputs=outputs, **values)


def _code(builder: flatbuffers.Builder, op: Op) -> int:
    code = int(getattr(tflite.BuiltinOperator, op.kind))
    return _table(
        builder,
        "OperatorCode",
        DeprecatedBuiltinCode=min(code, 127),
        BuiltinCode=code,
        Version=op.version,
    )
