"""The Python link: numbering, window, acknowledgement, retransmission; tests/c/test_link.py has the same for C."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disco_firmware.framing import Frame, decode_frame, encode_frame
from disco_firmware.link import Link, Message
from disco_firmware.protocol import ADDRESS_ANY, ADDRESS_HOST, LINK_WINDOW, MAX_PAYLOAD, Hello, Opcode
from helpers.link_ends import PythonEnd, carry_all

NODE = 2
SESSION = 9


@pytest.fixture
def host() -> Link:
    link = Link(ADDRESS_HOST, NODE)
    link.reset(SESSION)
    return link


def _frame(sequence: int, payload: bytes = b"x", opcode: int = Opcode.OUTPUT) -> bytes:
    return encode_frame(Frame(opcode, NODE, ADDRESS_HOST, SESSION, sequence, payload))


def _acknowledgement(expected: int, opcode: int = Opcode.ACK) -> bytes:
    return encode_frame(Frame(opcode, NODE, ADDRESS_HOST, SESSION, 0, expected=expected))


def _sent(link: Link, now: float) -> list[tuple[int, int]]:
    frames = [decode_frame(part) for part in link.bytes_to_send(now).split(b"\0") if part]
    return [(f.opcode, f.expected if f.opcode in (Opcode.ACK, Opcode.NAK) else f.sequence) for f in frames]


@pytest.mark.parametrize(("rate", "count", "longest"), [(0.0, 600, 240), (0.001, 600, 240), (0.02, 200, 60)])
def test_everything_arrives_once_and_in_order(rate: float, count: int, longest: int) -> None:
    generator = random.Random(count)
    one, two = PythonEnd(0, 1, SESSION), PythonEnd(1, 0, SESSION)
    sent: tuple[list[tuple[int, bytes]], ...] = ([], [])
    for _ in range(count):
        for end, log in zip((one, two), sent, strict=True):
            log.append((Opcode.CHANNELS, generator.randbytes(generator.randrange(longest + 1))))
            end.queue(*log[-1])
    faults, _ = carry_all(one, two, rate, seed=count)
    assert (one.received(), two.received()) == (sent[1], sent[0])
    for end, log in zip((one, two), sent, strict=True):
        frames, payload_bytes, again, received = end.stats()
        assert (frames, received, payload_bytes) == (count, count, sum(len(payload) for _, payload in log))
        assert (again > 0) == (faults > 0) == (rate > 0)


def test_the_queue_has_no_limit_but_the_window_has(host: Link) -> None:
    for number in range(10):
        host.send(Opcode.INPUT, bytes([number]))
    assert [sequence for _, sequence in _sent(host, 0)] == [0, 1, 2, 3]
    assert _sent(host, 0.1) == []
    host.receive(_acknowledgement(3), 0.1)
    assert [sequence for _, sequence in _sent(host, 0.1)] == [4, 5, 6]
    assert not host.idle


def test_one_acknowledgement_covers_all_frames_since_the_last(host: Link) -> None:
    messages = host.receive(b"".join(_frame(sequence) for sequence in range(LINK_WINDOW)), 0)
    assert messages == [Message(Opcode.OUTPUT, b"x", NODE)] * LINK_WINDOW
    assert host.next_timeout(0) == 0
    assert _sent(host, 0) == [(Opcode.ACK, LINK_WINDOW)]
    assert host.next_timeout(0) is None


def test_a_frame_that_leaves_acknowledges_too(host: Link) -> None:
    host.receive(_frame(0) + _frame(1), 0)
    host.send(Opcode.INPUT, b"a")
    first = host.bytes_to_send(0)
    host.receive(_frame(2), 0.1)
    assert _sent(host, 0.1) == [(Opcode.ACK, 3)]
    again = host.bytes_to_send(0.2)  # the timer's: with the number of now
    assert [decode_frame(wire[:-1]).expected for wire in (first, again)] == [2, 3]


def test_a_frame_acknowledges_even_beyond_a_gap(host: Link) -> None:
    host.send(Opcode.INPUT)
    _sent(host, 0)
    assert host.receive(encode_frame(Frame(Opcode.OUTPUT, NODE, ADDRESS_HOST, SESSION, 1, expected=1)), 0) == []
    assert host.idle


def test_a_gap_is_answered_once_and_again_when_the_sender_started_over(host: Link) -> None:
    host.receive(_frame(1), 0)
    assert _sent(host, 0) == [(Opcode.NAK, 0)]
    host.receive(_frame(2) + _frame(3), 0)
    assert _sent(host, 0) == []
    host.receive(_frame(1), 0)
    assert _sent(host, 0) == [(Opcode.NAK, 0)]
    assert len(host.receive(_frame(0), 0)) == 1
    assert _sent(host, 0) == [(Opcode.ACK, 1)]


def test_damage_is_answered_once_until_a_valid_frame_comes(host: Link) -> None:
    damaged = _frame(0)[:-3] + b"\x01\0"
    for expected in ([(Opcode.NAK, 0)], []):
        host.receive(damaged, 0)
        assert _sent(host, 0) == expected
    host.receive(_frame(0), 0)
    assert _sent(host, 0) == [(Opcode.ACK, 1)]
    host.receive(damaged, 0)
    assert _sent(host, 0) == [(Opcode.NAK, 1)]
    assert host.statistics.frames_damaged == 3


def test_the_timer_doubles_and_is_reset_by_progress(host: Link) -> None:
    host.send(Opcode.INPUT, b"a")
    host.send(Opcode.INPUT, b"b")
    assert len(_sent(host, 0)) == 2
    now, fired = 0.0, []
    for _ in range(6):
        timeout = host.next_timeout(now)
        assert timeout is not None
        assert _sent(host, now + timeout - 0.001) == []
        now += timeout + 1e-9
        assert len(_sent(host, now)) == 2
        fired.append(round(now, 6))
    assert fired == [0.2, 0.6, 1.4, 3.0, 5.0, 7.0]
    host.receive(_acknowledgement(1), 8)
    assert host.next_timeout(8) == pytest.approx(0.2)
    host.resume(8.15)
    assert host.next_timeout(8.15) == pytest.approx(0.2)
    host.receive(_acknowledgement(2), 8.2)
    assert host.next_timeout(8.2) is None
    assert host.idle
    assert host.statistics.retransmissions == 12


def test_nak_goes_back_at_once_and_stale_numbers_are_ignored(host: Link) -> None:
    for _ in range(3):
        host.send(Opcode.INPUT)
    _sent(host, 0)
    for number in (0, 4, 200):
        host.receive(_acknowledgement(number), 0)
    assert _sent(host, 0) == []
    host.receive(_acknowledgement(1, Opcode.NAK), 0)
    assert _sent(host, 0) == [(Opcode.INPUT, 1), (Opcode.INPUT, 2)]


def test_sequence_numbers_wrap(host: Link) -> None:
    node = Link(NODE, ADDRESS_HOST)
    node.reset(SESSION)
    got = []
    for number in range(600):
        host.send(Opcode.INPUT, number.to_bytes(2, "little"))
        got += node.receive(host.bytes_to_send(0), 0)
        host.receive(node.bytes_to_send(0), 0)
    assert [int.from_bytes(message.payload, "little") for message in got] == list(range(600))


def test_hello_and_welcome_pass_from_and_to_any_node(host: Link) -> None:
    node = Link(5, ADDRESS_HOST)  # not the node that the host expects
    host.send_control(Opcode.HELLO, Hello(SESSION).pack())
    wire = host.bytes_to_send(0)
    assert decode_frame(wire.strip(b"\0")).destination == ADDRESS_ANY
    (hello,) = node.receive(b"\x07chatter" + wire, 0)
    assert Hello.unpack(hello.payload) == Hello(SESSION)
    node.reset(SESSION)
    node.send_control(Opcode.WELCOME, b"I am five")
    assert host.receive(node.bytes_to_send(0), 0) == [Message(Opcode.WELCOME, b"I am five", 5)]


@pytest.mark.parametrize(
    "frame",
    [
        Frame(Opcode.OUTPUT, 7, ADDRESS_HOST, SESSION, 0),
        Frame(Opcode.OUTPUT, NODE, 7, SESSION, 0),
        Frame(Opcode.OUTPUT, NODE, ADDRESS_HOST, SESSION + 1, 0),
        Frame(Opcode.HELLO, NODE, ADDRESS_HOST, SESSION, 0, Hello(5).pack()),
        Frame(Opcode.WELCOME, NODE, 7, SESSION, 0),
        Frame(Opcode.OUTPUT, NODE, ADDRESS_HOST, SESSION, 100),
    ],
)
def test_frames_of_others_are_ignored(host: Link, frame: Frame) -> None:
    assert host.receive(encode_frame(frame), 0) == []
    assert host.bytes_to_send(0) == b""


def test_without_a_session_nothing_is_taken_or_sent() -> None:
    node = Link(NODE, ADDRESS_HOST)
    node.send(Opcode.OUTPUT, b"early")
    assert node.receive(b"garbage\0" + _frame(0), 0) == []
    assert node.bytes_to_send(0) == b""


def test_reset_forgets(host: Link) -> None:
    for _ in range(6):
        host.send(Opcode.INPUT)
    _sent(host, 0)
    host.receive(_frame(0) + b"half a fra", 0)
    host.reset(SESSION + 1)
    assert host.idle
    assert host.bytes_to_send(1) == b""
    assert host.statistics.frames_sent == 0
    frame = Frame(Opcode.OUTPUT, NODE, ADDRESS_HOST, SESSION + 1, 0, b"new")
    assert len(host.receive(encode_frame(frame), 1)) == 1


def test_wrong_calls_are_refused(host: Link) -> None:
    with pytest.raises(ValueError, match="241 bytes"):
        host.send(Opcode.INPUT, bytes(MAX_PAYLOAD + 1))
    with pytest.raises(ValueError, match="unsequenced"):
        host.send(Opcode.HELLO)
    with pytest.raises(ValueError, match="session 256"):
        host.reset(256)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=400), max_size=10))
def test_garbage_is_survived(parts: list[bytes]) -> None:
    host = Link(ADDRESS_HOST, NODE)
    host.reset(SESSION)
    for part in parts:
        assert host.receive(part, 0) == []
        host.bytes_to_send(0)
    assert len(host.receive(b"\0" + _frame(0), 0)) == 1
