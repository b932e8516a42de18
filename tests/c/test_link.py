"""The C link against itself and against the Python link, over lines that lose, damage, repeat and delay bytes."""

from __future__ import annotations

import ctypes
import random
import subprocess
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disco_firmware.framing import Frame, FramingError, cobs_decode, cobs_encode, decode_frame, encode_frame
from disco_firmware.protocol import ADDRESS_ANY, ADDRESS_HOST, LINK_WINDOW, MAX_PAYLOAD, Hello, Opcode
from helpers.c_build import CORTEX_M, SANITIZERS, compile_c
from helpers.link_ends import SOURCES, CEnd, End, PythonEnd, build_shim, carry_all

SESSION = 9
NODE = 3
ENDS = ("c", "python")


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def node(shim: ctypes.CDLL) -> CEnd:
    """A node's end of its line to the host, in a session."""
    return CEnd(shim, 0, NODE, ADDRESS_HOST, SESSION)


def _host_frame(sequence: int, payload: bytes = b"x", opcode: int = Opcode.INPUT, session: int = SESSION) -> bytes:
    return encode_frame(Frame(opcode, ADDRESS_HOST, NODE, session, sequence, payload))


def _answers(data: bytes) -> list[tuple[int, int]]:
    frames = [decode_frame(part) for part in data.split(b"\0") if part]
    return [(f.opcode, f.expected if f.opcode in (Opcode.ACK, Opcode.NAK) else f.sequence) for f in frames]


# ---- primitives


@given(st.binary(max_size=253))
def test_cobs_is_the_same_in_both_languages(shim: ctypes.CDLL, raw: bytes) -> None:
    block = ctypes.create_string_buffer(b"\x5a" + raw + b"\xa5", len(raw) + 2)
    assert shim.disco_cobs_encode(block, len(raw)) == len(raw) + 1
    assert block.raw == cobs_encode(raw) + b"\xa5"
    assert shim.disco_cobs_decode(block, len(raw) + 1) == len(raw) + 1
    assert block.raw[1:] == raw + b"\xa5"


@given(st.lists(st.integers(1, 9) | st.integers(1, 255), max_size=260).map(bytes))
def test_cobs_decoders_refuse_the_same_bytes(shim: ctypes.CDLL, encoded: bytes) -> None:
    block = ctypes.create_string_buffer(encoded + b"\xa5" * 9, len(encoded) + 9)
    size = shim.disco_cobs_decode(block, len(encoded))
    assert block.raw[len(encoded) :] == b"\xa5" * 9
    try:
        expected = cobs_decode(encoded) if len(encoded) <= 254 else None
    except FramingError:
        expected = None
    assert (size == 0) == (expected is None)
    if expected is not None:
        assert block.raw[1:size] == expected


@given(st.binary(max_size=300))
def test_cobs_decoder_stays_in_the_block(shim: ctypes.CDLL, encoded: bytes) -> None:
    block = ctypes.create_string_buffer(encoded + b"\xa5" * 9, len(encoded) + 9)
    assert shim.disco_cobs_decode(block, len(encoded)) in (0, len(encoded))
    assert block.raw[len(encoded) :] == b"\xa5" * 9


def test_cobs_refuses_more_than_one_block(shim: ctypes.CDLL) -> None:
    block = ctypes.create_string_buffer(b"\x07" * 300, 300)
    assert shim.disco_cobs_encode(block, 254) == 0
    assert shim.disco_cobs_decode(block, 255) == 0
    assert block.raw == b"\x07" * 300


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_crc_is_that_of_zlib_and_continues(shim: ctypes.CDLL, one: bytes, two: bytes) -> None:
    first = shim.disco_crc32(0, one, len(one))
    assert first == zlib.crc32(one)
    assert shim.disco_crc32(first, two, len(two)) == zlib.crc32(one + two)


def test_the_small_crc_is_that_of_zlib_too(tmp_path: Path) -> None:
    sources = [source for source in SOURCES if source.stem.startswith("crc32")]
    library = ctypes.CDLL(
        str(compile_c("gcc", sources, tmp_path / "crc32.so", ["-shared", "-fPIC", "-DDISCO_CRC32_SMALL"]))
    )
    library.disco_crc32.restype = ctypes.c_uint32
    for size in range(40):
        assert library.disco_crc32(0, bytes(range(size)), size) == zlib.crc32(bytes(range(size)))


# ---- two ends


