"""Cuts the quantised graph into one slice per node, and reads off the int8 weights what must be exchanged.

For every op and node there is a list of the input channels that the node needs: for a mixing op those with a weight
other than 0 towards its outputs, for a local op the channels that its outputs come from. What a node needs and neither
owns nor computes for itself all the same (recompute.py) is transmitted, united over all consumers of a tensor. Nothing
is taken from the pruner: a badly pruned model is slow, never wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from disco_converter import graph as g
from disco_converter.needs import Channels, Computed, needed_channels, needed_of
from disco_converter.ownership import IntArray, Ownership, propagate
from disco_converter.recompute import RECOMPUTED_MACS, computed_channels


@dataclass(frozen=True)
class Buffer:
    """One activation on one node: pixels of computed channels, then of the halo (numbers of the whole tensor)."""

    name: str
    tensor: str
    computed: Channels
    """The node's own, then those that it recomputes."""
    halo: tuple[tuple[int, Channels], ...]
    """(sending node, its channels) with rising nodes."""
    gap: int = 0
    """Bytes at the end of a pixel that the buffer leaves to another one in the same place."""

    @property
    def stride(self) -> int:
        """Bytes from a pixel to the next."""
        return len(self.layout) + self.gap

    @property
    def layout(self) -> Channels:
        """All channels of a pixel in order."""
        return self.computed + tuple(c for _, channels in self.halo for c in channels)


@dataclass(frozen=True)
class Operand:
    """What an op reads: the leading `channels` of each pixel of `buffer`."""

    buffer: str
    channels: Channels


@dataclass(frozen=True, eq=False)
class SlicedOp:
    """A node's share of one op of the model, or a SELECT_CHANNELS in front of one."""

    source: g.Op
    kind: str
    name: str
    operands: tuple[Operand, ...]
    output: str
    params: g.Params


@dataclass(frozen=True, eq=False)
class NodeSlice:
    """What one node computes, in program order."""

    node: int
    buffers: dict[str, Buffer]
    ops: tuple[SlicedOp, ...]
    in_place: dict[str, str] = dataclasses.field(default_factory=dict)
    """Buffer -> the one that is computed over it, by the last op that reads it."""

    def halo_channels(self, operand: Operand) -> int:
        """How many halo channels the operand reads."""
        return max(0, len(operand.channels) - len(self.buffers[operand.buffer].computed))


@dataclass(frozen=True)
class Exchange:
    """The sending of one tensor's channels: (sender, receiver) -> channels in the receiver's buffer order."""

    index: int
    tensor: str
    routes: dict[tuple[int, int], Channels]


@dataclass(frozen=True, eq=False)
class Partition:
    """The whole cut."""

    graph: g.Graph
    nodes: int
    ownership: dict[str, Ownership]
    exchanges: tuple[Exchange, ...]
    stages: dict[int, int]
    """op index -> stage: the exchanges on the longest path before the op."""
    slices: tuple[NodeSlice, ...]

    def output_channels(self, tensor: str, node: int) -> Channels:
        """What `node` sends to the host of model output `tensor`; node 0 speaks for a replicated one."""
        ownership = self.ownership[tensor]
        return ownership.own(node) if ownership.owners is not None or node == 0 else ()


def partition(
    graph: g.Graph, nodes: int, shares: Sequence[float] | None = None, recomputed_macs: int = RECOMPUTED_MACS
) -> Partition:
    """Cuts a model.

    Args:
        graph: The whole model.
        nodes: Among so many.
        shares: The fraction of the channels that each gets; equal ones by default.
        recomputed_macs: Up to how many multiply-accumulates a node recomputes a value instead of receiving it (see
            recompute.computed_channels).

    Raises:
        DiscoError: The graph cannot be cut that way (see ownership.propagate).
    """
    ownership = propagate(graph, nodes, shares)
    computed = computed_channels(graph, ownership, nodes, recomputed_macs)
    exchanges = _exchanges(graph, nodes, ownership, computed)
    slices = tuple(_slice(graph, ownership, computed, exchanges, node) for node in range(nodes))
    return Partition(graph, nodes, ownership, exchanges, _stages(graph, slices), slices)


def _exchanges(graph: g.Graph, nodes: int, ownership: dict[str, Ownership], computed: Computed) -> tuple[Exchange, ...]:
    result: list[Exchange] = []
    for tensor in [graph.input, *(op.output for op in graph.ops)]:
        routes = _routes(graph, nodes, ownership, computed, tensor)
        if routes:
            result.append(Exchange(len(result), tensor, routes))
    return tuple(result)


