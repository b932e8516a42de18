"""The C link over a stream against the Python one: the same messages however the bytes are cut, the same refusals."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_firmware.protocol import ADDRESS_ANY, ADDRESS_HOST, STREAM_MAX_PAYLOAD, Hello, Opcode, Status
from disco_firmware.stream_link import FRAME_HEADER, StreamLink
from helpers.c_build import SANITIZERS, compile_c
from helpers.link_ends import LINE_BYTES, STREAM_LINES, STREAM_SOURCES, CEnd, build_shim

SESSION = 9
NODE = 3
BUSY = int(Status.BUSY)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build_shim(tmp_path_factory.mktemp("shim"), stream=True)


def _node(shim: ctypes.CDLL, session: int = SESSION, room: int = LINE_BYTES) -> CEnd:
    return CEnd(shim, 0, NODE, ADDRESS_HOST, session, room)


def _host() -> StreamLink:
    host = StreamLink(ADDRESS_HOST, NODE)
    host.reset(SESSION)
    return host


def _frame(opcode: int, source: int, destination: int, payload: bytes = b"", session: int = SESSION) -> bytes:
    return FRAME_HEADER.pack(len(payload), opcode, source, destination, session) + payload


def _poll(shim: ctypes.CDLL, data: bytes) -> int:
    shim.shim_feed(0, data, len(data))
    status: int = shim.shim_poll(0, 0)
    return status


def _converse(shim: ctypes.CDLL, payloads: list[bytes], cuts: list[int], room: int) -> None:
    """Both say the same, the stream to the node in pieces of `cuts`, the one to the host `room` bytes at a time."""
    host, node = _host(), _node(shim, room=room)
    for payload in payloads:
        host.send(Opcode.INPUT, payload)
        node.queue(Opcode.OUTPUT, payload)
    stream = host.bytes_to_send(0)
    answers: list[bytes] = []
    turn = at = 0
    while at < len(stream) or not node.idle():
        cut = cuts[turn % len(cuts)]
        answers += [message.payload for message in host.receive(node.exchange(stream[at : at + cut], 0), 0)]
        at += cut
        turn += 1
    assert answers == payloads
    assert node.received() == [(Opcode.INPUT, payload) for payload in payloads]
    assert node.stats() == (len(payloads), sum(map(len, payloads)), 0, len(payloads))


@given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(1, 400), min_size=1), st.integers(1, 1000))
def test_both_languages_understand_each_other_however_the_stream_is_cut(
    shim: ctypes.CDLL, payloads: list[bytes], cuts: list[int], room: int
) -> None:
    _converse(shim, payloads, cuts, room)


def test_messages_of_the_largest_size_pass(shim: ctypes.CDLL) -> None:
    _converse(shim, [bytes([value]) * STREAM_MAX_PAYLOAD for value in range(6)], [7, 70_000, 4096], 10_001)


@pytest.mark.parametrize(
    "data",
    [
        FRAME_HEADER.pack(STREAM_MAX_PAYLOAD + 1, Opcode.INPUT, ADDRESS_HOST, NODE, SESSION),
        FRAME_HEADER.pack(2**32 - 1, Opcode.INPUT, ADDRESS_HOST, NODE, SESSION),
        _frame(Opcode.HELLO, 1, ADDRESS_ANY),
        _frame(Opcode.INPUT, 1, NODE),
        _frame(Opcode.INPUT, ADDRESS_HOST, 1),
        _frame(Opcode.WELCOME, NODE, ADDRESS_HOST),
    ],
)
def test_what_is_no_frame_of_this_line_breaks_it_for_good(shim: ctypes.CDLL, data: bytes) -> None:
    node = _node(shim)
    assert _poll(shim, data) == Status.ERR_PROTOCOL
    shim.shim_reset(0, SESSION, 0)
    assert _poll(shim, _frame(Opcode.INPUT, ADDRESS_HOST, NODE)) == Status.ERR_PROTOCOL
    assert node.received() == []


def test_hello_comes_in_any_session_and_the_rest_of_another_session_is_dropped(shim: ctypes.CDLL) -> None:
    node = _node(shim, session=0)
    assert _poll(shim, _frame(Opcode.RUN, ADDRESS_HOST, NODE, b"too early")) == 0
    hello = _frame(Opcode.HELLO, ADDRESS_HOST, ADDRESS_ANY, Hello(SESSION).pack())
    old = _frame(Opcode.INPUT, ADDRESS_HOST, NODE, b"half read when the session began", session=SESSION - 1)
    new = _frame(Opcode.INPUT, ADDRESS_HOST, NODE, b"new")
    assert _poll(shim, hello + old[:15]) == 0
    assert _poll(shim, old[15:] + new) == 0
    assert node.received() == [(Opcode.HELLO, Hello(SESSION).pack()), (Opcode.INPUT, b"new")]
    assert node.stats()[3] == 1  # HELLO is none in order


def test_a_frame_that_is_half_written_is_ended_in_the_next_session(shim: ctypes.CDLL) -> None:
    node = _node(shim, room=10)
    node.queue(Opcode.OUTPUT, b"a long answer")
    written = node.exchange(b"", 0)
    assert len(written) == 10
    shim.shim_reset(0, SESSION + 1, 0)
    assert shim.shim_send_control(0, Opcode.WELCOME, b"me", 2) == 0
    while not node.idle():
        written += node.exchange(b"", 0)
    written += node.take()
    host = StreamLink(ADDRESS_HOST, NODE)
    host.reset(SESSION + 1)
    assert [(message.opcode, message.payload) for message in host.receive(written, 0)] == [(Opcode.WELCOME, b"me")]


def test_a_message_that_is_refused_comes_again(shim: ctypes.CDLL) -> None:
    node = _node(shim)
    shim.shim_answer(0, BUSY)
    assert _poll(shim, _frame(Opcode.INPUT, ADDRESS_HOST, NODE, b"later")) == 0
    assert node.received() == []
    shim.shim_answer(0, 0)
    assert _poll(shim, b"") == 0
    assert node.received() == [(Opcode.INPUT, b"later")]
    assert node.stats()[3] == 1


def test_a_full_line_takes_no_more_messages_but_a_welcome(shim: ctypes.CDLL) -> None:
    node = _node(shim, room=0)
    largest = bytes(STREAM_MAX_PAYLOAD)
    assert [shim.shim_send(0, Opcode.OUTPUT, largest, len(largest)) for _ in range(3)] == [0, 0, BUSY]
    assert not shim.shim_ready(0)
    assert shim.shim_send_control(0, Opcode.WELCOME, bytes(96), 96) == 0
    assert shim.shim_send_control(0, Opcode.WELCOME, bytes(96), 96) == BUSY
    assert shim.shim_send_control(0, Opcode.WELCOME, bytes(97), 97) == Status.ERR_ARGUMENT
    assert not node.idle()


def test_the_link_survives_garbage_under_sanitizers(tmp_path: Path) -> None:
    source = Path(__file__).with_name("stream_link_fuzz.c")
    program = compile_c("gcc", [source, *STREAM_SOURCES], tmp_path / "fuzz", ["-O1", *SANITIZERS, STREAM_LINES])
    result = subprocess.run([program, "1", "20000"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    messages, broken = (int(word) for word in result.stdout.split() if word.isdigit())
    assert messages > 1000
    assert broken > 10


def test_clang_accepts_it_too(tmp_path: Path) -> None:
    for source in STREAM_SOURCES:
        compile_c("clang", [source], tmp_path / f"{source.stem}.o", ["-c", "-O2", STREAM_LINES])
