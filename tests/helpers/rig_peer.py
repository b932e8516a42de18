"""A peer played by the test: honest by default, and able to say anything else."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from disco_firmware import protocol
from disco_firmware.protocol import Opcode
from helpers.rig_line import Line, Node, Result, start_node
from helpers.rig_model import BUNDLE_ID
from helpers.rig_network import EXCHANGES, Int8, Network

CHUNK = protocol.MAX_PAYLOAD - protocol.Channels.HEADER_BYTES
GREETING = protocol.PeerHello(BUNDLE_ID, 1, 2)


@dataclass
class Peer:
    """Node 1 of two, on the line to node 0."""

    line: Line
    opened: int = 0
    credits: list[protocol.Credit] = field(default_factory=list)
    received: dict[int, bytes] = field(default_factory=dict)

    def begin(self, session: int) -> None:
        """A new session."""
        self.line.begin(session)

    def credit(self, inference: int, opened: int = EXCHANGES) -> None:
        """Allows node 0 to send."""
        self.line.send(Opcode.CREDIT, protocol.Credit(inference, opened).pack())

    def begin_run(self) -> None:
        """Forgets what the last run brought."""
        self.opened, self.credits, self.received = 0, [], {}

    def take(self, inference: int) -> None:
        """Takes one message of a run from node 0."""
        opcode, payload = self.line.receive()
        if opcode == Opcode.CREDIT:
            credit = protocol.Credit.unpack(payload)
            assert credit.inference == inference
            assert credit.opened > self.opened
            self.opened = credit.opened
            self.credits.append(credit)
            return
        assert opcode == Opcode.CHANNELS
        part = protocol.Channels.unpack(payload)
        assert part.inference == inference
        assert part.offset == len(self.received.get(part.exchange, b""))
        assert part.exchange >= max(self.received, default=0)
        self.received[part.exchange] = self.received.get(part.exchange, b"") + part.data

    def channels(self, inference: int, exchange: int, stream: bytes, offset: int = 0) -> None:
        """Sends a part of a stream, which begins at `offset`."""
        for at in range(0, len(stream), CHUNK):
            part = protocol.Channels(inference, exchange, offset + at, stream[at : at + CHUNK])
            self.line.send(Opcode.CHANNELS, part.pack())

    def send_when_opened(self, inference: int, exchange: int, stream: bytes) -> None:
        """A whole stream, once node 0 has given credit for it."""
        while self.opened <= exchange:
            self.take(inference)
        self.channels(inference, exchange, stream)


@contextlib.contextmanager
def start_with_peer(program: Path, session: int = 9, slow_us: int = 0) -> Iterator[tuple[Node, Peer]]:
    """Node 0 with us as its peer, both greeted by the host but not yet connected."""
    ours, its = socket.socketpair()
    with ours, start_node(program, 0, [its], slow_us) as node:
        peer = Peer(Line(ours, 1, 0))
        node.hello(session)
        peer.begin(session)
        yield node, peer


def connect(node: Node, peer: Peer) -> None:
    """CONNECT with an honest greeting."""
    node.ask_connect()
    peer.line.send(Opcode.PEER_HELLO, GREETING.pack())
    assert peer.line.receive() == (Opcode.PEER_HELLO, protocol.PeerHello(BUNDLE_ID, 0, 2).pack())
    node.expect(Opcode.CONNECTED)


def restart(node: Node, peer: Peer, session: int) -> None:
    """A new session, whatever the state of the old one."""
    node.hello(session)
    peer.begin(session)
    connect(node, peer)


def honest_run(network: Network, node: Node, peer: Peer, inference: int, x: Int8) -> Result:
    """A whole run in which the peer sends what the network says."""
    whole = network.whole(x)
    peer.begin_run()
    node.ask_run(inference, x)
    peer.credit(inference)
    for exchange in range(EXCHANGES):
        peer.send_when_opened(inference, exchange, network.stream(exchange, 1, 0, whole))
    while len(peer.received) < EXCHANGES - 1 or any(
        len(data) < len(network.stream(exchange, 0, 1, whole)) for exchange, data in peer.received.items()
    ):
        peer.take(inference)
    return node.result()
