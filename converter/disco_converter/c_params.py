"""Lowers the parameters of each op to the structures of disco/kernels.h."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from disco_converter import graph as g
from disco_converter.partition import NodeSlice, Partition, SlicedOp
from disco_firmware import quantisation
from disco_firmware.c_literals import array_body, comment, identifier, initialiser

_SIZES = {"int8_t": 1, "uint16_t": 2, "int32_t": 4}


@dataclass(frozen=True)
class CArray:
    """A constant array."""

    type: str
    name: str
    comment: str
    count: int
    body: str

    @property
    def bytes(self) -> int:
        """Size in flash."""
        return _SIZES[self.type] * self.count

    @staticmethod
    def of(type_: str, name: str, text: str, values: Sequence[int]) -> CArray:
        """An array of these values."""
        return CArray(type_, name, comment(text), len(values), array_body(values))


@dataclass(frozen=True)
class CParameters:
    """One parameter structure."""

    type: str
    name: str
    comment: str
    initialiser: str


@dataclass(frozen=True)
class CParameterArray:
    """An array of parameter structures (CONCATENATION: one for each input)."""

    type: str
    name: str
    comment: str
    items: tuple[str, ...]


class OpLowering:
    """Collects the arrays and structures of one node while its ops are lowered in order."""

    def __init__(self, partition: Partition, slice_: NodeSlice) -> None:
        self._partition, self._slice = partition, slice_
        self.arrays: list[CArray] = []
        self.parameters: list[CParameters] = []
        self.parameter_arrays: list[CParameterArray] = []

    def lower(self, op: SlicedOp) -> tuple[str, str]:
        """(disco_op_kind_t, expression for `params`)."""
        params = op.params
        if isinstance(params, g.Conv2D):
            return "DISCO_OP_CONV_2D", self._structure(op, "disco_conv2d_t", self._convolution(op, params))
        if isinstance(params, g.DepthwiseConv2D):
            fields = self._convolution(op, params)
            fields |= {"depth_multiplier": params.multiplier}
            return "DISCO_OP_DEPTHWISE_CONV_2D", self._structure(op, "disco_depthwise_conv2d_t", fields)
        if isinstance(params, g.FullyConnected):
            return "DISCO_OP_FULLY_CONNECTED", self._structure(
                op, "disco_fully_connected_t", self._fully_connected(op, params)
            )
        if isinstance(params, g.Reshape):
            return "DISCO_OP_RESHAPE", "NULL"
        if isinstance(params, g.Concatenation):
            return "DISCO_OP_CONCATENATION", self._concatenation(op)
        return self._simple(op)

    def _simple(self, op: SlicedOp) -> tuple[str, str]:
        params = op.params
        if isinstance(params, g.Add):
            return "DISCO_OP_ADD", self._structure(op, "disco_add_t", self._add(op, params))
        if isinstance(params, g.Pool2D):
            return f"DISCO_OP_{op.kind}", self._structure(op, "disco_pool2d_t", self._pool(op, params))
        if isinstance(params, g.Mean):
            return "DISCO_OP_MEAN", self._structure(op, "disco_mean_t", self._mean(op))
        if isinstance(params, g.Pad):
            fields: dict[str, object] = {
                "pad_top": params.padding.top,
                "pad_left": params.padding.left,
                "value": params.value,
            }
            return "DISCO_OP_PAD", self._structure(op, "disco_pad_t", fields)
        if isinstance(params, g.Activation):
            return "DISCO_OP_RELU", self._structure(op, "disco_relu_t", self._relu(op, params))
        if isinstance(params, g.Softmax):
            return "DISCO_OP_SOFTMAX", self._structure(op, "disco_softmax_t", self._softmax(op, params))
        assert isinstance(params, g.SelectChannels), op.kind
        index = self._array(op, "uint16_t", "index", "positions read", params.positions)
        return "DISCO_OP_SELECT_CHANNELS", self._structure(op, "disco_select_channels_t", {"index": index})

    # -- helpers -------------------------------------------------------------------------------------------------

    def _structure(self, op: SlicedOp, type_: str, fields: dict[str, object]) -> str:
        name = f"{identifier(op.name)}_params"
        self.parameters.append(CParameters(type_, name, comment(f"{op.name}: {op.kind}"), initialiser(fields)))
        return f"&{name}"

    def _array(self, op: SlicedOp, type_: str, what: str, text: str, values: Sequence[int]) -> str:
        name = f"{identifier(op.name)}_{what}"
        self.arrays.append(CArray.of(type_, name, f"{op.name}: {text}", values))
        return name

    def _input(self, op: SlicedOp, position: int = 0) -> g.Tensor:
        return self._partition.graph.tensors[self._slice.buffers[op.operands[position].buffer].tensor]

    def _output(self, op: SlicedOp) -> g.Tensor:
        return self._partition.graph.tensors[op.source.output]

    def _filter(self, op: SlicedOp, filter_: g.Filter, layout: str) -> dict[str, object]:
        shape = list(filter_.weights.shape)
        weights = self._array(
            op, "int8_t", "weights", f"weights {layout} {shape}", filter_.weights.reshape(-1).tolist()
        )
        bias = "NULL"
        if filter_.bias is not None:
            bias = self._array(op, "int32_t", "bias", "bias", filter_.bias.tolist())
        return {"weights": weights, "bias": bias, "input_zero_point": self._input(op).zero_point}

    def _requantise(self, op: SlicedOp, values: quantisation.Requantisation) -> dict[str, object]:
        multiplier = self._array(op, "int32_t", "multiplier", "requantisation, Q31", values.multipliers)
        shift = self._array(op, "int8_t", "shift", "requantisation, left shift", values.shifts)
        return {
            "multiplier": multiplier,
            "shift": shift,
            "output_zero_point": values.output_zero_point,
            "activation_min": values.activation.minimum,
            "activation_max": values.activation.maximum,
        }

    # -- ops -----------------------------------------------------------------------------------------------------

    def _convolution(self, op: SlicedOp, params: g.Conv2D | g.DepthwiseConv2D) -> dict[str, object]:
        output = self._output(op)
        requantisation = quantisation.convolution_requantisation(
            self._input(op).scale, _floats(params.filter.scales), output.scale, output.zero_point, params.activation
        )
        layout = "[out][h][w][in]" if isinstance(params, g.Conv2D) else "[1][h][w][out]"
        fields: dict[str, object] = {"window": _window(params.window)}
        fields |= self._filter(op, params.filter, layout)
        return fields | {"requantise": self._requantise(op, requantisation)}

    def _fully_connected(self, op: SlicedOp, params: g.FullyConnected) -> dict[str, object]:
        output = self._output(op)
        requantisation = quantisation.fully_connected_requantisation(
            self._input(op).scale,
            _floats(params.filter.scales),
            output.scale,
            output.zero_point,
            params.activation,
            per_channel=params.filter.per_channel,
        )
        return self._filter(op, params.filter, "[out][in]") | {"requantise": self._requantise(op, requantisation)}

    def _add(self, op: SlicedOp, params: g.Add) -> dict[str, object]:
        one, two, output = self._input(op, 0), self._input(op, 1), self._output(op)
        values = quantisation.add_parameters(_pair(one), _pair(two), _pair(output), params.activation)
        return {
            "input1_zero_point": values.input1_zero_point,
            "input2_zero_point": values.input2_zero_point,
            "output_zero_point": values.output_zero_point,
            "input1_multiplier": values.input1.multiplier,
            "input2_multiplier": values.input2.multiplier,
            "output_multiplier": values.output.multiplier,
            "input1_shift": values.input1.shift,
            "input2_shift": values.input2.shift,
            "output_shift": values.output.shift,
            "left_shift": values.left_shift,
            "activation_min": values.activation.minimum,
            "activation_max": values.activation.maximum,
        }

    def _pool(self, op: SlicedOp, params: g.Pool2D) -> dict[str, object]:
        output = self._output(op)
        bounds = quantisation.activation_range(params.activation, output.scale, output.zero_point)
        return {"window": _window(params.window), "activation_min": bounds.minimum, "activation_max": bounds.maximum}

    def _mean(self, op: SlicedOp) -> dict[str, object]:
        source = self._input(op)
        values = quantisation.mean_parameters(_pair(source), _pair(self._output(op)), int(np.prod(source.plane)))
        return {
            "input_zero_point": values.input_zero_point,
            "output_zero_point": values.output_zero_point,
            "multiplier": values.multiplier.multiplier,
            "shift": values.multiplier.shift,
        }

    def _relu(self, op: SlicedOp, params: g.Activation) -> dict[str, object]:
        values = quantisation.relu_parameters(params.function, _pair(self._input(op)), _pair(self._output(op)))
        return {
            "input_zero_point": values.input_zero_point,
            "output_zero_point": values.output_zero_point,
            "multiplier": values.multiplier.multiplier,
            "shift": values.multiplier.shift,
            "activation_min": values.activation.minimum,
            "activation_max": values.activation.maximum,
        }

    def _softmax(self, op: SlicedOp, params: g.Softmax) -> dict[str, object]:
        values = quantisation.softmax_parameters(self._input(op).scale, params.beta)
        return {
            "multiplier": values.multiplier.multiplier,
            "shift": values.multiplier.shift,
            "diff_min": values.diff_min,
        }

    def _concatenation(self, op: SlicedOp) -> str:
        name = f"{identifier(op.name)}_params"
        starts = np.cumsum([0, *(len(operand.channels) for operand in op.operands[:-1])]).tolist()
        items = tuple(initialiser({"first_channel": start}) for start in starts)
        self.parameter_arrays.append(
            CParameterArray("disco_copy_channels_t", name, comment(f"{op.name}: {op.kind}"), items)
        )
        return name


def _window(window: g.Window) -> dict[str, object]:
    return {
        "kernel_h": window.size[0],
        "kernel_w": window.size[1],
        "stride_h": window.stride[0],
        "stride_w": window.stride[1],
        "dilation_h": window.dilation[0],
        "dilation_w": window.dilation[1],
        "pad_top": window.padding.top,
        "pad_left": window.padding.left,
    }


def _pair(tensor: g.Tensor) -> tuple[float, int]:
    return tensor.scale, tensor.zero_point


def _floats(values: g.Float32Array) -> list[float]:
    return [float(v) for v in values]
