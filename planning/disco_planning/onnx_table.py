"""The layer table of an ONNX file."""

from __future__ import annotations

import dataclasses
from collections import Counter
from math import prod
from typing import Any

from disco_planning.layers import Layer
from disco_planning.shares import PLAN_KEY, PlannedCut, read_plan, wrapper_prefix
from disco_targets.errors import DiscoError

_CONVOLUTIONS = ("Conv", "ConvTranspose")
_UNREAD = ("QLinearConv", "ConvInteger", "QLinearMatMul", "MatMulInteger", "DeformConv", "RNN", "GRU", "LSTM")
"""Ops with weights that have no row: leaving them out would be wrong."""
_ONE = (1, 1)


def read_onnx(content: bytes, where: str) -> tuple[tuple[Layer, ...], PlannedCut | None]:
    """One row for each Conv and ConvTranspose, and each Gemm and MatMul with constant weights, in order; and the plan.

    A layer is called after its weights or bias (`stem` for `stem.weight` or `stem.bias`, as in the PyTorch model) where
    they are an initializer that nothing else reads, else after its node. Where the file has the pruner's plan and is of
    a network that wraps the planned one, the names are those of the plan. Padding in front of a layer belongs to it.

    Raises:
        DiscoError: No ONNX file, shapes that are not known, an op with weights that has no row, no layers, a plan that
            cannot be read, or the package `onnx` is missing.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise DiscoError(f"reading {where} needs the package {error.name}: pip install 'disco-edge[plan]'") from error
    try:
        model = onnx.load_model_from_string(content)
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (DecodeError, ValueError, onnx.shape_inference.InferenceError) as error:
        raise DiscoError(f"{where} is not a valid ONNX file ({error})") from error
    try:
        layers = _Reader(model.graph, onnx.helper.get_attribute_value, where).layers()
    except (ValueError, TypeError, IndexError) as error:
        raise DiscoError(f"{where} has a layer that makes no sense ({error}): export the model again") from error
    if not layers:
        raise DiscoError(f"{where} has no convolution and no linear layer")
    plan = next((read_plan(entry.value, where) for entry in model.metadata_props if entry.key == PLAN_KEY), None)
    if plan is not None:
        prefix = wrapper_prefix([layer.name for layer in layers], plan.layers)
        layers = tuple(dataclasses.replace(layer, name=layer.name.removeprefix(prefix)) for layer in layers)
    return layers, plan


class _Reader:
    def __init__(self, graph: Any, value_of: Any, where: str) -> None:
        self._graph = graph
        self._value_of = value_of
        self._where = where
        self._shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        for info in (*graph.input, *graph.value_info, *graph.output):
            dims = info.type.tensor_type.shape.dim
            # 0 stands for a size that is not known.
            self._shapes.setdefault(info.name, tuple(dim.dim_value for dim in dims))
        self._constants = {tensor.name for tensor in graph.initializer}
        self._uses = Counter(name for node in graph.node for name in node.input)
        self._adds = {name: node.input for node in graph.node if node.op_type == "Add" for name in node.input}
        self._padded: dict[str, str] = {}
        self._sources: dict[str, int] = {}

    def layers(self) -> tuple[Layer, ...]:
        found = []
        for index, node in enumerate(self._graph.node):
            if all(name in self._constants for name in node.input if name):
                self._constants.update(node.output)
            elif node.op_type == "Pad":
                self._padded[node.output[0]] = node.input[0]
            elif node.op_type in _CONVOLUTIONS:
                found.append(self._convolution(node, index))
            elif node.op_type in ("Gemm", "MatMul") and node.input[1] in self._constants:
                found.append(self._linear(node, index))
            elif node.op_type in _UNREAD:
                raise self._error(node, "has no row in a layer table: give the float model, before quantisation")
        return tuple(found)

    def _convolution(self, node: Any, index: int) -> Layer:
        attributes = self._attributes(node)
        tensor = self._padded.get(node.input[0], node.input[0])
        weights = self._shape(node.input[1])
        (_, in_ch, *in_plane), (_, out_ch, *out_plane) = self._shape(tensor), self._shape(node.output[0])
        if not len(in_plane) == len(out_plane) == len(weights) - 2 or len(in_plane) not in (1, 2):
            raise self._error(node, "has more axes than a layer table")
        positions = prod(in_plane if node.op_type == "ConvTranspose" else out_plane)
        return Layer(
            self._name(node, index),
            in_ch,
            out_ch,
            _pair(weights[2:]),
            _pair(attributes.get("strides", _ONE)),
            *_pair(in_plane),
            attributes.get("group", 1),
            positions * prod(weights),
            *_pair(out_plane),
            _pair(attributes.get("dilations", _ONE)),
            self._source(tensor),
        )

    def _linear(self, node: Any, index: int) -> Layer:
        weights = self._shape(node.input[1])
        if len(weights) != 2:
            raise self._error(node, f"has weights of shape {list(weights)}, not [in, out]")
        in_ch, out_ch = weights[::-1] if self._attributes(node).get("transB") else weights
        tokens = self._shape(node.input[0])[1:-1]
        height, width = (tokens[0], prod(tokens[1:])) if tokens else _ONE
        plane = (height, width)
        macs = height * width * in_ch * out_ch
        source = self._source(node.input[0])
        return Layer(self._name(node, index), in_ch, out_ch, _ONE, _ONE, *plane, 1, macs, *plane, _ONE, source)

    def _name(self, node: Any, index: int) -> str:
        # Exporters transpose the weights of a MatMul, which loses their name, and add its bias behind it.
        behind = self._adds.get(node.output[0], ())
        for name in (*node.input[1:], *behind):
            stem, dot, last = name.rpartition(".")
            if dot and last in ("weight", "bias") and self._uses[name] == 1:
                return str(stem)
        return str(node.name or f"{node.op_type.lower()}_{index}")

    def _shape(self, name: str) -> tuple[int, ...]:
        """All sizes but the first, the batch, must be known."""
        shape = self._shapes.get(name, ())
        if not shape or not all(shape[1:]):
            raise DiscoError(
                f"{self._where}: the shape of tensor {name!r} is not known ({list(shape)}): export the model with "
                "static shapes"
            )
        return shape

    def _source(self, tensor: str) -> int:
        return self._sources.setdefault(tensor, len(self._sources))

    def _attributes(self, node: Any) -> dict[str, Any]:
        return {attribute.name: self._value_of(attribute) for attribute in node.attribute}

    def _error(self, node: Any, problem: str) -> DiscoError:
        return DiscoError(f"{self._where}: {node.op_type} {node.name!r} {problem}")


def _pair(values: Any) -> tuple[int, int]:
    first, second, *_ = (*(int(value) for value in values), 1, 1)
    return first, second