def _routes(
    graph: g.Graph, nodes: int, ownership: dict[str, Ownership], computed: Computed, tensor: str
) -> dict[tuple[int, int], Channels]:
    owners = ownership[tensor].owners
    if owners is None:
        return {}
    routes: dict[tuple[int, int], Channels] = {}
    for receiver in range(nodes):
        needed = needed_of(graph, ownership, tensor, receiver, computed)
        channels = np.array(sorted(needed - set(computed[tensor][receiver])), np.int64)
        for sender in range(nodes):
            sent = channels[owners[channels] == sender]
            if sender != receiver and sent.size:
                routes[sender, receiver] = ownership[tensor].ordered(sent)
    return routes


def _slice(
    graph: g.Graph, ownership: dict[str, Ownership], computed: Computed, exchanges: tuple[Exchange, ...], node: int
) -> NodeSlice:
    buffers = {name: Buffer(name, name, computed[name][node], ()) for name in graph.tensors}
    for exchange in exchanges:
        halo = tuple(
            (sender, channels) for (sender, receiver), channels in sorted(exchange.routes.items()) if receiver == node
        )
        buffers[exchange.tensor] = dataclasses.replace(buffers[exchange.tensor], halo=halo)
    ops: list[SlicedOp] = []
    for op in graph.ops:
        if buffers[op.output].computed:
            ops.extend(_sliced(graph, op, ownership, buffers, node))
    return NodeSlice(node, {name: buffer for name, buffer in buffers.items() if buffer.layout}, tuple(ops))


def _sliced(
    graph: g.Graph, op: g.Op, ownership: dict[str, Ownership], buffers: dict[str, Buffer], node: int
) -> list[SlicedOp]:
    """The op on this node, behind the selections that it needs. New buffers are added to `buffers`."""
    before: list[SlicedOp] = []
    operands: list[Operand] = []
    for position, name in enumerate(op.inputs):
        buffer = buffers[name]
        needed = needed_channels(graph, op, ownership, position, node, buffers[op.output].computed)
        if isinstance(op.params, g.MIXING):
            # One dense convolution over all channels; without the halo, or over its own alone, where those suffice.
            choices = (ownership[name].own(node), buffer.computed, buffer.layout)
            operands.append(Operand(name, next(choice for choice in choices if set(needed) <= set(choice))))
        elif needed == buffer.layout[: len(needed)]:
            if needed:
                operands.append(Operand(name, needed))
        else:
            selection = _selection(op, position, buffer, needed)
            buffers[selection.output] = Buffer(selection.output, buffer.tensor, needed, ())
            before.append(selection)
            operands.append(Operand(selection.output, needed))
    outputs = np.array(buffers[op.output].computed, np.int64)
    params = _sliced_params(op, outputs, operands)
    return [*before, SlicedOp(op, op.kind, op.name, tuple(operands), op.output, params)]


def _selection(op: g.Op, position: int, buffer: Buffer, needed: Channels) -> SlicedOp:
    name = f"select_{op.name}_{position}"
    places = {channel: place for place, channel in enumerate(buffer.layout)}
    params = g.SelectChannels(tuple(places[channel] for channel in needed))
    return SlicedOp(
        op, "SELECT_CHANNELS", name, (Operand(buffer.name, buffer.layout),), f"{buffer.name}:{name}", params
    )


def _sliced_params(op: g.Op, outputs: IntArray, operands: list[Operand]) -> g.Params:
    params = op.params
    if isinstance(params, g.DepthwiseConv2D):
        return dataclasses.replace(params, filter=_cut(params.filter, params.filter.weights[..., outputs], outputs))
    if isinstance(params, g.MIXING):
        inputs = np.array(operands[0].channels, np.int64)
        weights = params.filter.weights[outputs][..., inputs]
        return dataclasses.replace(params, filter=_cut(params.filter, weights, outputs))
    if isinstance(params, g.Reshape):
        return g.Reshape()  # the node's elements already lie in the output's order
    return params


def _cut(whole: g.Filter, weights: g.Int8Array, outputs: IntArray) -> g.Filter:
    bias = None if whole.bias is None else whole.bias[outputs]
    return g.Filter(np.ascontiguousarray(weights), whole.scales[outputs], whole.per_channel, bias)


def _stages(graph: g.Graph, slices: tuple[NodeSlice, ...]) -> dict[int, int]:
    """Every op one stage after the exchange that any node waits for in it."""
    waits = {
        (op.source.index, slice_.buffers[operand.buffer].tensor)
        for slice_ in slices
        for op in slice_.ops
        for operand in op.operands
        if slice_.halo_channels(operand)
    }
    level = {graph.input: 0}
    stages: dict[int, int] = {}
    for op in graph.ops:
        stages[op.index] = max(level[name] + ((op.index, name) in waits) for name in op.inputs)
        level[op.output] = stages[op.index]
    return stages
