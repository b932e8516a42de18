"""A line between two nodes that drops, damages, repeats and delays bytes, from a seed."""

from __future__ import annotations

import random
import selectors
import socket
import threading
import time


class FaultProxy:
    """Makes peer lines for RunConfig.peer_line; ends with `close`."""

    def __init__(self, rate: float, seed: int) -> None:
        """rate: how likely a byte is hit (by one of the four faults)."""
        self._rate = rate
        self._random = random.Random(seed)
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self.faults = 0

    def line(self, lower: int, higher: int) -> tuple[socket.socket, socket.socket]:
        """The two ends for the nodes; the bytes between them pass through here."""
        outer_a, inner_a = socket.socketpair()
        outer_b, inner_b = socket.socketpair()
        thread = threading.Thread(target=self._carry, args=(inner_a, inner_b), daemon=True)
        thread.start()
        self._threads.append(thread)
        return outer_a, outer_b

    def close(self) -> None:
        """Stops carrying bytes."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(5)

    def _carry(self, one: socket.socket, two: socket.socket) -> None:
        with selectors.DefaultSelector() as selector, one, two:
            selector.register(one, selectors.EVENT_READ, two)
            selector.register(two, selectors.EVENT_READ, one)
            while not self._stopped.is_set():
                for key, _ in selector.select(0.1):
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    try:
                        data = source.recv(4096)
                        if not data:
                            return
                        key.data.sendall(self._spoil(data))
                    except OSError:
                        return

    def _spoil(self, data: bytes) -> bytes:
        result = bytearray()
        for byte in data:
            if self._random.random() >= self._rate:
                result.append(byte)
                continue
            self.faults += 1
            fault = self._random.choice(("drop", "damage", "repeat", "delay"))
            if fault == "damage":
                result.append(byte ^ (1 << self._random.randrange(8)))
            elif fault == "repeat":
                result += bytes([byte, byte])
            elif fault == "delay":
                time.sleep(0.02)
                result.append(byte)
        return bytes(result)
