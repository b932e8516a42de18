"""The static memory plan of one node: where each activation lies in the arena, and when a buffer is free for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from disco_converter.accounting import is_sent
from disco_converter.partition import NodeSlice, Partition
from disco_converter.placement import Life, Overlaps, block_bytes, needed_bytes, place

LEAD_OPS = 1
"""A buffer for halo channels has its place at least this many ops before its own channels are computed, so that a peer
that is a little ahead need not wait for our permission to send."""
SMALL_BYTES = 128
"""A buffer for halo channels of no more than this has its place from the start: what goes to and fro at the end of a
network is awaited at once, and permission for it would stand before it on the line."""


@dataclass(frozen=True)
class Placement:
    """One buffer in the arena. Ops are counted in the node's program."""

    offset: int
    size: int
    first_op: int
    """Bytes may be written from the start of this op on."""
    last_op: int
    """Bytes may be read until the end of this op."""
    reused_from: int
    """The first op at whose start another buffer may be written over it (the number of ops when there is none)."""


@dataclass(frozen=True)
class MemoryPlan:
    """All buffers of one node."""

    placements: dict[str, Placement]
    scratch: dict[str, Placement]
    """By the name of the op whose kernel needs it."""
    arena_bytes: int
    needed_bytes: int
    """Lower bound of the arena: placement.needed_bytes."""
    opened: dict[str, int]
    """For each tensor with halo channels: the op from whose start on peers may send into it. Rises with exchanges."""


def plan_memory(
    partition: Partition,
    slice_: NodeSlice,
    scratch: Mapping[str, int] | None = None,
    together: Sequence[tuple[int, int]] = (),
    overlaps: Overlaps | None = None,
) -> MemoryPlan:
    """Places the buffers of one node.

    Args:
        partition: The whole cut.
        slice_: The node's part.
        scratch: Op name -> bytes that its kernel needs while it runs.
        together: (first, end) of ops that are computed together: what one of them uses is in use during all.
        overlaps: Which outputs may lie over an input (overlap.overlaps_of).
    """
    scratch = scratch or {}
    activations = [_stretched(life, together) for life in activation_lives(partition, slice_)]
    temporary = [
        _stretched(Life(f"{op.name}:scratch", scratch[op.name], index, index), together)
        for index, op in enumerate(slice_.ops)
        if scratch.get(op.name)
    ]
    lives = [*activations, *temporary]
    overlaps = overlaps or {}
    offsets = place(lives, overlaps)
    needed = needed_bytes(lives, overlaps)
    opened = _opened(partition, slice_, lives, offsets)
    lives = [
        _open_from(life, [op for name, op in opened.items() if place_of(slice_, name) == life.name]) for life in lives
    ]
    places = {life.name: _placement(life, lives, offsets, len(slice_.ops)) for life in lives}
    used = {life.name for life in activations}
    return MemoryPlan(
        {name: places[root] for name in slice_.buffers if (root := place_of(slice_, name)) in used},
        {op.name: places[f"{op.name}:scratch"] for op in slice_.ops if scratch.get(op.name)},
        block_bytes(lives, offsets),
        needed,
        opened,
    )


def place_of(slice_: NodeSlice, buffer: str) -> str:
    """The buffer in whose place this one lies, which may be itself."""
    while buffer in slice_.in_place:
        buffer = slice_.in_place[buffer]
    return buffer


def buffer_bytes(partition: Partition, slice_: NodeSlice, name: str) -> int:
    """Height * width * (computed and halo channels, and gap)."""
    buffer = slice_.buffers[name]
    height, width = partition.graph.tensors[buffer.tensor].plane
    return height * width * buffer.stride


