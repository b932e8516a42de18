"""A node of the C runtime, built with sanitizers, that is sent messages as nobody in his right mind would send them.

Frames and sequence numbers are right, so that the messages get to where they are read.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

from disco_firmware import protocol
from disco_firmware.protocol import MAX_PAYLOAD, Opcode
from helpers.rig_line import Node
from helpers.rig_network import EXCHANGES, random_input
from helpers.rig_peer import GREETING, Peer, start_with_peer

NODE_ENDS_S = 10.0
MOST_DATA = MAX_PAYLOAD - protocol.InputPart.HEADER_BYTES


def abuse(program: Path, seed: int, sessions: int) -> int:
    """Holds so many sessions with the node; returns how many messages it was sent.

    AssertionError when it does not live on, or leaves with anything but success.
    """
    draw = random.Random(seed)
    sent = 0
    with start_with_peer(program) as (node, peer):
        numbers = itertools.cycle(range(1, 256))
        for _ in range(sessions):
            peer.begin(_greet(node, numbers))
            sent += _spoil(draw, node, peer)
            assert node.process.poll() is None
        node.host.sock.close()
        assert node.process.wait(NODE_ENDS_S) == 0
    return sent


def _greet(node: Node, numbers: Iterator[int]) -> int:
    """Begins a session as a host does: again and again, since a HELLO that comes right behind another one is lost."""
    for session in itertools.islice(numbers, 40):
        node.host.begin(session)
        node.host.send_unsequenced(Opcode.HELLO, protocol.Hello(session).pack(), session)
        with contextlib.suppress(TimeoutError):
            assert node.host.receive(0.25)[0] == Opcode.WELCOME
            return session
    raise AssertionError("the node does not answer any more")


def _spoil(draw: random.Random, node: Node, peer: Peer) -> int:
    """One session: honest up to some point, then not."""
    if draw.random() < 0.8:
        _connect(node, peer)
        if draw.random() < 0.7:
            node.ask_run(1, random_input(draw.randrange(4)), draw.choice([1, 20, 10_000]), draw.choice([0, 1]))
    count = draw.randrange(1, 16)
    for _ in range(count):
        if draw.random() < 0.5:
            node.host.send(*_damaged(draw, *_to_node(draw)))
        else:
            peer.line.send(*_damaged(draw, *_from_peer(draw)))
    return count


def _connect(node: Node, peer: Peer) -> None:
    """An honest greeting; what else comes meanwhile (a second WELCOME) is passed over."""
    node.ask_connect()
    peer.line.send(Opcode.PEER_HELLO, GREETING.pack())
    while node.host.receive()[0] not in (Opcode.CONNECTED, Opcode.ERROR):
        pass


def _to_node(draw: random.Random) -> tuple[int, bytes]:
    number = draw.choice([0, 1, 1, 2, 2**32 - 1])
    return draw.choice(
        [
            (Opcode.INPUT, protocol.InputPart(draw.choice([0, 0, 1, 0xFFFF]), _offset(draw), _data(draw)).pack()),
            (Opcode.RUN, protocol.Run(number, draw.choice([0, 1, 20, 2**32 - 1]), draw.randrange(4)).pack()),
            (Opcode.CONNECT, protocol.Connect(draw.choice([0, 1, 20, 2**32 - 1])).pack()),
            (draw.randrange(256), _data(draw)),
        ]
    )


def _from_peer(draw: random.Random) -> tuple[int, bytes]:
    number = draw.choice([0, 1, 1, 1, 2, 2**32 - 1])
    exchange = draw.choice([*range(EXCHANGES + 1), 0xFFFF])
    return draw.choice(
        [
            (Opcode.CHANNELS, protocol.Channels(number, exchange, _offset(draw), _data(draw)).pack()),
            (Opcode.CHANNELS, protocol.Channels(1, draw.randrange(EXCHANGES), 0, _data(draw)).pack()),
            (Opcode.CREDIT, protocol.Credit(number, draw.choice([*range(EXCHANGES + 2), 0xFFFF])).pack()),
            (Opcode.PEER_HELLO, GREETING.pack()),
            (draw.randrange(256), _data(draw)),
        ]
    )


def _offset(draw: random.Random) -> int:
    return draw.choice([0, 0, 0, draw.randrange(300), 2**31, 2**32 - draw.randrange(1, 300)])


def _data(draw: random.Random) -> bytes:
    return draw.randbytes(draw.choice([0, 1, draw.randrange(MOST_DATA), MOST_DATA]))


def _damaged(draw: random.Random, opcode: int, payload: bytes) -> tuple[int, bytes]:
    """Now and then a byte is another one, or the length."""
    if draw.random() < 0.2 and payload:
        place = draw.randrange(len(payload))
        payload = payload[:place] + draw.randbytes(1) + payload[place + 1 :]
    if draw.random() < 0.1:
        payload = payload[: draw.randrange(len(payload) + 1)]
    return opcode, payload
