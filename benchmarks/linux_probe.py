"""One end of a measurement of the benchmark's link, run inside of a namespace: `listen ADDRESS` or `call ADDRESS`."""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import asdict

from disco_host.node.probe import answer, measure

PORT = 7460


def main(kind: str, address: str) -> None:
    """Prints what the calling end has measured, as JSON; the listening end says when it listens."""
    if kind == "listen":
        with socket.create_server((address, PORT)) as server:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            answer(server.accept()[0])
        return
    with socket.create_connection((address, PORT), 5) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sys.stdout.write(json.dumps(asdict(measure(line))))


if __name__ == "__main__":
    main(*sys.argv[1:])