def _end(kind: str, shim: ctypes.CDLL, number: int, room: int) -> End:
    own, peer = (0, 1) if number == 0 else (1, 0)
    if kind == "c":
        return CEnd(shim, number, own, peer, SESSION, room)
    return PythonEnd(own, peer, SESSION)


@pytest.mark.parametrize("room", [1 << 15, 37])
# One byte in 50 leaves few whole frames of full size: those would only wait for the timer's longest step.
@pytest.mark.parametrize(("rate", "count", "longest"), [(0.0, 600, 240), (0.001, 600, 240), (0.02, 200, 60)])
@pytest.mark.parametrize("other", ENDS)
def test_everything_arrives_once_and_in_order(
    shim: ctypes.CDLL, other: str, rate: float, count: int, longest: int, room: int
) -> None:
    generator = random.Random(count)
    one, two = _end("c", shim, 0, room), _end(other, shim, 1, room)
    sent: tuple[list[tuple[int, bytes]], ...] = ([], [])
    for _ in range(count):
        for end, log in zip((one, two), sent, strict=True):
            log.append((Opcode.CHANNELS, generator.randbytes(generator.choice((0, 1, 12, longest)))))
            end.queue(*log[-1])
    faults, elapsed_ms = carry_all(one, two, rate, seed=count)
    assert two.received() == sent[0]
    assert one.received() == sent[1]
    for end, log in zip((one, two), sent, strict=True):
        frames, payload_bytes, again, received = end.stats()
        assert (frames, received) == (count, count)
        assert payload_bytes == sum(len(payload) for _, payload in log)
        assert again == 0 if rate == 0 else again > 0
    assert (faults > 0) == (rate > 0)
    if rate <= 0.001:
        # Most damage is seen and repaired at once, not by the 200 ms timer.
        assert elapsed_ms < 40 * faults + 4 * count * 254 / min(room, 254)


def test_a_full_line_is_not_taken_for_a_lost_frame(shim: ctypes.CDLL) -> None:
    """One byte a turn: a window takes a second, five times the first timeout."""
    one, two = (_end("c", shim, number, 1) for number in range(2))
    for _ in range(8):
        one.queue(Opcode.CHANNELS, bytes(MAX_PAYLOAD))
    carry_all(one, two, 0.0, seed=0)
    assert one.stats()[2] == 0


# ---- receiving


def test_one_acknowledgement_covers_all_frames_of_a_poll(node: CEnd) -> None:
    data = b"".join(_host_frame(sequence) for sequence in range(4))
    assert node.exchange(data, 0) == encode_frame(Frame(Opcode.ACK, NODE, ADDRESS_HOST, SESSION, 0, expected=4))
    assert len(node.received()) == 4


def test_a_frame_that_leaves_acknowledges_too(node: CEnd) -> None:
    node.queue(Opcode.OUTPUT, bytes(range(200)))
    first = node.exchange(b"", 0)
    assert _answers(node.exchange(_host_frame(0) + _host_frame(1), 1)) == [(Opcode.ACK, 2)]
    node.queue(Opcode.OUTPUT, b"b")
    second = node.exchange(b"", 2)
    again = node.exchange(_host_frame(2), 202)  # the timer's, both: with the number of now
    frames = [decode_frame(part) for part in (first + second + again).split(b"\0") if part]
    assert [(frame.sequence, frame.expected) for frame in frames] == [(0, 0), (1, 2), (0, 3), (1, 3)]
    assert frames[2].payload == bytes(range(200))


def test_a_frame_acknowledges_even_beyond_a_gap(node: CEnd) -> None:
    node.queue(Opcode.OUTPUT, b"a")
    node.exchange(b"", 0)
    node.exchange(encode_frame(Frame(Opcode.INPUT, ADDRESS_HOST, NODE, SESSION, 1, expected=1)), 1)
    assert node.idle()
    assert node.received() == []


def test_a_gap_is_answered_once_and_again_when_the_sender_started_over(node: CEnd) -> None:
    assert _answers(node.exchange(_host_frame(1), 0)) == [(Opcode.NAK, 0)]
    assert node.exchange(_host_frame(2) + _host_frame(3), 1) == b""
    assert _answers(node.exchange(_host_frame(1), 2)) == [(Opcode.NAK, 0)]
    assert _answers(node.exchange(_host_frame(0), 3)) == [(Opcode.ACK, 1)]
    assert len(node.received()) == 1


