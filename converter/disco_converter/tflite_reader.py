"""Reads a full-int8 .tflite file into a `Graph`, and refuses by name what cannot be sliced."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite

from disco_converter import graph as g
from disco_converter.folding import fold
from disco_converter.tflite_operators import PARSERS, OpContext
from disco_targets.errors import DiscoError


def read_tflite(content: bytes, where: str = "model") -> g.Graph:
    """Parses a .tflite file.

    Args:
        content: The file's bytes.
        where: What to call the file in messages.

    Raises:
        DiscoError: Not a .tflite file, not full-int8, a dynamic shape, more than one input, or an op that is not
            supported (with its place in the graph and the list of those that are).
    """
    try:
        return Reader(_parse(content, where), where).graph()
    except _DAMAGE as error:
        raise DiscoError(
            f"{where} is a damaged .tflite file ({str(error) or type(error).__name__}): make it again"
        ) from error


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
_NUMPY_TYPES = {
    tflite.TensorType.INT8: np.int8,
    tflite.TensorType.INT32: np.int32,
    tflite.TensorType.INT64: np.int64,
}


class Reader:
    """The parts of a parsed file."""

    def __init__(self, model: Any, where: str) -> None:
        self._model = model
        self._subgraph = model.Subgraphs(0)
        self._where = where
        self._names = self._unique_names()
        self._tensors: dict[str, g.Tensor] = {}

    def error(self, problem: str) -> DiscoError:
        """An error that names the file."""
        return DiscoError(f"{self._where}: {problem}")

    def graph(self) -> g.Graph:
        """The whole graph, folded."""
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
                    "full int8 with int8 input and output, or give the .onnx and let disco-export quantise it"
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
        context = OpContext(self, flat, index, kind, inputs, flat.Outputs(0))
        if kind not in PARSERS:
            raise context.error(f"is not supported; supported are {', '.join(sorted(PARSERS))}")
        params = PARSERS[kind](context)
        if isinstance(params, g.DepthwiseConv2D):
            kind = "DEPTHWISE_CONV_2D"  # also where the file has a group for each channel
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
        """The name of a tensor, unique."""
        if index < 0:
            raise IndexError(f"tensor {index}")
        return self._names[index]

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of a tensor, () for a scalar."""
        flat = self._subgraph.Tensors(index)
        return tuple(int(s) for s in flat.ShapeAsNumpy()) if flat.ShapeLength() else ()

    def constant(self, index: int) -> npt.NDArray[Any] | None:
        """The data of a constant tensor; None for an activation or a tensor that is left out."""
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
