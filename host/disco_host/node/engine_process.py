"""The TFLite engine as a process of an agent: so that it can be ended at any moment, whatever TFLite is at.

It inherits its lines, and one more on which it tells the agent what it does.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import threading
import time
from pathlib import Path

from disco_firmware.bundle import MANIFEST_NAME
from disco_firmware.manifest import Manifest
from disco_host.node.cache import PART_NAME
from disco_host.node.engine_tflite import serve
from disco_host.node.frames import pack_message
from disco_host.node.messages import BEAT_S, Beat
from disco_host.node.program import NodeSlice
from disco_host.node.state import NodeState
from disco_targets.command import run_command
from disco_targets.errors import EXIT_OK, DiscoError


def load_slice(folder: Path, node: int, mode: str, threads: int = 1) -> NodeSlice:
    """A slice from the parts that a host has sent.

    Raises:
        DiscoError: They do not belong together.
    """
    try:
        document = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DiscoError(f"the slice's {MANIFEST_NAME} is damaged: {error}") from error
    if isinstance(document, dict):  # what is kept beside the manifest: see disco_firmware.bundle
        document = {key: value for key, value in document.items() if key not in ("files", "manifest_sha256")}
    manifest = Manifest.from_json(document)
    if node >= manifest.nodes:
        raise DiscoError(f"the slice's bundle has {manifest.nodes} nodes and no node {node}")
    stages = range(len(manifest.programs[node].stages))
    return NodeSlice(manifest, node, tuple((folder / PART_NAME.format(k)).read_bytes() for k in stages), mode, threads)


def tell(state: NodeState, line: socket.socket) -> None:
    """Says every `BEAT_S` what the node does, until nobody listens."""
    try:
        while True:
            activity = state.activity
            seconds = time.monotonic() - activity.since
            line.sendall(
                pack_message(Beat(activity.doing.value, seconds, activity.op, activity.exchange, activity.peer))
            )
            time.sleep(BEAT_S)
    except OSError:
        return


def _main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--node", type=int, required=True)
    parser.add_argument("--mode", required=True)
    parser.add_argument("--host", type=int, required=True)
    parser.add_argument("--state", type=int, required=True)
    parser.add_argument("--peer", action="append", default=[])
    options = parser.parse_args()

    def action(_: object) -> int:
        state = NodeState()
        teller = (state, socket.socket(fileno=options.state))
        threading.Thread(target=tell, args=teller, daemon=True).start()
        host = socket.socket(fileno=options.host)
        pairs = (text.split("=") for text in options.peer)
        peers = {int(peer): socket.socket(fileno=int(line)) for peer, line in pairs}
        serve(load_slice(options.folder, options.node, options.mode), host, peers, state)
        return EXIT_OK

    return run_command("engine", action)


if __name__ == "__main__":
    sys.exit(_main())
