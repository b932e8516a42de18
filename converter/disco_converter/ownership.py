"""Who owns which channel: from the input through the graph, a mixing op splits ownership and a local op keeps it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from disco_converter import graph as g
from disco_firmware.manifest import NOBODY
from disco_planning.shares import contiguous_owners
from disco_targets.errors import DiscoError

IntArray: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ownership:
    """Ownership of one tensor's channels.

    owners: [channels] node index of each channel, or None when every node computes and stores all (replicated). NOBODY
        where no node computes it, because it is constant.
    rank: [channels] order of the channels in a node's pixel; rising ranks lie next to each other.
    """

    owners: IntArray | None
    rank: IntArray

    def own(self, node: int) -> tuple[int, ...]:
        """The channels of `node` in buffer order."""
        every = np.arange(self.rank.size) if self.owners is None else np.flatnonzero(self.owners == node)
        return self.ordered(every)

    def ordered(self, channels: IntArray) -> tuple[int, ...]:
        """`channels` in buffer order."""
        return tuple(int(c) for c in channels[np.argsort(self.rank[channels], kind="stable")])


@dataclass(frozen=True)
class Split:
    """Among how many nodes channels are shared out, and in which fractions (equal where None is given)."""

    nodes: int
    shares: Sequence[float] | None = None

    def owners(self, channels: int) -> IntArray:
        """[channels] the node of each, by the rule of the pruner."""
        return np.array(contiguous_owners(channels, self.nodes, self.shares), np.int64)


def propagate(graph: g.Graph, nodes: int, shares: Sequence[float] | None = None) -> dict[str, Ownership]:
    """Ownership of every tensor for `nodes` nodes, each with its fraction of the channels. The input is replicated.

    Raises:
        DiscoError: A mixing op has fewer output channels than there are nodes, or a RESHAPE cuts channels apart.
    """
    _check_nodes(graph, nodes)
    source = graph.tensors[graph.input]
    result = {graph.input: Ownership(None, np.arange(source.channels))}
    split = Split(nodes, shares)
    for op in graph.ops:
        ownership = _after(graph, op, [result[name] for name in op.inputs], split)
        result[op.output] = _without(ownership, graph.constants.get(op.output, {}))
    return result


def _without(ownership: Ownership, constants: Collection[int]) -> Ownership:
    owners = ownership.owners
    if owners is None or not constants:
        return ownership
    owners = owners.copy()
    owners[list(constants)] = NOBODY
    return Ownership(owners, ownership.rank)


def _check_nodes(graph: g.Graph, nodes: int) -> None:
    if nodes < 1:
        raise DiscoError(f"{nodes} nodes: at least 1 is needed")
    mixing = [op for op in graph.ops if isinstance(op.params, g.MIXING)]
    narrowest = min(mixing, key=lambda op: graph.tensors[op.output].channels, default=None)
    if narrowest is not None and (channels := graph.tensors[narrowest.output].channels) < nodes:
        raise DiscoError(
            f"{nodes} nodes are more than {narrowest.name} ({narrowest.output!r}) has output channels ({channels}): "
            + ("this network fits on one node only" if channels == 1 else f"use at most {channels} nodes")
        )


def _after(graph: g.Graph, op: g.Op, inputs: list[Ownership], split: Split) -> Ownership:
    channels = graph.tensors[op.output].channels
    if isinstance(op.params, g.MIXING):
        return Ownership(split.owners(channels), np.arange(channels))
    if isinstance(op.params, g.Concatenation):
        return _concatenated(inputs, split)
    if isinstance(op.params, g.Reshape):
        return _reshaped(graph, op, inputs[0])
    if isinstance(op.params, g.DepthwiseConv2D):
        return _multiplied(inputs[0], op.params.multiplier)
    if isinstance(op.params, g.Softmax) and inputs[0].owners is not None:
        return Ownership(np.zeros(channels, np.int64), np.arange(channels))  # once, after the gather
    return next((i for i in inputs if i.owners is not None), inputs[0])


def _concatenated(inputs: list[Ownership], split: Split) -> Ownership:
    if all(i.owners is None for i in inputs):
        return Ownership(None, np.arange(sum(i.rank.size for i in inputs)))
    # A replicated part costs nothing to split: every node has it all.
    owners = [split.owners(i.rank.size) if i.owners is None else i.owners for i in inputs]
    offsets = np.cumsum([0, *(i.rank.size for i in inputs[:-1])])
    # Ranks are made dense per input, so that the inputs follow each other.
    ranks = [np.argsort(np.argsort(i.rank, kind="stable")) + offset for i, offset in zip(inputs, offsets, strict=True)]
    return Ownership(np.concatenate(owners), np.concatenate(ranks))


def _multiplied(source: Ownership, multiplier: int) -> Ownership:
    owners = None if source.owners is None else np.repeat(source.owners, multiplier)
    steps = np.tile(np.arange(multiplier), source.rank.size)
    return Ownership(owners, np.repeat(source.rank, multiplier) * multiplier + steps)


def _reshaped(graph: g.Graph, op: g.Op, source: Ownership) -> Ownership:
    assert isinstance(op.params, g.Reshape)
    before, after = graph.tensors[op.inputs[0]].shape, graph.tensors[op.output].shape
    if after[-1] == before[-1] and op.params.order is None:
        return source
    if len(after) == 2:
        return _flattened(before, op.params, source)
    whole = source.owners is None or len(np.unique(source.owners)) == 1
    if whole and (np.diff(source.rank) > 0).all() and op.params.order is None:
        owners = None if source.owners is None else np.full(after[-1], source.owners[0])
        return Ownership(owners, np.arange(after[-1]))
    raise DiscoError(
        f"{op.name} reshapes {list(before)} to {list(after)} and so cuts channels apart: only flattening to [1, n] "
        "or keeping the last axis can be split over several nodes"
    )


def _flattened(before: tuple[int, ...], reshape: g.Reshape, source: Ownership) -> Ownership:
    """Each element belongs to the owner of its channel and keeps its order on the node: pixel by pixel, by rank."""
    elements = np.arange(np.prod(before))
    pixel, channel = np.divmod(elements, before[-1])
    rank = pixel * (int(source.rank.max()) + 1) + source.rank[channel]
    owners = None if source.owners is None else source.owners[channel]
    if reshape.order is not None:
        rank = rank[reshape.order]
        owners = None if owners is None else owners[reshape.order]
    return Ownership(owners, rank)
