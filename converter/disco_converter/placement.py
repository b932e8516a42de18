"""Finds places for buffers in one block of memory: the block is to be small, and none may spoil another."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

ALIGNMENT = 16
_TRIES = 8000
"""Orders that are tried at most."""


@dataclass(frozen=True)
class Life:
    """A buffer and the ops during which it is in use. Ops are counted in the node's program."""

    name: str
    size: int
    first_op: int
    last_op: int

    def meets(self, other: Life) -> bool:
        """Whether both are in use in some op."""
        return self.first_op <= other.last_op and other.first_op <= self.last_op


@dataclass(frozen=True)
class Overlap:
    """How an output may lie over an input."""

    distance: int
    """It begins at least so many bytes before it."""
    exactly: int | None = None
    """Or so many, no more and no less; fewer than `distance`, a multiple of ALIGNMENT."""

    @property
    def least(self) -> int:
        """The bytes in which they take least together."""
        return self.distance if self.exactly is None else self.exactly


Overlaps = Mapping[tuple[str, str], Overlap]
"""(output, input) of an op -> how they may."""


def needed_bytes(lives: Sequence[Life], overlaps: Overlaps) -> int:
    """Lower bound of any placement: the largest sum, over the ops, of the buffers that are in use in one op.

    An output that may lie over an input, begun some bytes before it, is counted with it as one: the larger of the
    output, and of the input and those bytes.
    """
    sizes = {life.name: life.size for life in lives}
    most = 0
    for op in {life.first_op for life in lives}:  # the sum grows nowhere else
        live = {life.name for life in lives if life.first_op <= op <= life.last_op}
        saved = sum(
            sizes[above] + sizes[below] - max(sizes[below], sizes[above] + overlap.least)
            for (below, above), overlap in overlaps.items()
            if below in live and above in live
        )
        most = max(most, sum(sizes[name] for name in live) - saved)
    return most


def place(lives: Sequence[Life], overlaps: Overlaps) -> dict[str, int]:
    """Offsets by name: each buffer in turn at the lowest offset that is free during its whole life.

    How good that is depends on the order: the best of some is changed at random, always in the same way, until nothing
    is left to win or patience ends.
    """
    goal = needed_bytes(lives, overlaps) + ALIGNMENT
    neighbours = {life.name: [other for other in lives if other is not life and life.meets(other)] for life in lives}

    def placed(order: Sequence[Life]) -> tuple[int, dict[str, int]]:
        offsets: dict[str, int] = {}
        for life in order:
            offsets[life.name] = _lowest_free(life, neighbours[life.name], offsets, overlaps)
        return block_bytes(lives, offsets), offsets

    order = min(_orders(lives), key=lambda candidate: placed(candidate)[0])
    size, offsets = placed(order)
    generator = random.Random(0)
    for _ in range(_TRIES if len(lives) > 1 else 0):
        if size < goal:
            break
        changed = list(order)
        changed.insert(generator.randrange(len(lives)), changed.pop(generator.randrange(len(lives))))
        changed_size, changed_offsets = placed(changed)
        if changed_size <= size:
            order, size, offsets = changed, changed_size, changed_offsets
    return offsets


def block_bytes(lives: Sequence[Life], offsets: Mapping[str, int]) -> int:
    """What the buffers take together."""
    return max((offsets[life.name] + life.size for life in lives), default=0)


def _orders(lives: Sequence[Life]) -> tuple[list[Life], ...]:
    """Largest first; as they come; from the end, where what is computed over its input comes before it."""
    return (
        sorted(lives, key=lambda life: (-life.size, life.first_op, life.name)),
        sorted(lives, key=lambda life: (life.first_op, -life.size, life.name)),
        sorted(lives, key=lambda life: (-life.last_op, -life.size, life.name)),
    )


def _lowest_free(life: Life, neighbours: Sequence[Life], offsets: Mapping[str, int], overlaps: Overlaps) -> int:
    offset = 0
    for low, high in sorted(_taken(life, neighbours, offsets, overlaps)):
        if low < offset < high:
            offset = -(-high // ALIGNMENT) * ALIGNMENT
    return offset


def _taken(
    life: Life, neighbours: Sequence[Life], offsets: Mapping[str, int], overlaps: Overlaps
) -> Iterator[tuple[int, int]]:
    """(low, high): a buffer must not begin between them, because of those that have a place."""
    for other in neighbours:
        if other.name not in offsets:
            continue
        start = offsets[other.name]
        low, high = start - life.size, start + other.size
        over, under = overlaps.get((life.name, other.name)), overlaps.get((other.name, life.name))
        if over is not None:
            low = start - over.distance
            if over.exactly is not None:
                yield low, start - over.exactly
                low = start - over.exactly
        elif under is not None:
            high = start + under.distance
            if under.exactly is not None:
                yield start + under.exactly, high
                high = start + under.exactly
        yield low, high
