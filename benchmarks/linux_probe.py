"""One end of a measurement of the benchmark's link, run inside of a namespace: `listen ADDRESS` or `call ADDRESS`."""

from __future__ import annotations

import json
import socket
import sys
import time
from statistics import median

from disco_host.node.probe import answer, measure

PORT = 7460
ROUNDS, PAUSE_S = 200, 0.5e-3
SMALL = bytes(64)


def main(kind: str, address: str) -> None:
    """Prints what the calling end has measured, as JSON; the listening end says when it listens."""
    if kind == "listen":
        with socket.create_server((address, PORT)) as server:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            answer(server.accept()[0])
            with server.accept()[0] as line:
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while data := line.recv(len(SMALL)):
                    line.sendall(data)
        return
    with socket.create_connection((address, PORT), 5) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        probed = measure(line)
    with socket.create_connection((address, PORT), 5) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        latency = median(_latency(line) for _ in range(ROUNDS))
    sys.stdout.write(json.dumps({"bytes_per_second": probed.one_way_bytes_per_s, "latency_s": latency}))


def _latency(line: socket.socket) -> float:
    """From a message's having been sent to its receiver's having it: half a round trip less the send, after a pause in
    which this end works and the other sleeps, as before an exchange.
    """
    until = time.monotonic() + PAUSE_S
    while time.monotonic() < until:
        pass
    start = time.monotonic()
    line.sendall(SMALL)
    sent = time.monotonic()
    line.recv(len(SMALL))
    return (time.monotonic() - start) / 2 - (sent - start)


if __name__ == "__main__":
    main(*sys.argv[1:])
