"""Writes the seeds of the corpus: for each target something as it should be, which random bytes would not find.

    python tests/fuzz/make_corpus.py

They are beside what fuzzers have found (files with a hash for a name).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from targets import _AGENT_MESSAGES, _MESSAGES, NODE, Draw, _document

from disco_firmware import protocol
from disco_firmware.framing import Frame, encode_frame
from disco_firmware.manifest import SCHEMA_VERSION
from disco_firmware.protocol import ADDRESS_HOST, Opcode
from disco_firmware.stream_link import StreamLink
from disco_host.node import auth, frames, messages

CORPUS = Path(__file__).with_name("corpus")


def seeds() -> Iterator[tuple[str, str, bytes]]:
    """Target, name, content."""
    serial = [
        encode_frame(Frame(Opcode.HELLO, ADDRESS_HOST, 0xFF, 1, 0, protocol.Hello(1).pack())),
        encode_frame(Frame(Opcode.CHANNELS, 0, NODE, 1, 0, protocol.Channels(1, 0, 0, b"\0\1" * 40).pack())),
        encode_frame(Frame(Opcode.ACK, NODE, 0, 1, 3)),
    ]
    yield "framing", "frames", b"".join(serial)
    yield "framing", "long", b"\1" * 300 + serial[0]
    yield "link", "frames", b"".join(bytes([0, len(frame), 0]) + frame for frame in serial)
    zeros = bytes(200)
    for place, kind in enumerate(_MESSAGES):
        size = kind.layout.size if hasattr(kind, "layout") and not hasattr(kind, "data") else 8
        yield "payloads", kind.__name__, bytes([place]) + zeros[:size]
    yield "collector", "zeros", zeros[:60]
    host = StreamLink(ADDRESS_HOST, NODE)
    host.reset(1)
    host.send_control(Opcode.HELLO, protocol.Hello(1).pack())
    host.send(Opcode.RUN, protocol.Run(1, 1000).pack())
    yield "stream", "host", b"".join((host.bytes_to_send(0.0), bytes(1)))
    for name, kind in _AGENT_MESSAGES.items():
        document = {"type": name, **_document(kind, Draw(bytes([1] * 40)))}
        yield "control", name, frames.pack_json(document) + frames.pack_bytes(b"part")
    yield "control_json", "zeros", zeros[:40]
    yield "watch", "zeros", zeros[:40]
    for name, message in (
        ("all", messages.Need((2, 1, 0))),
        ("twice", messages.Need((1, 1))),
        ("beyond", messages.Need((3,))),
        ("clock", messages.Pong(1, 10**400)),
        ("flood", messages.Prepared(0)),
    ):
        again = 9 if name == "flood" else 1
        yield "watch", name, b"\1" + again * frames.pack_message(message) + frames.pack_message(messages.Prepared(3))
    yield "handshake", "caller", auth.GREETING + zeros[: auth.NONCE_BYTES + auth.PROOF_BYTES]
    yield "handshake", "listener", auth.GREETING + zeros[: auth.NONCE_BYTES] + b"\1" + zeros[: auth.PROOF_BYTES]
    yield "handshake", "frame", frames.pack_json({"type": "ping", "number": 1}) + b"more"
    yield "peer", "honest", zeros[:8]
    yield "manifest", "small", bytes([1] * 200)
    yield "manifest_json", "schema", json.dumps({"schema": SCHEMA_VERSION}).encode()


if __name__ == "__main__":
    for target, name, content in seeds():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