def test_damage_is_answered_once_until_a_valid_frame_comes(node: CEnd) -> None:
    damaged = bytearray(_host_frame(0))
    damaged[5] ^= 0x40
    assert _answers(node.exchange(bytes(damaged), 0)) == [(Opcode.NAK, 0)]
    assert node.exchange(bytes(damaged), 1) == b""
    assert node.exchange(_host_frame(1), 2) == b""  # it was on its way when the NAK left
    assert _answers(node.exchange(_host_frame(0), 3)) == [(Opcode.ACK, 1)]
    assert _answers(node.exchange(bytes(damaged), 4)) == [(Opcode.NAK, 1)]
    assert node.all_stats().frames_damaged == 3


@pytest.mark.parametrize(("length", "size"), [(5, 4), (3, 4), (241, 241)])
def test_a_header_that_contradicts_itself_is_damage(node: CEnd, length: int, size: int) -> None:
    covered = bytes([Opcode.INPUT, ADDRESS_HOST, NODE, SESSION, 0, 0, length]) + bytes(range(1, size + 1))
    wire = cobs_encode(covered + zlib.crc32(covered).to_bytes(4, "little")) + b"\0"
    assert _answers(node.exchange(wire, 0)) == [(Opcode.NAK, 0)]
    host = PythonEnd(NODE, ADDRESS_HOST, SESSION)
    assert _answers(host.exchange(wire, 0)) == [(Opcode.NAK, 0)]


@pytest.mark.parametrize("length", [253, 316, 317, 318, 1000])
def test_of_a_frame_without_end_the_next_delimiter_is_found(node: CEnd, length: int) -> None:
    for start in range(0, length, 100):
        assert node.exchange(b"\x05" * min(100, length - start), 0) == b""
    node.exchange(b"\0" + _host_frame(0) + _host_frame(1, b"y"), 1)
    assert node.received() == [(Opcode.INPUT, b"x"), (Opcode.INPUT, b"y")]
    assert node.all_stats().frames_damaged == 1


@pytest.mark.parametrize("size", [0, 1, 12, 40])
def test_a_torn_frame_does_not_hide_the_next(shim: ctypes.CDLL, size: int) -> None:
    whole = _host_frame(0, bytes(range(1, size + 1)))
    for cut in range(1, len(whole) - 1):
        node = CEnd(shim, 0, NODE, ADDRESS_HOST, SESSION)
        assert _answers(node.exchange(whole[:cut] + b"\0" + whole + b"\0" + _host_frame(1), 0)) == [(Opcode.NAK, 2)]
        assert node.all_stats().frames_damaged == 1


def test_a_repeated_frame_is_acknowledged_and_dropped(node: CEnd) -> None:
    node.exchange(_host_frame(0), 0)
    assert _answers(node.exchange(_host_frame(0), 1)) == [(Opcode.ACK, 1)]
    assert len(node.received()) == 1


def test_a_frame_far_from_the_window_is_ignored(node: CEnd) -> None:
    assert node.exchange(_host_frame(100), 0) == b""
    assert node.received() == []


@pytest.mark.parametrize(
    "frame",
    [
        Frame(Opcode.INPUT, 7, NODE, SESSION, 0),
        Frame(Opcode.INPUT, ADDRESS_HOST, 7, SESSION, 0),
        Frame(Opcode.INPUT, ADDRESS_HOST, NODE, SESSION + 1, 0),
        Frame(Opcode.HELLO, 7, NODE, SESSION, 0, Hello(5).pack()),
        Frame(Opcode.WELCOME, ADDRESS_HOST, NODE, SESSION, 0),
    ],
)
def test_frames_of_others_are_ignored(node: CEnd, frame: Frame) -> None:
    assert node.exchange(encode_frame(frame), 0) == b""
    assert node.received() == []


@pytest.mark.parametrize("destination", [ADDRESS_ANY, NODE])
def test_hello_opens_a_session_in_any_state(shim: ctypes.CDLL, destination: int) -> None:
    node = CEnd(shim, 0, NODE, ADDRESS_HOST, 0)
    for early in (_host_frame(0), _host_frame(0, session=0), b"boot loader\0"):
        assert node.exchange(early, 0) == b""  # no session yet
    assert (node.received(), node.all_stats().frames_damaged) == ([], 0)
    for session in (5, 6):
        hello = Frame(Opcode.HELLO, ADDRESS_HOST, destination, session, 0, Hello(session).pack())
        behind = _host_frame(0, session=session)  # forgotten: nobody sends before WELCOME
        node.exchange(b"\x01garbage" + b"\0" + encode_frame(hello) + behind, 0)
        assert node.received()[-1] == (Opcode.HELLO, Hello(session).pack())
        assert _answers(node.exchange(_host_frame(0, session=session), 1)) == [(Opcode.ACK, 1)]


