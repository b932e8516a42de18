"""A node between a host and a peer that are played by the test: flow control, faults, deadlines."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from disco_firmware import protocol
from disco_firmware.protocol import NO_INDEX, NO_PEER, Opcode, Status
from helpers.rig_build import build_library, build_mesh, build_node
from helpers.rig_line import Node, frame, start_node
from helpers.rig_model import BUNDLE_ID, ModelSource, Receive
from helpers.rig_network import WIDTH, Network, random_input
from helpers.rig_peer import GREETING, Peer, connect, honest_run, restart, start_with_peer

CONV_B, CONV_D = 1, 3
QUIET_SECONDS = 0.15
X = random_input(1)


@pytest.fixture(scope="module")
def network() -> Network:
    return Network(2)


@pytest.fixture(scope="module")
def program(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Node 0, with sanitizers."""
    library = build_library(tmp_path_factory.getbasetemp() / "runtime")
    return build_mesh(network, tmp_path_factory.mktemp("faults"), library)[0]


@pytest.fixture
def pair(program: Path) -> Iterator[tuple[Node, Peer]]:
    """Node 0 and its peer, connected."""
    with start_with_peer(program) as (node, peer):
        connect(node, peer)
        yield node, peer


def assert_exact(network: Network, node: Node, peer: Peer, inference: int = 1) -> None:
    """An honest run: outputs and sent streams equal the whole network's."""
    x = random_input(inference + 100)
    whole = network.whole(x)
    result = honest_run(network, node, peer, inference, x)
    assert np.array_equal(result.outputs[0], network.own(5, 0, whole[5]).reshape(-1))
    assert np.array_equal(result.outputs[1], whole[6].reshape(-1))
    for exchange, data in peer.received.items():
        assert data == network.stream(exchange, 0, 1, whole)


def assert_recovers(network: Network, node: Node, peer: Peer) -> None:
    """A new session works, whatever happened in the old one."""
    restart(node, peer, session=77)
    assert_exact(network, node, peer)


# ---- flow control


def test_honest_runs(network: Network, pair: tuple[Node, Peer]) -> None:
    for inference in (1, 2, 7):
        assert_exact(network, *pair, inference)
        # a is opened at once, s (over a) and what follows when conv b has read a
        assert [credit.opened for credit in pair[1].credits] == [1, 4]


def test_nothing_is_sent_without_credit(network: Network, pair: tuple[Node, Peer]) -> None:
    node, peer = pair
    node.ask_run(1, X)
    assert peer.line.receive()[0] == Opcode.CREDIT
    with pytest.raises(TimeoutError):
        peer.line.receive(QUIET_SECONDS)
    peer.credit(1, opened=1)
    expected = network.stream(0, 0, 1, network.whole(X))
    while peer.received.get(0) != expected:
        peer.take(1)


def test_first_row_leaves_before_a_frame_is_full(network: Network, program: Path) -> None:
    with start_with_peer(program, slow_us=3000) as (node, peer):
        connect(node, peer)
        node.ask_run(1, X)
        peer.credit(1)
        while not peer.received:
            peer.take(1)
        assert len(peer.received[0]) % (WIDTH * len(network.sent[0, 1])) == 0
        expected = network.stream(0, 0, 1, network.whole(X))
        while peer.received[0] != expected:
            peer.take(1)


def test_credit_before_the_run_is_kept(network: Network, pair: tuple[Node, Peer]) -> None:
    node, peer = pair
    peer.credit(5, opened=4)
    with pytest.raises(TimeoutError):
        node.host.receive(QUIET_SECONDS)
    node.ask_run(5, X)
    expected = network.stream(0, 0, 1, network.whole(X))
    while peer.received.get(0) != expected:
        peer.take(5)


def test_a_flipped_channel_changes_the_output(network: Network, pair: tuple[Node, Peer]) -> None:
    node, peer = pair
    whole = network.whole(X)
    node.ask_run(1, X)
    peer.credit(1)
    for exchange in range(4):
        stream = network.stream(exchange, 1, 0, whole)
        if exchange == 2:
            stream = bytes([stream[0] ^ 0x40]) + stream[1:]
        peer.send_when_opened(1, exchange, stream)
    result = node.result()
    assert not np.array_equal(result.outputs[0], network.own(5, 0, whole[5]).reshape(-1))


# ---- deadlines


