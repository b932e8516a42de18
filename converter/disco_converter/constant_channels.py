"""Channels that are the same value for every input: nobody computes, stores or sends them.

Pruning leaves filters whose weights are all zero. What comes out of one is its bias, requantised and clamped, whatever
the input; and what only depends on such channels is no different. Where every consumer can do without, the channel
is dropped: a convolution or fully connected layer takes it into its bias, an op that works channel by channel has its
own output dropped with it. Everything that is left stays exact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from disco_converter import graph as g
from disco_converter.ownership import Ownership
from disco_firmware.reference import TfliteModel
from disco_firmware.variants.accumulators import wrapped

Flags: TypeAlias = npt.NDArray[np.bool_]
STEP = 4
"""What a node keeps of a tensor stays a multiple of so many channels: kernels compute that many together."""

_LOCAL = (g.DepthwiseConv2D, g.Add, g.Mul, g.Pool2D, g.Mean, g.Pad, g.Activation, g.Concatenation)


def without_constant_channels(graph: g.Graph, content: bytes, ownership: Mapping[str, Ownership]) -> g.Graph:
    """The same graph with its droppable channels in `Graph.constants`, and the biases that take them in.

    Args:
        graph: As read from the file.
        content: The file.
        ownership: How the graph would be cut. Every node keeps some channel of each tensor that it has a share of.
    """
    fixed = _fixed(graph)
    if not any(flags.any() for flags in fixed.values()):
        return graph
    values = _values(graph, content)
    constant = {name: flags & values[name].uniform for name, flags in fixed.items()}
    classes = _Classes(graph)
    for name, channel in _needed(graph, constant, values):
        classes.keep(name, channel)
    for op in graph.ops:
        if isinstance(op.params, g.MIXING):
            _keep_whole_steps(classes, op.output, ownership[op.output])
    dropped = {name: classes.dropped(name) for name in graph.tensors}
    ops = tuple(_with_folded_bias(graph, op, dropped, values) for op in graph.ops)
    constants = {
        name: {int(c): int(values[name].first[c]) for c in np.flatnonzero(flags)}
        for name, flags in dropped.items()
        if flags.any()
    }
    return dataclasses.replace(graph, ops=ops, constants=constants)


def _fixed(graph: g.Graph) -> dict[str, Flags]:
    """By tensor: the channels that do not depend on the model's input (their pixels may still differ at borders)."""
    fixed: dict[str, Flags] = {graph.input: np.zeros(graph.tensors[graph.input].channels, bool)}
    for op in graph.ops:
        inputs = [fixed[name] for name in op.inputs]
        fixed[op.output] = _fixed_after(op, inputs, graph.tensors[op.output].channels)
    return fixed


def _fixed_after(op: g.Op, inputs: list[Flags], channels: int) -> Flags:
    params = op.params
    if isinstance(params, g.MIXING):
        weights = params.filter.weights
        used = weights.reshape(len(weights), -1, weights.shape[-1]).any(axis=1)
        return np.asarray(~(used & ~inputs[0]).any(axis=1))
    if isinstance(params, g.DepthwiseConv2D):
        zero = ~params.filter.weights.reshape(-1, channels).any(axis=0)
        return np.asarray(zero | np.repeat(inputs[0], params.multiplier))
    if isinstance(params, g.Concatenation):
        return np.concatenate(inputs)
    if isinstance(params, _LOCAL) or _keeps_channels(op, inputs[0].size, channels):
        return np.asarray(np.logical_and.reduce(inputs))
    return np.zeros(channels, bool)


def _keeps_channels(op: g.Op, before: int, after: int) -> bool:
    return isinstance(op.params, g.Reshape) and op.params.order is None and before == after


@dataclass(frozen=True, eq=False)
class _Values:
    """What the reference kernels computed of a tensor for some input."""

    uniform: Flags
    """[channels] All pixels are equal."""
    first: npt.NDArray[np.int64]
    """[channels] The first pixel."""


def _values(graph: g.Graph, content: bytes) -> dict[str, _Values]:
    """A channel that depends on no input is for all inputs what it is for one: no arithmetic needs to be done again."""
    model = TfliteModel(content, observe=True)
    source = np.zeros(graph.tensors[graph.input].shape, np.int8)
    model.run([source])
    result = {}
    for name, tensor in graph.tensors.items():
        value = source if name == graph.input else model.tensor(tensor.index)
        pixels = value.reshape(-1, tensor.channels)
        result[name] = _Values(np.asarray((pixels == pixels[0]).all(axis=0)), pixels[0].astype(np.int64))
    return result


