"""How the channels of a layer are shared out: the one rule that pruner and converter must agree on."""

from __future__ import annotations


def contiguous_owners(channels: int, nodes: int) -> tuple[int, ...]:
    """The node of each channel: contiguous shares as equal as possible, the remainder to the first nodes."""
    share, remainder = divmod(channels, nodes)
    return tuple(node for node in range(nodes) for _ in range(share + (node < remainder)))
