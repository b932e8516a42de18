"""Which channels a node computes although another node owns them, because that takes less time than receiving them.

The network's input is on every node. What lies directly behind it, the first convolution and what works channel by
channel on its result, any node can compute by itself: a value of a 3x3 convolution of an RGB image is 27
multiply-accumulates, about what it takes to put a byte into frames on one node and to take it out on the other, and
nothing has to wait for a wire. Such a channel is *recomputed* where it is needed instead of sent, unless its weights
are more than its values: they take flash on each node that has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import numpy.typing as npt

from disco_converter import graph as g
from disco_converter.needs import Computed, needed_of
from disco_converter.ownership import Ownership

RECOMPUTED_MACS = 64
"""Up to so many multiply-accumulates a value, by default. Kernels of the Cortex-M4 take about one instruction for each;
to send and to receive a byte takes 16 to 24, and 560 clock cycles on a wire of 3 Mbaud between boards of 168 MHz."""
_CHANNEL_BY_CHANNEL = (g.DepthwiseConv2D, g.Pool2D, g.Add, g.Mul, g.Activation, g.Pad, g.Mean)
FloatArray = npt.NDArray[np.float64]


def computed_channels(
    graph: g.Graph, ownership: Mapping[str, Ownership], nodes: int, most_macs: int = RECOMPUTED_MACS
) -> Computed:
    """What every node computes of every tensor.

    Args:
        graph: The whole model.
        ownership: Of all its tensors.
        nodes: How many there are.
        most_macs: A channel that a node needs and does not own is recomputed if a value of it takes no more
            multiply-accumulates than this, counted from the network's input. 0: nothing is.

    Returns:
        All that the nodes compute; for ops with a channel multiplier all outputs of an input channel or none.
    """
    computed = {name: [owned.own(node) for node in range(nodes)] for name, owned in ownership.items()}
    macs = _macs_from_input(graph, ownership)
    for op in reversed(graph.ops):  # what is recomputed needs its inputs
        cheap = {int(channel) for channel in np.flatnonzero(macs[op.output] <= most_macs)}
        if not most_macs or ownership[op.output].owners is None or not _may_be_recomputed(graph, op):
            continue
        for node, own in enumerate(computed[op.output]):
            needed = needed_of(graph, ownership, op.output, node, computed)
            more = _of_whole_inputs(op, needed & cheap - set(own))
            computed[op.output][node] = own + ownership[op.output].ordered(np.array(more, np.int64))
    return computed


def _may_be_recomputed(graph: g.Graph, op: g.Op) -> bool:
    """Not an output of the model, of which each node tells what it owns; nor what has more weights than values."""
    weights = op.params.filter.weights[0].size if isinstance(op.params, g.MIXING) else 0
    return op.output not in graph.outputs and weights <= prod(graph.tensors[op.output].plane)


def _of_whole_inputs(op: g.Op, channels: set[int]) -> list[int]:
    """The channels, and all others that come from the same input channels, rising."""
    if not isinstance(op.params, g.DepthwiseConv2D):
        return sorted(channels)
    times = op.params.multiplier
    return [times * source + step for source in sorted({c // times for c in channels}) for step in range(times)]


def _macs_from_input(graph: g.Graph, ownership: Mapping[str, Ownership]) -> dict[str, FloatArray]:
    """[channels] multiply-accumulates for a value of each channel of each tensor, from what all nodes have on.

    Infinite where that takes channels that other nodes have computed.
    """
    macs: dict[str, FloatArray] = {}
    for name, owned in ownership.items():
        macs[name] = np.full(owned.rank.size, 0.0 if owned.owners is None else np.inf)
    for op in graph.ops:
        if ownership[op.output].owners is not None:
            macs[op.output] = _macs_of(graph, op, macs)
    return macs


def _macs_of(graph: g.Graph, op: g.Op, macs: Mapping[str, FloatArray]) -> FloatArray:
    output = graph.tensors[op.output]
    if isinstance(op.params, g.MIXING):
        free = not macs[op.inputs[0]].any()
        return np.full(output.channels, op.params.filter.weights[0].size if free else np.inf)
    if not isinstance(op.params, _CHANNEL_BY_CHANNEL):
        return np.full(output.channels, np.inf)
    total = np.zeros(output.channels)
    for name in op.inputs:
        pixels = prod(graph.tensors[name].plane) / prod(output.plane)
        repeats = output.channels // graph.tensors[name].channels
        total += np.repeat(macs[name], repeats) * pixels
    if isinstance(op.params, g.DepthwiseConv2D):
        total += prod(op.params.window.size)
    return total