def _needed(graph: g.Graph, constant: Mapping[str, Flags], values: Mapping[str, _Values]) -> list[tuple[str, int]]:
    """(tensor, channel) that must be computed whatever else is dropped."""
    needed = {name: ~flags for name, flags in constant.items()}
    for name in (graph.input, *graph.outputs):
        needed[name][:] = True
    for op in graph.ops:
        for name in op.inputs:
            needed[name] |= _needed_by(graph, op, name, values[name])
        if not isinstance(op.params, g.MIXING) and not _is_local(graph, op):
            needed[op.output][:] = True
    return [(name, int(channel)) for name, flags in needed.items() for channel in np.flatnonzero(flags)]


def _is_local(graph: g.Graph, op: g.Op) -> bool:
    before, after = graph.tensors[op.inputs[0]].channels, graph.tensors[op.output].channels
    return isinstance(op.params, _LOCAL) or _keeps_channels(op, before, after)


def _needed_by(graph: g.Graph, op: g.Op, name: str, values: _Values) -> Flags:
    """The constant channels that an op cannot do without, even if its own output is dropped too."""
    params = op.params
    if not isinstance(params, g.MIXING):
        return np.full(values.first.size, not _is_local(graph, op))
    weights = params.filter.weights
    used = weights.reshape(-1, weights.shape[-1]).any(axis=0)
    # At a border the zero point is read in place of the channel's value.
    padded = isinstance(params, g.Conv2D) and bool(params.window.padding)
    return np.asarray(used & padded & (values.first != graph.tensors[name].zero_point))


class _Classes:
    """Channels that can only be dropped together: those that ops which work channel by channel make of each other."""

    def __init__(self, graph: g.Graph) -> None:
        sizes = [tensor.channels for tensor in graph.tensors.values()]
        starts = np.cumsum([0, *sizes])
        self._slices = {
            name: slice(int(start), int(start) + size)
            for name, start, size in zip(graph.tensors, starts, sizes, strict=False)
        }
        self._class = np.arange(starts[-1])
        for op in graph.ops:
            if _is_local(graph, op):
                self._join(op)
        self._kept = np.zeros(starts[-1], bool)

    def _join(self, op: g.Op) -> None:
        output = np.arange(self._slices[op.output].start, self._slices[op.output].stop)
        offset = 0
        for name in op.inputs:
            source = np.arange(self._slices[name].start, self._slices[name].stop)
            if isinstance(op.params, g.Concatenation):
                results = output[offset : offset + source.size]
                offset += source.size
            else:
                multiplier = op.params.multiplier if isinstance(op.params, g.DepthwiseConv2D) else 1
                results, source = output, np.repeat(source, multiplier)
            for one, two in zip(source, results, strict=True):
                old, new = self._class[two], self._class[one]
                self._class[self._class == old] = new

    def keep(self, tensor: str, channel: int) -> None:
        """Keeps a channel and its whole class."""
        self._kept[self._class[self._slices[tensor]][channel]] = True

    def dropped(self, tensor: str) -> Flags:
        """[channels] of a tensor: those that nothing keeps."""
        return np.asarray(~self._kept[self._class[self._slices[tensor]]])


def _keep_whole_steps(classes: _Classes, tensor: str, ownership: Ownership) -> None:
    """Drops only so many channels of each node's share that a multiple of STEP is left, and at least one step."""
    dropped = classes.dropped(tensor)
    owners = ownership.owners
    assert owners is not None
    for node in np.unique(owners):
        own = np.flatnonzero(owners == node)
        droppable = own[dropped[own]]
        left = own.size - droppable.size
        wanted = min(own.size, max(STEP, -(-left // STEP) * STEP))
        for channel in droppable[: wanted - left]:
            classes.keep(tensor, int(channel))


def _with_folded_bias(graph: g.Graph, op: g.Op, dropped: Mapping[str, Flags], values: Mapping[str, _Values]) -> g.Op:
    """Moves what dropped channels add to every accumulator into the bias."""
    params = op.params
    if not isinstance(params, g.MIXING) or not dropped[op.inputs[0]].any():
        return op
    source, gone = graph.tensors[op.inputs[0]], dropped[op.inputs[0]]
    weights = params.filter.weights.copy()
    difference = np.where(gone, values[source.name].first - source.zero_point, 0)
    added = (weights.reshape(len(weights), -1, source.channels).astype(np.int64) * difference).sum(axis=(1, 2))
    weights[..., gone] = 0
    bias = added if params.filter.bias is None else added + params.filter.bias
    folded = dataclasses.replace(params.filter, weights=weights, bias=wrapped(bias))
    return dataclasses.replace(op, params=dataclasses.replace(params, filter=folded))