def test_a_busy_handler_gets_its_message_later(shim: ctypes.CDLL, node: CEnd) -> None:
    shim.shim_answer(0, 1)
    assert _answers(node.exchange(_host_frame(0), 0)) in ([], [(Opcode.ACK, 0)])
    assert node.exchange(_host_frame(1), 1) == b""  # no NAK: it would come again at once
    shim.shim_answer(0, 0)
    assert _answers(node.exchange(_host_frame(0), 2)) == [(Opcode.ACK, 1)]
    assert [payload for _, payload in node.received()] == [b"x"]


def test_a_failing_handler_ends_the_poll_and_loses_nothing(shim: ctypes.CDLL, node: CEnd) -> None:
    shim.shim_answer(0, 4)
    frames = _host_frame(0, b"0") + _host_frame(1, b"1")
    shim.shim_feed(0, frames, len(frames))
    assert shim.shim_poll(0, 0) == 4
    assert [payload for _, payload in node.received()] == [b"0"]
    shim.shim_answer(0, 0)
    assert _answers(node.take()) == [(Opcode.ACK, 1)]
    assert _answers(node.exchange(b"", 1)) == [(Opcode.ACK, 2)]
    assert [payload for _, payload in node.received()] == [b"0", b"1"]


# ---- sending


def test_the_window_is_honoured(shim: ctypes.CDLL, node: CEnd) -> None:
    for sequence in range(LINK_WINDOW):
        assert shim.shim_ready(0)
        assert shim.shim_send(0, Opcode.OUTPUT, bytes([sequence]), 1) == 0
    assert not shim.shim_ready(0)
    assert shim.shim_send(0, Opcode.OUTPUT, b"", 0) == 1
    assert shim.shim_send(0, Opcode.OUTPUT, b"", MAX_PAYLOAD + 1) == 2
    assert [sequence for _, sequence in _answers(node.exchange(b"", 0))] == [0, 1, 2, 3]
    node.exchange(encode_frame(Frame(Opcode.ACK, ADDRESS_HOST, NODE, SESSION, 0, expected=2)), 1)
    assert shim.shim_send(0, Opcode.OUTPUT, b"", 0) == 0
    assert shim.shim_send(0, Opcode.OUTPUT, b"", 0) == 0
    assert shim.shim_send(0, Opcode.OUTPUT, b"", 0) == 1


def test_the_timer_doubles_and_is_reset_by_progress(shim: ctypes.CDLL, node: CEnd) -> None:
    node.queue(Opcode.OUTPUT, b"a")
    node.queue(Opcode.OUTPUT, b"b")
    assert len(_answers(node.exchange(b"", 0))) == 2
    repeats = [now for now in range(1, 8000) if node.exchange(b"", now)]
    assert repeats == [200, 600, 1400, 3000, 5000, 7000]
    assert node.stats()[2] == 2 * len(repeats)
    node.exchange(encode_frame(Frame(Opcode.ACK, ADDRESS_HOST, NODE, SESSION, 0, expected=1)), 8000)
    assert [now for now in range(8001, 8500) if node.exchange(b"", now)] == [8200]


def test_a_computation_does_not_run_the_timer(shim: ctypes.CDLL, node: CEnd) -> None:
    node.queue(Opcode.OUTPUT, b"a")
    node.exchange(b"", 0)
    shim.shim_resume(0)
    assert node.exchange(b"", 5000) == b""
    assert node.exchange(b"", 5199) == b""
    assert node.exchange(b"", 5200) != b""


def test_nak_goes_back_at_once_and_stale_numbers_are_ignored(node: CEnd) -> None:
    for payload in (b"a", b"b", b"c"):
        node.queue(Opcode.OUTPUT, payload)
    node.exchange(b"", 0)
    stale = [Frame(Opcode.ACK, ADDRESS_HOST, NODE, SESSION, 0, expected=number) for number in (0, 4, 200)]
    assert node.exchange(b"".join(map(encode_frame, stale)), 1) == b""
    assert [sequence for _, sequence in _answers(node.exchange(b"", 200))] == [0, 1, 2]
    nak = encode_frame(Frame(Opcode.NAK, ADDRESS_HOST, NODE, SESSION, 0, expected=1))
    assert _answers(node.exchange(nak, 201)) == [(Opcode.OUTPUT, 1), (Opcode.OUTPUT, 2)]


