"""How the channels of a layer are shared out: the one rule that pruner and converter must agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PLAN_KEY = "disco.plan"
"""Where the pruner puts its plan into the metadata of an ONNX model, and the converter finds it."""


def contiguous_owners(channels: int, nodes: int, shares: Sequence[float] | None = None) -> tuple[int, ...]:
    """The node of each channel: contiguous shares, as equal as possible or as near to `shares` as possible.

    Args:
        channels: How many to share out.
        nodes: Among how many nodes.
        shares: The fraction of each node, adding up to 1; equal by default.

    The remainder goes to the nodes with the largest fraction left over, the first ones of equals. Every node gets a
    channel if there are enough.
    """
    wanted = [channels * share for share in shares] if shares else [channels / nodes] * nodes
    least = 1 if channels >= nodes else 0
    sizes = [max(least, int(_exact(size))) for size in wanted]
    while sum(sizes) < channels:
        sizes[_largest([want - size for want, size in zip(wanted, sizes, strict=True)])] += 1
    while sum(sizes) > channels:  # what small shares got in excess
        excess = [size - want if size > least else -channels for want, size in zip(wanted, sizes, strict=True)]
        sizes[_largest(excess)] -= 1
    return tuple(node for node, size in enumerate(sizes) for _ in range(size))


def _largest(gaps: list[float]) -> int:
    """The first place of the largest."""
    exact = [_exact(gap) for gap in gaps]
    return exact.index(max(exact))


def _exact(size: float) -> float:
    """Without the noise of fractions such as 1/3, which must not decide a tie."""
    return round(size, 9)