def report(status: Status, op: int, exchange: int, peer: int) -> tuple[int, int, int, int]:
    return (status, op, exchange, peer)


def where(error: protocol.ErrorReport) -> tuple[int, int, int, int]:
    return (error.status, error.op, error.exchange, error.peer)


def fail_after(node: Node, peer: Peer, network: Network, exchange: int, rows: int) -> protocol.ErrorReport:
    """Everything before `exchange` is sent, then only `rows` rows of it."""
    whole = network.whole(X)
    node.ask_run(1, X, deadline_ms=200)
    peer.credit(1)
    for earlier in range(exchange):
        peer.send_when_opened(1, earlier, network.stream(earlier, 1, 0, whole))
    row = WIDTH * len(network.sent[1, 0])
    peer.send_when_opened(1, exchange, network.stream(exchange, 1, 0, whole)[: rows * row])
    return node.expect_error()


@pytest.mark.parametrize(
    ("exchange", "op", "rows", "rows_missing"),
    [
        (0, CONV_B, 0, 2),  # 3x3, padded by 1: the first row needs two
        (0, CONV_B, 1, 1),
        (0, CONV_B, 2, 1),
        (0, CONV_B, 8, 1),
        (1, CONV_D, 0, 2),  # stride 2: then two at a time
        (1, CONV_D, 3, 1),
        (1, CONV_D, 4, 2),
        (1, CONV_D, 8, 1),
    ],
)
def test_waits_for_the_rows_it_needs(
    network: Network, pair: tuple[Node, Peer], exchange: int, op: int, rows: int, rows_missing: int
) -> None:
    error = fail_after(*pair, network, exchange, rows)
    assert where(error) == report(Status.ERR_TIMEOUT, op, exchange, 1)
    assert error.missing_bytes == rows_missing * WIDTH * len(network.sent[1, 0])
    assert error.waited_ms >= 200
    assert_recovers(network, *pair)


def test_peer_without_credit(network: Network, pair: tuple[Node, Peer]) -> None:
    """What cannot be sent is named at the op whose end it must not outlast."""
    node, peer = pair
    node.ask_run(1, X, deadline_ms=200)
    peer.send_when_opened(1, 0, network.stream(0, 1, 0, network.whole(X)))
    error = node.expect_error()
    assert where(error) == report(Status.ERR_TIMEOUT, CONV_B, 0, 1)
    assert error.missing_bytes == 9 * WIDTH * len(network.sent[0, 1])