def test_what_is_not_on_the_line_yet_cannot_be_acknowledged(shim: ctypes.CDLL) -> None:
    node = CEnd(shim, 0, NODE, ADDRESS_HOST, SESSION, 0)
    for _ in range(3):
        node.queue(Opcode.OUTPUT, b"")
    assert node.exchange(b"", 0) == b""  # the line is full
    node.exchange(encode_frame(Frame(Opcode.ACK, ADDRESS_HOST, NODE, SESSION, 0, expected=3)), 1)
    assert not node.idle()


def test_an_acknowledged_frame_is_not_cut_off(shim: ctypes.CDLL) -> None:
    """The ACK overtakes a retransmission that is half written: its slot must wait, its bytes must be whole."""
    node, host = CEnd(shim, 0, NODE, ADDRESS_HOST, SESSION, 20), PythonEnd(ADDRESS_HOST, NODE, SESSION)
    payloads = [bytes([letter]) * 50 for letter in b"abcdefgh"]
    for payload in payloads:
        node.queue(Opcode.OUTPUT, payload)
    line = b"".join(node.exchange(b"", now) for now in range(14))
    assert len(_answers(line)) == LINK_WINDOW
    line += node.exchange(encode_frame(Frame(Opcode.NAK, ADDRESS_HOST, NODE, SESSION, 0, expected=0)), 14)
    line += node.exchange(encode_frame(Frame(Opcode.ACK, ADDRESS_HOST, NODE, SESSION, 0, expected=LINK_WINDOW)), 15)
    answer = host.exchange(line, 15)
    for now in range(16, 60):
        answer = host.exchange(node.exchange(answer, now), now)
    assert [payload for _, payload in host.received()] == payloads
    assert host.link.statistics.frames_damaged == 0
    assert node.idle()
    assert node.stats()[::2] == (8, 1)  # the half-written frame was the only one to be sent again


def test_control_messages_have_a_limit(shim: ctypes.CDLL, node: CEnd) -> None:
    assert shim.shim_send_control(0, Opcode.WELCOME, bytes(97), 97) == 2
    assert shim.shim_send_control(0, Opcode.WELCOME, bytes(96), 96) == 0
    assert _answers(node.exchange(b"", 0)) == [(Opcode.WELCOME, 0)]


def test_a_link_is_small(shim: ctypes.CDLL) -> None:
    assert shim.shim_link_bytes() < 1600


def test_a_line_full_of_garbage_does_not_hold_a_poll(node: CEnd) -> None:
    """What is left is read by the next polls, and nothing of it is lost."""
    data = b"\0" * 5000 + _host_frame(0)
    assert node.exchange(data, 0) == b""  # two polls
    assert _answers(node.exchange(b"", 1)) == [(Opcode.ACK, 1)]


# ---- any bytes


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_garbage_is_survived(shim: ctypes.CDLL, seed: int) -> None:
    generator = random.Random(seed)
    node = CEnd(shim, 0, NODE, ADDRESS_HOST, SESSION)
    for now in range(30):
        frame = bytearray(_host_frame(generator.randrange(8), generator.randbytes(generator.randrange(240))))
        for _ in range(generator.randrange(3)):
            frame[generator.randrange(len(frame))] = generator.randrange(256)
        node.exchange(bytes(frame) if generator.random() < 0.7 else generator.randbytes(600), now)
    # A delimiter ends the garbage; a new session works.
    hello = Frame(Opcode.HELLO, ADDRESS_HOST, ADDRESS_ANY, 77, 0, Hello(77).pack())
    node.exchange(b"\0" + encode_frame(hello), 100)
    node.exchange(b"", 101)
    assert _answers(node.exchange(_host_frame(0, session=77), 102))[-1] == (Opcode.ACK, 1)


def test_the_link_survives_garbage_under_sanitizers(tmp_path: Path) -> None:
    source = Path(__file__).with_name("link_fuzz.c")
    program = compile_c("gcc", [source, *SOURCES], tmp_path / "fuzz", ["-O1", *SANITIZERS])
    result = subprocess.run([program, "1", "20000"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert int(result.stdout.split()[0]) > 1000  # messages delivered among the garbage


@pytest.mark.parametrize("core", sorted(CORTEX_M))
def test_it_compiles_for_every_core(tmp_path: Path, core: str) -> None:
    for source in SOURCES:
        compile_c("arm-none-eabi-gcc", [source], tmp_path / f"{source.stem}.o", ["-c", "-O2", *CORTEX_M[core]])


def test_clang_accepts_it_too(tmp_path: Path) -> None:
    for source in SOURCES:
        compile_c("clang", [source], tmp_path / f"{source.stem}.o", ["-c", "-O2"])
