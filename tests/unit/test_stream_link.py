"""The link over a stream: any cut of the bytes gives the same messages; what makes no sense ends the conversation."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_firmware.link import Message
from disco_firmware.protocol import ADDRESS_ANY, ADDRESS_HOST, STREAM_MAX_PAYLOAD, Hello, Opcode
from disco_firmware.stream_link import FRAME_HEADER, StreamError, StreamLink

NODE, SESSION = 2, 9


def _pair() -> tuple[StreamLink, StreamLink]:
    host, node = StreamLink(ADDRESS_HOST, NODE), StreamLink(NODE, ADDRESS_HOST)
    for end in (host, node):
        end.reset(SESSION)
    return host, node


@given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_messages_arrive_in_order_however_the_stream_is_cut(payloads: list[bytes], cuts: list[int]) -> None:
    host, node = _pair()
    for payload in payloads:
        host.send(Opcode.INPUT, payload)
    stream = host.bytes_to_send(0)
    assert host.idle
    assert host.next_timeout(0) is None
    got: list[Message] = []
    at = 0
    while at < len(stream):
        cut = cuts[at % len(cuts)]
        got += node.receive(stream[at : at + cut], 0)
        at += cut
    assert got == [Message(Opcode.INPUT, payload, ADDRESS_HOST) for payload in payloads]
    assert node.statistics.frames_received == host.statistics.frames_sent == len(payloads)
    assert host.statistics.bytes_sent == sum(map(len, payloads))


@given(st.binary(max_size=60))
def test_any_bytes_are_messages_or_a_stream_error(data: bytes) -> None:
    _, node = _pair()
    with contextlib.suppress(StreamError):
        assert all(isinstance(message, Message) for message in node.receive(data, 0))


def test_a_frame_of_the_largest_size_passes_and_a_larger_one_does_not() -> None:
    host, node = _pair()
    host.send(Opcode.INPUT, b"x" * STREAM_MAX_PAYLOAD)
    assert len(node.receive(host.bytes_to_send(0), 0)[0].payload) == STREAM_MAX_PAYLOAD
    with pytest.raises(ValueError, match="at most 65535"):
        host.send(Opcode.INPUT, b"x" * (STREAM_MAX_PAYLOAD + 1))
    announced = FRAME_HEADER.pack(STREAM_MAX_PAYLOAD + 1, Opcode.INPUT, ADDRESS_HOST, NODE, SESSION)
    with pytest.raises(StreamError, match="a frame of 65536 bytes"):
        node.receive(announced, 0)  # before any of its bytes came


def test_hello_reaches_a_node_in_any_session_and_what_is_left_over_does_not() -> None:
    host, node = StreamLink(ADDRESS_HOST, NODE), StreamLink(NODE, ADDRESS_HOST)
    host.reset(SESSION)
    host.send(Opcode.RUN, b"too early")
    host.send_control(Opcode.HELLO, Hello(SESSION).pack())
    assert host.next_timeout(0) == 0
    assert [message.opcode for message in node.receive(host.bytes_to_send(0), 0)] == [Opcode.HELLO]
    node.reset(SESSION)
    node.send_control(Opcode.WELCOME, b"me")
    assert host.receive(node.bytes_to_send(0), 0) == [Message(Opcode.WELCOME, b"me", NODE)]


@pytest.mark.parametrize(
    ("opcode", "source", "destination"),
    [
        (Opcode.HELLO, NODE, ADDRESS_ANY),
        (Opcode.INPUT, 1, NODE),
        (Opcode.INPUT, ADDRESS_HOST, 1),
        (Opcode.WELCOME, ADDRESS_HOST, NODE),
    ],
)
def test_a_frame_for_somebody_else_ends_the_conversation(opcode: int, source: int, destination: int) -> None:
    _, node = _pair()
    with pytest.raises(StreamError, match=f"from {source} to {destination}"):
        node.receive(FRAME_HEADER.pack(0, opcode, source, destination, SESSION), 0)


def test_a_node_without_a_session_says_nothing_in_order_and_control_has_its_own_way() -> None:
    host, _ = _pair()
    with pytest.raises(ValueError, match="no message in order"):
        host.send(Opcode.HELLO)
    with pytest.raises(ValueError, match="session 256"):
        host.reset(256)
