"""What a partition costs: multiply-accumulates, sub-rows, bytes on the wires, bytes in flash."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from math import prod

import numpy as np

from disco_converter import graph as g
from disco_converter.partition import Exchange, NodeSlice, Partition, SlicedOp
from disco_firmware.manifest import NOBODY


def dense_macs(graph: g.Graph, op: g.Op) -> int:
    """Multiply-accumulates of one op of the whole model, zero weights included; 0 for ops without weights."""
    return _macs(op.params, graph.tensors[op.output])


def executed_macs(graph: g.Graph, op: SlicedOp) -> int:
    """The same for a node's share: its outputs times the channels (computed and halo) that it reads."""
    return _macs(op.params, graph.tensors[op.source.output])


def _macs(params: g.Params, output: g.Tensor) -> int:
    """(Sliced) weights times output pixels."""
    if isinstance(params, (g.Conv2D, g.DepthwiseConv2D, g.FullyConnected)):
        return params.filter.weights.size * prod(output.shape[:-1])
    return 0


@dataclass(frozen=True)
class SubRows:
    """Off-diagonal sub-rows of a mixing op: paper, section 3.

    A sub-row is one input channel owned by one node and the weights from it to the outputs of another node.
    """

    total: int = 0
    pruned: int = 0
    """Those whose int8 weights are all zero."""
    recomputed: int = 0
    """Those of the others whose channel the other node computes for itself."""


def sub_rows(partition: Partition, op: g.Op) -> SubRows:
    """The sub-rows of an op; none where it is no mixing op, or reads what every node has."""
    if not isinstance(op.params, g.MIXING):
        return SubRows()
    owners_in, owners_out = partition.ownership[op.inputs[0]].owners, partition.ownership[op.output].owners
    if owners_in is None or owners_out is None:
        return SubRows()
    weights = op.params.filter.weights
    used = weights.reshape(weights.shape[0], -1, weights.shape[-1]).any(axis=1)  # [out, in]
    total = pruned = recomputed = 0
    for slice_ in partition.slices:
        foreign = (owners_in != slice_.node) & (owners_in != NOBODY)
        reaches = used[owners_out == slice_.node].any(axis=0)
        total += int(foreign.sum())
        pruned += int((foreign & ~reaches).sum())
        buffer = slice_.buffers.get(op.inputs[0])
        computed = [] if buffer is None else list(buffer.computed)
        recomputed += int(np.count_nonzero((foreign & reaches)[computed]))
    return SubRows(total, pruned, recomputed)


def route_bytes(graph: g.Graph, exchange: Exchange, sender: int, receiver: int) -> int:
    """Payload bytes per inference of one route."""
    height, width = graph.tensors[exchange.tensor].plane
    return height * width * len(exchange.routes[sender, receiver])


def bytes_between(partition: Partition) -> dict[tuple[int, int], int]:
    """Payload bytes per inference for every (sender, receiver)."""
    pairs = dict.fromkeys(permutations(range(partition.nodes), 2), 0)
    for exchange in partition.exchanges:
        for sender, receiver in exchange.routes:
            pairs[sender, receiver] += route_bytes(partition.graph, exchange, sender, receiver)
    return pairs


def sent_bytes(partition: Partition, slice_: NodeSlice, op: SlicedOp) -> int:
    """Payload bytes of the op's output that leave the node in one inference."""
    height, width = partition.graph.tensors[op.source.output].plane
    return height * width * sent_channels(partition, slice_, op)


def sent_channels(partition: Partition, slice_: NodeSlice, op: SlicedOp) -> int:
    """Channels of the op's output that leave the node, summed over the receivers."""
    return sum(
        len(channels)
        for exchange in partition.exchanges
        if exchange.tensor == op.output
        for (sender, _), channels in exchange.routes.items()
        if sender == slice_.node
    )


def is_sent(partition: Partition, slice_: NodeSlice, buffer: str) -> bool:
    """Whether channels of a buffer leave the node."""
    return any(
        exchange.tensor == buffer and any(sender == slice_.node for sender, _ in exchange.routes)
        for exchange in partition.exchanges
    )


def received_channels(slice_: NodeSlice, op: SlicedOp) -> int:
    """Halo channels that the op reads."""
    return sum(slice_.halo_channels(operand) for operand in op.operands)