def test_rows_that_no_output_needs_are_awaited_as_well(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After the op that reads it last, the buffer may be used for something else."""
    source = ModelSource(node=0, node_count=2, exchange_count=1)
    x, y, z = source.tensor(5, 2, 1), source.tensor(5, 2, 1, halo=1), source.tensor(2, 1, 2)
    source.inputs, source.outputs = [x], [z]
    source.op("RELU", [(x, 1)], y, f"disco_relu_t {{0, 0, {1 << 30}, 1, -128, 127}}")
    pool = "disco_pool2d_t {{2, 2, 2, 2, 1, 1, 0, 0}, -128, 127}"
    source.op("MAX_POOL_2D", [(y, 2)], z, pool)
    source.receives = [Receive(0, y, 1, 1, 1, 0)]
    library = build_library(tmp_path_factory.getbasetemp() / "runtime")
    with start_with_peer(build_node(source, tmp_path, library)) as (node, peer):
        connect(node, peer)
        values = np.arange(10, dtype=np.int8).reshape(5, 2, 1)
        node.ask_run(1, values, deadline_ms=200)
        peer.send_when_opened(1, 0, bytes(range(20, 28)))
        error = node.expect_error()
        assert where(error) == report(Status.ERR_TIMEOUT, 1, 0, 1)
        assert error.missing_bytes == 2
        restart(node, peer, session=8)
        peer.begin_run()
        node.ask_run(1, values)
        peer.send_when_opened(1, 0, bytes(range(20, 30)))
        assert node.result().outputs[0].tolist() == [3, 23, 7, 27]


def test_silent_peer_at_connect(network: Network, program: Path) -> None:
    with start_with_peer(program) as (node, peer):
        node.ask_connect(deadline_ms=100)
        error = node.expect_error()
        assert where(error) == report(Status.ERR_TIMEOUT, NO_INDEX, NO_INDEX, 1)
        assert error.waited_ms >= 100
        assert_recovers(network, node, peer)


# ---- a peer that says something else


@pytest.mark.parametrize(
    ("greeting", "status"),
    [
        (protocol.PeerHello(bytes(16), 1, 2).pack(), Status.ERR_BUNDLE),
        (protocol.PeerHello(BUNDLE_ID, 0, 2).pack(), Status.ERR_PEER),
        (protocol.PeerHello(BUNDLE_ID, 1, 3).pack(), Status.ERR_PEER),
        (protocol.PeerHello(BUNDLE_ID, 1, 2, version=99).pack(), Status.ERR_VERSION),
        (GREETING.pack() + b"x", Status.ERR_PROTOCOL),
        (b"", Status.ERR_PROTOCOL),
    ],
)
@pytest.mark.parametrize("early", [True, False])
def test_wrong_greeting(network: Network, program: Path, greeting: bytes, status: Status, early: bool) -> None:
    with start_with_peer(program) as (node, peer):
        if early:
            peer.line.send(Opcode.PEER_HELLO, greeting)
        else:
            node.ask_connect()
            assert peer.line.receive()[0] == Opcode.PEER_HELLO
            peer.line.send(Opcode.PEER_HELLO, greeting)
        assert where(node.expect_error()) == report(status, NO_INDEX, NO_INDEX, 1)
        assert_recovers(network, node, peer)


def channels(inference: int, exchange: int, offset: int, count: int) -> tuple[int, bytes]:
    return Opcode.CHANNELS, protocol.Channels(inference, exchange, offset, bytes(count)).pack()


def credit(inference: int, opened: int) -> tuple[int, bytes]:
    return Opcode.CREDIT, protocol.Credit(inference, opened).pack()


MALFORMED = {
    "offset skips a byte": (channels(1, 0, 1, 8), 0),
    "offset far away": (channels(1, 0, 0xFFFFFFFF, 8), 0),
    "the next exchange": (channels(1, 1, 0, 8), 0),
    "exchange unknown": (channels(1, 9, 0, 8), 0),
    "exchange that never comes from there": (channels(1, 0xFF, 0, 8), 0),
    "another inference": (channels(2, 0, 0, 8), 0),
    "no inference": (channels(0, 0, 0, 8), 0),
    "no data": (channels(1, 0, 0, 0), NO_INDEX),
    "header cut off": ((Opcode.CHANNELS, bytes(3)), NO_INDEX),
    "empty": ((Opcode.CHANNELS, b""), NO_INDEX),
    "credit cut off": ((Opcode.CREDIT, bytes(7)), NO_INDEX),
    "credit too long": ((Opcode.CREDIT, credit(1, 1)[1] + b"x"), NO_INDEX),
    "credit for too many": (credit(1, 5), NO_INDEX),
    "credit taken back": (credit(1, 1), NO_INDEX),
    "credit of the past": (credit(0, 4), NO_INDEX),
    "unknown opcode": ((0x55, b""), NO_INDEX),
    "a host's message": ((Opcode.RUN, protocol.Run(1, 1).pack()), NO_INDEX),
    "greeting again": ((Opcode.PEER_HELLO, GREETING.pack()), NO_INDEX),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_message_in_a_run(network: Network, pair: tuple[Node, Peer], name: str) -> None:
    node, peer = pair
    (opcode, payload), exchange = MALFORMED[name]
    node.ask_run(1, X)
    peer.credit(1)
    while not peer.credits:
        peer.take(1)
    # One row of exchange 0, so that the node waits for the second one in conv b.
    row = WIDTH * len(network.sent[1, 0])
    peer.channels(1, 0, network.stream(0, 1, 0, network.whole(X))[:row])
    while len(peer.received.get(0, b"")) < len(network.stream(0, 0, 1, network.whole(X))):
        peer.take(1)
    if opcode == Opcode.CHANNELS and exchange == 0:  # the offset is right but where it is the fault
        part = protocol.Channels.unpack(payload)
        payload = protocol.Channels(part.inference, part.exchange, part.offset + row, part.data).pack()
    peer.line.send(opcode, payload)
    assert where(node.expect_error()) == report(Status.ERR_PROTOCOL, CONV_B, exchange, 1)
    assert_recovers(network, node, peer)


def test_more_bytes_than_the_stream_has(network: Network, pair: tuple[Node, Peer]) -> None:
    node, peer = pair
    node.ask_run(1, X)
    peer.send_when_opened(1, 0, network.stream(0, 1, 0, network.whole(X)) + b"x")
    error = node.expect_error()
    assert (error.status, error.exchange, error.peer) == (Status.ERR_PROTOCOL, 0, 1)


def test_channels_without_credit(network: Network, pair: tuple[Node, Peer]) -> None:
    """Exchange 1 right behind exchange 0, before the node has come so far."""
    node, peer = pair
    node.ask_run(1, X)
    while peer.opened < 1:
        peer.take(1)
    assert peer.opened == 1
    whole = channels(1, 0, 0, 0)[1] + network.stream(0, 1, 0, network.whole(X))
    peer.line.send_together([(Opcode.CHANNELS, whole), channels(1, 1, 0, 8)])
    error = node.expect_error()
    assert (error.status, error.exchange, error.peer) == (Status.ERR_PROTOCOL, 1, 1)
    assert_recovers(network, node, peer)


def test_channels_while_idle(network: Network, pair: tuple[Node, Peer]) -> None:
    node, peer = pair
    peer.line.send(*channels(1, 0, 0, 8))
    assert where(node.expect_error()) == report(Status.ERR_PROTOCOL, NO_INDEX, 0, 1)
    assert_recovers(network, node, peer)


# ---- the host


def input_part(index: int, offset: int, count: int) -> tuple[int, bytes]:
    return Opcode.INPUT, protocol.InputPart(index, offset, bytes(count)).pack()


HOST_MISTAKES = {
    "run without input": [(Opcode.RUN, protocol.Run(1, 1000).pack())],
    "run with half the input": [input_part(0, 0, 100), (Opcode.RUN, protocol.Run(1, 1000).pack())],
    "run cut off": [(Opcode.RUN, bytes(11))],
    "input unknown": [input_part(1, 0, 8)],
    "input too long": [input_part(0, 0, 189), input_part(0, 189, 1)],
    "input with a hole": [input_part(0, 0, 8), input_part(0, 9, 8)],
    "input far away": [input_part(0, 0xFFFFFFFF, 8)],
    "input empty": [input_part(0, 0, 0)],
    "input cut off": [(Opcode.INPUT, bytes(5))],
    "connect again": [(Opcode.CONNECT, protocol.Connect(100).pack())],
    "unknown opcode": [(0x77, b"?")],
    "a node's message": [(Opcode.DONE, bytes(24))],
}


@pytest.mark.parametrize("name", HOST_MISTAKES)
def test_host_mistake(network: Network, pair: tuple[Node, Peer], name: str) -> None:
    node, peer = pair
    for opcode, payload in HOST_MISTAKES[name]:
        node.host.send(opcode, payload)
    error = node.expect_error()
    assert where(error) == report(Status.ERR_PROTOCOL, NO_INDEX, NO_INDEX, NO_PEER)
    assert error.missing_bytes == {"run without input": 189, "run with half the input": 89}.get(name, 0)
    assert_recovers(network, node, peer)


@pytest.mark.parametrize("opcode", [Opcode.CONNECT, Opcode.INPUT, Opcode.RUN])
def test_host_message_before_its_time(program: Path, opcode: int) -> None:
    with start_with_peer(program) as (node, _):
        node.host.send(opcode, bytes({Opcode.CONNECT: 5, Opcode.INPUT: 9, Opcode.RUN: 12}[opcode]))
        assert where(node.expect_error()) == report(Status.ERR_PROTOCOL, NO_INDEX, NO_INDEX, NO_PEER)


def test_host_speaks_in_the_middle_of_a_run(network: Network, pair: tuple[Node, Peer]) -> None:
    node, peer = pair
    node.ask_run(1, X)
    while not peer.credits:
        peer.take(1)
    node.host.send(*input_part(0, 0, 8))
    assert node.expect_error().status == Status.ERR_PROTOCOL
    assert_recovers(network, node, peer)


def test_inference_numbers_must_rise(network: Network, pair: tuple[Node, Peer]) -> None:
    node, peer = pair
    assert_exact(network, node, peer, inference=4)
    node.ask_run(4, X)
    assert node.expect_error().status == Status.ERR_PROTOCOL


def test_after_an_error_only_hello_helps(network: Network, pair: tuple[Node, Peer]) -> None:
    node, peer = pair
    node.host.send(0x77)
    node.expect_error()
    node.ask_connect()
    peer.line.send(*channels(1, 0, 0, 8))
    with pytest.raises(TimeoutError):
        node.host.receive(QUIET_SECONDS)
    assert_recovers(network, node, peer)


def test_welcome(program: Path) -> None:
    with start_with_peer(program) as (node, _):
        assert node.hello(10) == protocol.Welcome(
            version=protocol.PROTOCOL_VERSION,
            model_abi=protocol.MODEL_ABI,
            node=0,
            node_count=2,
            unit=protocol.Unit.NANOSECONDS,
            endianness=protocol.LITTLE_ENDIAN,
            ticks_per_second=10**9,
            clock_hz=0,
            resolution_ticks=1,
            free_ram_bytes=12345,
            stack_bytes=4096,
            max_payload=protocol.MAX_PAYLOAD,
            link_count=2,
            bundle_id=BUNDLE_ID,
            board="test",
            core="host",
        )


def test_welcome_to_another_version(program: Path) -> None:
    with start_with_peer(program) as (node, _):
        node.host.begin(11)
        hello = protocol.Hello(11, version=99).pack() + b"more"
        node.host.send_unsequenced(Opcode.HELLO, hello, 11)
        welcome = protocol.Welcome.unpack(node.expect(Opcode.WELCOME))
        assert welcome.version == protocol.PROTOCOL_VERSION


def test_repeated_hello_undoes_nothing(program: Path) -> None:
    with start_with_peer(program, session=9) as (node, peer):
        peer.line.send(Opcode.PEER_HELLO, GREETING.pack())
        with pytest.raises(TimeoutError):
            peer.line.receive(QUIET_SECONDS)
        node.hello(9)
        node.ask_connect()
        node.expect(Opcode.CONNECTED)


def test_a_repeated_hello_is_no_failure(program: Path) -> None:
    with start_with_peer(program, session=9) as (node, _):
        node.hello(9)
        node.ask_connect(deadline_ms=50)
        assert where(node.expect_error()) == report(Status.ERR_TIMEOUT, NO_INDEX, NO_INDEX, 1)


def test_line_without_a_port(network: Network, program: Path) -> None:
    """A board with too few lines names the peer that it cannot reach."""
    with start_node(program, 0, []) as node:
        node.hello(3)
        node.ask_connect()
        assert where(node.expect_error()) == report(Status.ERR_PORT, NO_INDEX, NO_INDEX, 1)


# ---- anything at all


def random_messages(rng: random.Random, session: int, source: int) -> bytes:
    """Garbage, and well-formed frames whose content is garbage or nearly right."""
    wire, sequence = b"", 0
    for _ in range(rng.randrange(1, 30)):
        if rng.random() < 0.3:
            wire += rng.randbytes(rng.randrange(1, 400))
            continue
        opcode = rng.choice([*Opcode, rng.randrange(256)])
        if opcode == Opcode.HELLO:
            continue
        words = [rng.choice([0, 1, 2, 4, 8, 0xFFFF, 0xFFFFFFFF, rng.getrandbits(32)]) for _ in range(3)]
        payload = struct.pack("<IHHI", words[0], words[1] & 0xFFFF, 0, words[2])
        payload = (payload + rng.randbytes(rng.randrange(228)))[: rng.choice([8, 12, 20, 240])]
        wire += frame(opcode, source, 0, session, sequence % 256, payload)
        sequence += rng.random() < 0.8
    return wire + b"\0"


@pytest.mark.parametrize("seed", range(4))
def test_survives_anything(network: Network, pair: tuple[Node, Peer], seed: int) -> None:
    node, peer = pair
    rng = random.Random(seed)
    for session in range(20, 40):
        if rng.random() < 0.5:
            node.ask_run(1, X)
            peer.credit(1)
        peer.line.sock.sendall(random_messages(rng, node.host.session, 1))
        if rng.random() < 0.5:
            node.host.sock.sendall(random_messages(rng, node.host.session, protocol.ADDRESS_HOST))
        drain(node, peer)
        restart(node, peer, session)
    assert_exact(network, node, peer)


def drain(node: Node, peer: Peer) -> None:
    """Reads away what the node said, so that its lines never stall."""
    for line in (node.host, peer.line):
        with contextlib.suppress(TimeoutError):
            while line.receive(0.01):
                pass
