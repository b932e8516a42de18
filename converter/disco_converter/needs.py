"""Which channels of an op's inputs a node needs for what it computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from disco_converter import graph as g
from disco_converter.ownership import Ownership

Channels: TypeAlias = tuple[int, ...]
Computed: TypeAlias = Mapping[str, Sequence[Channels]]
"""Tensor -> by node, the channels that it computes: its own, then those that it recomputes, each in buffer order."""


def needed_channels(
    graph: g.Graph, op: g.Op, ownership: Mapping[str, Ownership], position: int, node: int, computed: Channels
) -> Channels:
    """Channels of input `position` that `node` needs to compute the channels `computed` of the output of `op`.

    For local ops in the order of use, for mixing ops without those that only meet zero weights.
    """
    outputs = np.array(computed, np.int64)
    source = ownership[op.inputs[position]]
    if not outputs.size:
        return ()
    if isinstance(op.params, g.MIXING):
        weights = op.params.filter.weights[outputs]
        return source.ordered(np.flatnonzero(weights.reshape(-1, weights.shape[-1]).any(axis=0)))
    if isinstance(op.params, g.DepthwiseConv2D):
        return tuple(dict.fromkeys((outputs // op.params.multiplier).tolist()))
    if isinstance(op.params, g.Concatenation):
        start = sum(graph.tensors[name].channels for name in op.inputs[:position])
        inside = outputs[(outputs >= start) & (outputs < start + source.rank.size)]
        return tuple((inside - start).tolist())
    if isinstance(op.params, g.Reshape):
        return source.own(node)
    if isinstance(op.params, g.Softmax):
        return tuple(range(source.rank.size))
    return tuple(outputs.tolist())


def needed_of(
    graph: g.Graph, ownership: Mapping[str, Ownership], tensor: str, node: int, computed: Computed
) -> set[int]:
    """Channels of a tensor that `node` needs for all that it computes from it."""
    return {
        channel
        for op in graph.consumers[tensor]
        for position, name in enumerate(op.inputs)
        if name == tensor
        for channel in needed_channels(graph, op, ownership, position, node, computed[op.output][node])
    }
