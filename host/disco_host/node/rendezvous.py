"""Where the connections of a job come together: the host's line, the peers', and probes of links."""

from __future__ import annotations

import contextlib
import socket
import threading

from disco_host.node import probe
from disco_host.node.calls import RefusedError
from disco_host.node.messages import LINE, PROBE
from disco_targets.errors import DiscoError

PEERS_S = 5.0
"""For all peers' connections."""


class Rendezvous:
    """Owns every connection until `close`."""

    def __init__(self) -> None:
        """Nothing has come yet."""
        self._changed = threading.Condition()
        self._over = False
        self._host: socket.socket | None = None
        self._peers: dict[int, socket.socket] = {}
        self._probes: set[socket.socket] = set()

    def add(self, purpose: str, node: int | None, line: socket.socket, welcome: bytes = b"") -> None:
        """Takes a connection; says `welcome` before it is used. A probe is answered until its end.

        Raises:
            RefusedError: There is one already, or the job has ended.
        """
        with self._changed:
            taken = self._host is not None if purpose == LINE else node in self._peers
            if self._over or (taken and purpose != PROBE):
                raise RefusedError("the job has ended" if self._over else "there is such a connection already")
            line.sendall(welcome)
            if purpose == PROBE:
                self._probes.add(line)
            elif purpose == LINE:
                self._host = line
            elif node is not None:
                self._peers[node] = line
            self._changed.notify_all()
        if purpose == PROBE:
            probe.answer(line)
            self._probes.discard(line)

    def complete(self, peers: set[int]) -> tuple[socket.socket, dict[int, socket.socket]]:
        """The host's line and the peers', when all of them are connected.

        Raises:
            DiscoError: One is missing after `PEERS_S`, or there is one too many.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._over or (self._host is not None and self._peers.keys() >= peers), PEERS_S
            )
            if missing := sorted(peers - self._peers.keys()):
                raise DiscoError(f"node {missing[0]} did not connect to it in {PEERS_S:g} s")
            if self._peers.keys() != peers or self._host is None:
                raise DiscoError("its lines are not those that it was told to await")
            return self._host, self._peers

    def close(self) -> None:
        """Closes everything that came, and refuses what is still to come."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
            lines = [*self._peers.values(), *self._probes, *([self._host] if self._host else [])]
        for line in lines:
            hang_up(line)


def hang_up(line: socket.socket) -> None:
    """Closes a connection so that whoever waits on it, here or there, sees its end."""
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()
