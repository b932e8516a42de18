"""Lowers the ops of a node's slice to what kernels compute: parameters as numbers, and views of the tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from disco_converter import graph as g
from disco_converter.partition import NodeSlice, Operand, Partition, SlicedOp
from disco_firmware import kernel_params as k
from disco_firmware import quantisation
from disco_firmware.variants.base import Layer


@dataclass(frozen=True, eq=False)
class LoweredOp:
    """One op of a node's program."""

    op: SlicedOp
    layer: Layer


def lower(partition: Partition, slice_: NodeSlice) -> tuple[LoweredOp, ...]:
    """The ops of a node's program, in order."""
    return tuple(LoweredOp(op, _Operation(partition, slice_, op).layer()) for op in slice_.ops)


@dataclass(frozen=True, eq=False)
class _Operation:
    """One op and the tensors around it."""

    partition: Partition
    slice_: NodeSlice
    op: SlicedOp

    def layer(self) -> Layer:
        return Layer(
            _LOWERINGS[type(self.op.params)](self, self.op.params),
            tuple(self._view(operand) for operand in self.op.operands),
            self._output_view(),
        )

    def input(self, position: int = 0) -> g.Tensor:
        return self._tensor(self.op.operands[position].buffer)

    @property
    def output(self) -> g.Tensor:
        return self.partition.graph.tensors[self.op.source.output]

    def _tensor(self, buffer: str) -> g.Tensor:
        return self.partition.graph.tensors[self.slice_.buffers[buffer].tensor]

    def _view(self, operand: Operand) -> k.View:
        height, width = self._tensor(operand.buffer).plane
        return k.View(height, width, len(operand.channels), self.slice_.buffers[operand.buffer].stride)

    def _output_view(self) -> k.View:
        buffer = self.slice_.buffers[self.op.output]
        height, width = self._tensor(self.op.output).plane
        return k.View(height, width, len(buffer.computed), buffer.stride)


def _conv2d(context: _Operation, params: g.Conv2D) -> k.Conv2D:
    return k.Conv2D(
        _window(params.window),
        params.filter.weights,
        params.filter.bias,
        context.input().zero_point,
        _convolution_requantisation(context, params),
    )


def _depthwise(context: _Operation, params: g.DepthwiseConv2D) -> k.DepthwiseConv2D:
    return k.DepthwiseConv2D(
        _window(params.window),
        params.filter.weights[0],
        params.filter.bias,
        params.multiplier,
        context.input().zero_point,
        _convolution_requantisation(context, params),
    )


def _convolution_requantisation(context: _Operation, params: g.Conv2D | g.DepthwiseConv2D) -> k.Requantisation:
    output = context.output
    return quantisation.convolution_requantisation(
        context.input().scale, params.filter.scales.tolist(), output.scale, output.zero_point, params.activation
    )


def _fully_connected(context: _Operation, params: g.FullyConnected) -> k.FullyConnected:
    output = context.output
    requantisation = quantisation.fully_connected_requantisation(
        context.input().scale,
        params.filter.scales.tolist(),
        output.scale,
        output.zero_point,
        params.activation,
        per_channel=params.filter.per_channel,
    )
    return k.FullyConnected(params.filter.weights, params.filter.bias, context.input().zero_point, requantisation)


def _add(context: _Operation, params: g.Add) -> k.Add:
    inputs = _pair(context.input(0)), _pair(context.input(1))
    return quantisation.add_parameters(*inputs, _pair(context.output), params.activation)


def _mul(context: _Operation, params: g.Mul) -> k.Mul:
    inputs = _pair(context.input(0)), _pair(context.input(1))
    return quantisation.mul_parameters(*inputs, _pair(context.output), params.activation)


def _pool(context: _Operation, params: g.Pool2D) -> k.AveragePool2D | k.MaxPool2D:
    output = context.output
    bounds = quantisation.activation_range(params.activation, output.scale, output.zero_point)
    kind = k.AveragePool2D if context.op.kind == "AVERAGE_POOL_2D" else k.MaxPool2D
    return kind(_window(params.window), bounds)


def _mean(context: _Operation, params: g.Mean) -> k.Mean:  # noqa: ARG001
    source = context.input()
    return quantisation.mean_parameters(_pair(source), _pair(context.output), int(np.prod(source.plane)))


def _pad(context: _Operation, params: g.Pad) -> k.Pad:  # noqa: ARG001
    return k.Pad(params.padding.top, params.padding.left, params.value)


def _relu(context: _Operation, params: g.Activation) -> k.Relu:
    return quantisation.relu_parameters(params.function, _pair(context.input()), _pair(context.output))


def _softmax(context: _Operation, params: g.Softmax) -> k.Softmax:
    return quantisation.softmax_parameters(context.input().scale, params.beta)


def _concatenation(context: _Operation, params: g.Concatenation) -> k.Concatenation:  # noqa: ARG001
    widths = [len(operand.channels) for operand in context.op.operands[:-1]]
    return k.Concatenation(tuple(np.cumsum([0, *widths]).tolist()))


def _select_channels(context: _Operation, params: g.SelectChannels) -> k.SelectChannels:  # noqa: ARG001
    return k.SelectChannels(params.positions)


def _reshape(context: _Operation, params: g.Reshape) -> k.Reshape:  # noqa: ARG001
    return k.Reshape()


_LOWERINGS: Mapping[type, Callable[[_Operation, Any], k.KernelParams]] = {
    g.Conv2D: _conv2d,
    g.DepthwiseConv2D: _depthwise,
    g.FullyConnected: _fully_connected,
    g.Add: _add,
    g.Mul: _mul,
    g.Pool2D: _pool,
    g.Mean: _mean,
    g.Pad: _pad,
    g.Activation: _relu,
    g.Softmax: _softmax,
    g.Concatenation: _concatenation,
    g.SelectChannels: _select_channels,
    g.Reshape: _reshape,
}


def _window(window: g.Window) -> k.Window:
    padding = window.padding
    return k.Window(*window.size, *window.stride, *window.dilation, padding.top, padding.left)


def _pair(tensor: g.Tensor) -> tuple[float, int]:
    return tensor.scale, tensor.zero_point