def _opened(
    partition: Partition, slice_: NodeSlice, lives: Sequence[Life], offsets: Mapping[str, int]
) -> dict[str, int]:
    """MemoryPlan.opened: as early as the place of a buffer is free, so that peers wait less for permission to send, and
    one message gives it for several exchanges. What has to be sent out of that place is given the time it had.
    """
    sent = {place_of(slice_, name) for name in slice_.buffers if is_sent(partition, slice_, name)}
    by_name = {life.name: life for life in lives}
    earliest = 0
    result: dict[str, int] = {}
    for tensor, latest in _opened_at_latest(partition, slice_).items():
        life = by_name[place_of(slice_, tensor)]
        before = [other for other in lives if other.last_op < life.first_op and _overlap(life, other, offsets)]
        free = max((latest if other.name in sent else other.last_op + 1 for other in before), default=0)
        earliest = max(earliest, min(free, latest))
        result[tensor] = earliest
    return result


def _open_from(life: Life, opened: Sequence[int]) -> Life:
    return replace(life, first_op=min([life.first_op, *opened]))


def _overlap(one: Life, other: Life, offsets: Mapping[str, int]) -> bool:
    start, begin = offsets[one.name], offsets[other.name]
    return start < begin + other.size and begin < start + one.size


def _opened_at_latest(partition: Partition, slice_: NodeSlice) -> dict[str, int]:
    """For each buffer with halo channels, by rising exchange: the op by whose start peers may send into it."""
    result: dict[str, int] = {}
    earliest = len(slice_.ops)
    for exchange in reversed(partition.exchanges):
        buffer = slice_.buffers.get(exchange.tensor)
        if buffer is not None and buffer.halo:
            earliest = min(earliest, max(0, _position(partition, slice_, exchange.tensor) - LEAD_OPS))
            result[exchange.tensor] = earliest
    return dict(reversed(result.items()))


def _position(partition: Partition, slice_: NodeSlice, tensor: str) -> int:
    """Where in the node's program the tensor is computed (by this node or at the same time by others)."""
    before: set[int] = set()
    for op in partition.graph.ops:
        if op.output == tensor:
            return sum(sliced.source.index in before for sliced in slice_.ops)
        before.add(op.index)
    return 0


def activation_lives(partition: Partition, slice_: NodeSlice) -> list[Life]:
    """When each buffer is in use; those that share a place are one."""
    shared: dict[str, list[Life]] = {}
    for life in _lives_alone(partition, slice_):
        shared.setdefault(place_of(slice_, life.name), []).append(life)
    return [
        Life(name, lives[0].size, min(life.first_op for life in lives), max(life.last_op for life in lives))
        for name, lives in shared.items()
    ]


def _lives_alone(partition: Partition, slice_: NodeSlice) -> list[Life]:
    opened = _opened_at_latest(partition, slice_)
    last = max(0, len(slice_.ops) - 1)
    lives = []
    for name in slice_.buffers:
        written = [i for i, op in enumerate(slice_.ops) if op.output == name]
        read = [i for i, op in enumerate(slice_.ops) if any(operand.buffer == name for operand in op.operands)]
        if not written and not read and name != partition.graph.input:
            continue
        size = buffer_bytes(partition, slice_, name)
        from_start = name == partition.graph.input or (name in opened and size <= SMALL_BYTES)
        first = 0 if from_start else min([opened.get(name, last), *written])
        kept = name in partition.graph.outputs and bool(slice_.buffers[name].computed)
        lives.append(Life(name, size, first, last if kept else max([first, *written, *read])))
    return lives


def _stretched(life: Life, together: Sequence[tuple[int, int]]) -> Life:
    for first, end in together:
        if first <= life.first_op < end:
            life = replace(life, first_op=first)
        if first <= life.last_op < end:
            life = replace(life, last_op=end - 1)
    return life


def _placement(life: Life, lives: list[Life], offsets: dict[str, int], ops: int) -> Placement:
    later = [other.first_op for other in lives if other.first_op > life.last_op and _overlap(life, other, offsets)]
    return Placement(offsets[life.name], life.size, life.first_op, life.last_op, min(later, default=ops))
