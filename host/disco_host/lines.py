"""Lines between processes of one run: socket pairs that nobody else can see or name."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations

PeerLine = Callable[[int, int], tuple[socket.socket, socket.socket]]
"""Makes the line between two nodes (lower, higher) and returns their two ends."""


def direct_line(lower: int, higher: int) -> tuple[socket.socket, socket.socket]:
    """A line that loses nothing."""
    del lower, higher
    return socket.socketpair()


@dataclass(frozen=True)
class Wiring:
    """Both ends of every host line and all ends of every peer line."""

    host_ends: tuple[socket.socket, ...]
    """What the host keeps, by node."""
    node_ends: tuple[dict[int, socket.socket], ...]
    """What each node's process inherits, by link number: 0 to the host, then its peers."""

    def release(self, node: int) -> None:
        """Closes our copies of a node's ends, so that the end of its process is seen on the line."""
        for end in self.node_ends[node].values():
            end.close()


def link_number(node: int, peer: int) -> int:
    """Which link of `node` leads to `peer`: peers in rising order from 1 on, itself left out."""
    return peer + 1 if peer < node else peer


@contextmanager
def wire(nodes: int, peer_line: PeerLine = direct_line) -> Iterator[Wiring]:
    """Makes a line from the host to every node and one between every two nodes."""
    opened: list[socket.socket] = []
    node_ends: tuple[dict[int, socket.socket], ...] = tuple({} for _ in range(nodes))
    host_ends = []
    try:
        for node in range(nodes):
            ours, theirs = socket.socketpair()
            opened += [ours, theirs]
            host_ends.append(ours)
            node_ends[node][0] = theirs
        for lower, higher in combinations(range(nodes), 2):
            low_end, high_end = peer_line(lower, higher)
            opened += [low_end, high_end]
            node_ends[lower][link_number(lower, higher)] = low_end
            node_ends[higher][link_number(higher, lower)] = high_end
        yield Wiring(tuple(host_ends), node_ends)
    finally:
        for end in opened:
            end.close()
