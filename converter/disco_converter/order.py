"""The order of a cut model's ops: what needs no fresh rows of other nodes comes between an exchange and its use."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from disco_converter import graph as g
from disco_converter.in_place import with_shared_places
from disco_converter.memory import activation_lives
from disco_converter.partition import Partition, partition
from disco_converter.placement import needed_bytes
from disco_converter.recompute import RECOMPUTED_MACS


def partition_in_order(
    graph: g.Graph, nodes: int, shares: Sequence[float] | None = None, recomputed_macs: int = RECOMPUTED_MACS
) -> Partition:
    """Cuts `graph` as `partition` does, its ops in the order that hides more of the exchanges.

    The order of the file is kept where the other one would need more memory on any node.

    Raises:
        DiscoError: The graph cannot be cut that way.
    """
    given = with_shared_places(partition(graph, nodes, shares, recomputed_macs))
    if nodes == 1:
        return given
    spread = with_shared_places(partition(spread_out(graph), nodes, shares, recomputed_macs))
    return spread if _needed_bytes(spread) <= _needed_bytes(given) else given


def spread_out(graph: g.Graph) -> g.Graph:
    """Of the ops that could be next, always the one whose inputs have been there longest: a shortcut's convolution,
    say, between the two of the main path, so that the rows of the first have time to arrive for the second.
    """
    made = {graph.input: -1}
    waiting = list(graph.ops)
    ordered: list[g.Op] = []
    while waiting:
        ready = [op for op in waiting if all(name in made for name in op.inputs)]
        op = min(ready, key=lambda op: max(made[name] for name in op.inputs))  # the first of equals
        made[op.output] = len(ordered)
        ordered.append(op)
        waiting.remove(op)
    return dataclasses.replace(graph, ops=tuple(ordered))


def _needed_bytes(cut: Partition) -> int:
    return max(needed_bytes(activation_lives(cut, slice_), {}) for slice_ in cut.slices)
