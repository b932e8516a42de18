"""The static memory plan of one node: where each activation lies in the arena, and when a buffer is free for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from disco_converter.partition import NodeSlice, Partition

ALIGNMENT = 16
LEAD_OPS = 1
"""A buffer for halo channels is opened this many ops before its own channels are computed, so that a peer that is a
little ahead
need not wait for our permission to send."""


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
    live_bytes: int
    """Lower bound: the largest sum of buffers that are alive in the same op."""


@dataclass(frozen=True)
class _Life:
    name: str
    size: int
    first_op: int
    last_op: int


def plan_memory(
    partition: Partition,
    slice_: NodeSlice,
    scratch: Mapping[str, int] | None = None,
    together: Sequence[tuple[int, int]] = (),
) -> MemoryPlan:
    """Places the buffers of one node: largest first, each at the lowest offset that is free during its whole life.

    Args:
        partition: The whole cut.
        slice_: The node's part.
        scratch: Op name -> bytes that its kernel needs while it runs.
        together: (first, end) of ops that are computed together: what one of them uses is in use during all.
    """
    scratch = scratch or {}
    buffers = _lives(partition, slice_)
    scratch_lives = [
        _Life(op.name, scratch[op.name], index, index) for index, op in enumerate(slice_.ops) if scratch.get(op.name)
    ]
    lives = [*buffers, *(replace(life, name=f"{life.name}:scratch") for life in scratch_lives)]
    lives = [_stretched(life, together) for life in lives]
    offsets: dict[str, int] = {}
    for life in sorted(lives, key=lambda x: (-x.size, x.first_op, x.name)):
        offsets[life.name] = _lowest_free(
            life, [(other, offsets[other.name]) for other in lives if other.name in offsets]
        )
    places = {life.name: _placement(life, lives, offsets, len(slice_.ops)) for life in lives}
    arena = max((offsets[life.name] + life.size for life in lives), default=0)
    live = max(
        (sum(x.size for x in lives if x.first_op <= op <= x.last_op) for op in range(len(slice_.ops))), default=arena
    )
    return MemoryPlan(
        {life.name: places[life.name] for life in buffers},
        {life.name: places[f"{life.name}:scratch"] for life in scratch_lives},
        arena,
        live,
    )


def buffer_bytes(partition: Partition, slice_: NodeSlice, name: str) -> int:
    """Height * width * (own + halo channels)."""
    buffer = slice_.buffers[name]
    height, width = partition.graph.tensors[buffer.tensor].plane
    return height * width * len(buffer.layout)


def open_ops(partition: Partition, slice_: NodeSlice) -> dict[str, int]:
    """For each buffer with halo channels: the op from whose start on peers may send into it. Rises with it."""
    result: dict[str, int] = {}
    earliest = len(slice_.ops)
    for exchange in reversed(partition.exchanges):
        buffer = slice_.buffers.get(exchange.tensor)
        if buffer is not None and buffer.halo:
            earliest = min(earliest, max(0, _position(partition, slice_, exchange.tensor) - LEAD_OPS))
            result[exchange.tensor] = earliest
    return result


def _position(partition: Partition, slice_: NodeSlice, tensor: str) -> int:
    """Where in the node's program the tensor is computed (by this node or at the same time by others)."""
    before: set[int] = set()
    for op in partition.graph.ops:
        if op.output == tensor:
            return sum(sliced.source.index in before for sliced in slice_.ops)
        before.add(op.index)
    return 0


def _lives(partition: Partition, slice_: NodeSlice) -> list[_Life]:
    opened = open_ops(partition, slice_)
    last = max(0, len(slice_.ops) - 1)
    lives = []
    for name in slice_.buffers:
        written = [i for i, op in enumerate(slice_.ops) if op.output == name]
        read = [i for i, op in enumerate(slice_.ops) if any(operand.buffer == name for operand in op.operands)]
        if not written and not read and name != partition.graph.input:
            continue
        first = min([opened.get(name, last), *written, *([0] if name == partition.graph.input else [])])
        kept = name in partition.graph.outputs and bool(slice_.buffers[name].own)
        lives.append(
            _Life(name, buffer_bytes(partition, slice_, name), first, last if kept else max([first, *written, *read]))
        )
    return lives


def _stretched(life: _Life, together: Sequence[tuple[int, int]]) -> _Life:
    for first, end in together:
        if first <= life.first_op < end:
            life = replace(life, first_op=first)
        if first <= life.last_op < end:
            life = replace(life, last_op=end - 1)
    return life


def _lowest_free(life: _Life, placed: list[tuple[_Life, int]]) -> int:
    offset = 0
    for other, start in sorted(placed, key=lambda x: x[1]):
        overlaps_in_time = life.first_op <= other.last_op and other.first_op <= life.last_op
        if overlaps_in_time and offset + life.size > start:
            offset = max(offset, _aligned(start + other.size))
    return offset


def _aligned(value: int) -> int:
    return -(-value // ALIGNMENT) * ALIGNMENT


def _placement(life: _Life, lives: list[_Life], offsets: dict[str, int], ops: int) -> Placement:
    start, end = offsets[life.name], offsets[life.name] + life.size
    later = [
        other.first_op
        for other in lives
        if other.first_op > life.last_op and offsets[other.name] < end and start < offsets[other.name] + other.size
    ]
    return Placement(start, life.size, life.first_op, life.last_op, min(later, default=ops))
