"""The agent's door: who is let in, and one clear error for everybody else."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from disco_firmware.reference import REFERENCE
from disco_host.failures import NodeError
from disco_host.node import auth, frames
from disco_host.node.address import Endpoint, connect_to, is_loopback, parse_endpoint
from disco_host.node.agent import Agent, AgentConfig
from disco_host.node.cache import KEPT, Slice, check_request
from disco_host.node.calls import Keys, RefusedError, call
from disco_host.node.frames import FrameReader, message_of, pack_bytes, pack_message, read_one
from disco_host.node.messages import (
    CONTROL,
    LINE,
    NATIVE,
    PEER,
    PROBE,
    TFLITE,
    Beat,
    Need,
    Part,
    Ping,
    Pong,
    Prepare,
    Prepared,
    Probe,
    Purpose,
    Refusal,
    Start,
    kinds,
)
from disco_host.node.native_build import runtime_hash
from disco_host.node.strangers import MOST_STRANGERS, Gossip, Strangers
from disco_host.node.tls import calling_context
from disco_host.remote import slices
from disco_host.remote.watch import MOST_ANSWERS, AgentFaultError, Fault, Watch
from disco_host.remote.witnesses import with_witnesses
from disco_targets.errors import DiscoError, UsageError

TOKEN = b"a token of enough bytes"
JOB = "0123456789abcdef" * 2
LOOPBACK = Endpoint("127.0.0.1", 0)
ANSWERS = kinds(Refusal, Need, Beat, Pong)


class Door:
    """An agent in a thread, and what it logged."""

    def __init__(self, agent: Agent, said: list[str]) -> None:
        self.endpoint = agent.endpoint
        self._said = said

    def said(self, words: str) -> bool:
        """Whether it logs that within a while."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            if any(words in line for line in self._said):
                return True
            time.sleep(0.005)
        raise AssertionError(self._said)

    def count(self, words: str) -> int:
        """In how many lines it logged that."""
        return sum(words in line for line in self._said)


class _Failing:
    """A listener that first fails in some ways."""

    def __init__(self, listener: socket.socket, problems: Sequence[Exception]) -> None:
        self._listener = listener
        self._problems = list(problems)

    def accept(self) -> tuple[socket.socket, Any]:
        if self._problems:
            raise self._problems.pop(0)
        return self._listener.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)


@contextmanager
def _door(folder: Path, problems: Sequence[Exception] = ()) -> Iterator[Door]:
    said: list[str] = []
    with Agent(AgentConfig(LOOPBACK, TOKEN, folder / "cache"), said.append) as agent:
        agent._listener = cast(Any, _Failing(agent._listener, problems))
        threading.Thread(target=agent.serve, daemon=True).start()
        yield Door(agent, said)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with _door(tmp_path) as door:
        yield door


def _control(door: Door, job: str = JOB) -> socket.socket:
    return call(door.endpoint, Keys(TOKEN), CONTROL, job)


def _answer(line: socket.socket) -> object:
    """The next message that is no heartbeat; those are answered, as a host does."""
    while (frame := read_one(line, 10)) is not None:
        message = message_of(frame, ANSWERS)
        if isinstance(message, Beat):
            line.sendall(pack_message(Ping(0)))
        elif not isinstance(message, Pong):
            return message
    return None


def _proven(door: Door) -> socket.socket:
    line = socket.create_connection((door.endpoint.host, door.endpoint.port), timeout=10)
    auth.prove_to_listener(line, TOKEN)
    line.settimeout(10)
    return line


def _request(content: bytes = b"int x;", **changes: object) -> Prepare:
    part = Part("disco_model.c", len(content), hashlib.sha256(content).hexdigest())
    request = Prepare("0" * 32, 0, 1, NATIVE, REFERENCE, (part,), framed=False)
    return replace(request, **changes)  # type: ignore[arg-type]


# ---- the handshake


def test_a_wrong_token_is_refused_on_both_sides(door: Door) -> None:
    with pytest.raises(DiscoError, match="refuses our token: both sides need the same one"):
        call(door.endpoint, Keys(b"another token of enough bytes"), CONTROL, JOB)
    assert door.said("refused: it does not know the token")
    _control(door).close()  # the right one is still served


def test_a_replayed_handshake_is_refused(door: Door) -> None:
    line = socket.create_connection((door.endpoint.host, door.endpoint.port), timeout=10)
    ours, theirs = socket.socketpair()  # a wire that is listened to
    recorded = bytearray()

    def carry() -> None:
        ours.sendall(line.recv(1000))
        recorded.extend(ours.recv(1000))
        line.sendall(recorded)
        ours.sendall(line.recv(1000))

    thread = threading.Thread(target=carry)
    thread.start()
    auth.prove_to_listener(theirs, TOKEN)
    thread.join()
    with socket.create_connection((door.endpoint.host, door.endpoint.port), timeout=10) as second:
        second.recv(1000)
        second.sendall(recorded)
        assert second.recv(1000) == bytes(1 + auth.PROOF_BYTES)
        assert second.recv(1) == b""
    assert door.said("refused: it does not know the token")
    for end in (line, ours, theirs):
        end.close()


def test_a_handshake_sent_back_is_refused(door: Door) -> None:
    """The proof of a listener is none of a caller."""
    with socket.create_connection((door.endpoint.host, door.endpoint.port), timeout=10) as line:
        opening = line.recv(1000)
        line.sendall(opening + auth._proof(TOKEN, b"disco listener", opening[8:], opening[8:]))
        assert line.recv(1000)[0] == 0


def test_a_listener_that_does_not_know_the_token_is_found_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def serve() -> None:
            line, _ = impostor.accept()
            with line:
                line.sendall(auth.GREETING + bytes(32))
                line.recv(1000)
                line.sendall(b"\1" + bytes(32))
                line.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(DiscoError, match="it does not know our token itself"):
            call(Endpoint("127.0.0.1", impostor.getsockname()[1]), Keys(TOKEN), CONTROL, JOB)


@pytest.mark.parametrize("greeting", [b"GET / HTTP/1.1\r\n" + bytes(100), b"SSH-2.0-OpenSSH_9.2\r\n" + bytes(99)])
def test_another_program_is_refused_by_the_agent(door: Door, greeting: bytes) -> None:
    with socket.create_connection((door.endpoint.host, door.endpoint.port), timeout=10) as line:
        line.sendall(greeting)
        assert door.said("refused: it is no disco program of this version")


def test_another_program_at_the_port_is_no_agent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def serve() -> None:
            line, _ = other.accept()
            with line:
                line.sendall(b"220 mail.example.org ESMTP, at your service, and glad of it\r\n")
                line.settimeout(10)
                with contextlib.suppress(OSError):
                    line.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(DiscoError, match="no disco-node of this version answers there"):
            call(Endpoint("127.0.0.1", other.getsockname()[1]), Keys(TOKEN), CONTROL, JOB)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = Endpoint("127.0.0.1", free.getsockname()[1])
    with pytest.raises(DiscoError, match="cannot be reached: Connection refused; does disco-node run there"):
        call(endpoint, Keys(TOKEN), CONTROL, JOB)


# ---- strangers


def test_a_crowd_without_a_token_keeps_nobody_out(door: Door) -> None:
    place = (door.endpoint.host, door.endpoint.port)
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(socket.create_connection(place, timeout=10)) for _ in range(MOST_STRANGERS + 5)]
        _control(door).close()
        assert door.said("there are too many connections without a token")
        with pytest.raises(auth.HandshakeError, match="too many connections without a token keep it busy"):
            auth.prove_to_listener(crowd[0], TOKEN)
        auth.prove_to_listener(crowd[-1], TOKEN)
    assert door.count("refused") <= 3


def test_who_has_most_connections_loses_its_oldest() -> None:
    strangers = Strangers()
    with contextlib.ExitStack() as stack:
        pairs = [[stack.enter_context(end) for end in socket.socketpair()] for _ in range(MOST_STRANGERS + 1)]
        hosts = ["10.0.0.1", *["10.0.0.2"] * MOST_STRANGERS]
        handles = [strangers.admit(pair[0], host) for pair, host in zip(pairs, hosts, strict=True)]
        assert [strangers.leaves(handle) for handle in handles] == [True, False] + [True] * (MOST_STRANGERS - 1)
        assert pairs[1][0].recv(1) == b""  # who waits for it there sees the end


def test_what_strangers_do_is_told_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disco_host.node.strangers.LOG_EVERY_S", 0.05)
    said: list[str] = []
    gossip = Gossip(said.append)
    for number in range(1000):
        gossip.say(f"{number} refused")
        if number == 500:
            while len(said) < 2:
                time.sleep(0.005)
    while sum(1 + int((re.findall(r"and (\d+) others", line) or [0])[0]) for line in said) < 1000:
        time.sleep(0.005)
    assert said[0] == "0 refused"
    assert len(said) < 30


@pytest.mark.parametrize("problem", [OSError(errno.EMFILE, "Too many open files"), RuntimeError("no thread")])
def test_an_agent_that_lacks_something_for_a_connection_goes_on(tmp_path: Path, problem: Exception) -> None:
    with _door(tmp_path, [problem, OSError(errno.ECONNABORTED, "aborted"), problem, problem]) as door:
        _control(door).close()
        assert door.said(f"connections cannot be taken, it goes on trying: {problem}")
        assert door.count("cannot be taken") <= 2


# ---- frames


def test_an_oversized_frame_is_refused_before_any_of_it(door: Door) -> None:
    with _proven(door) as line:
        line.sendall(frames.HEADER.pack(0xFFFF_FFFF, frames.JSON_KIND))
        answer = _answer(line)
    assert answer == Refusal(f"a frame of {0xFFFFFFFF} bytes came, at most {frames.MAX_JSON} are taken")
    with _control(door) as line:
        line.sendall(frames.HEADER.pack(frames.MAX_BYTES + 1, frames.BYTES_KIND))
        answer = _answer(line)
    assert answer == Refusal(f"a frame of {frames.MAX_BYTES + 1} bytes came, at most {frames.MAX_BYTES} are taken")


def test_a_truncated_frame_is_told(door: Door) -> None:
    with _proven(door) as line:
        line.sendall(pack_message(Purpose(CONTROL, "0", JOB, None))[:-3])
        line.shutdown(socket.SHUT_WR)
        answer = _answer(line)
    assert isinstance(answer, Refusal)
    assert "the connection ended in the middle of a frame" in answer.what


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (frames.HEADER.pack(2, 7) + b"{}", "a frame of kind 7 came"),
        (frames.HEADER.pack(3, 0) + b"{]}", "a message is no JSON"),
        (frames.HEADER.pack(200_000, 0) + b"[" * 200_000, "a message is no JSON"),
        (frames.HEADER.pack(2, 0) + b"[]", "a message of type None came"),
        (frames.pack_json({"type": ["x"]}), "came, expected purpose"),
        (frames.pack_json({"type": "purpose", "job": 3}), "missing keys"),
        (frames.pack_json({"type": "purpose", "job": 3, "node": 1, "purpose": "", "version": ""}), "job: expected str"),
        (pack_bytes(b"abc"), "raw bytes came where a message was expected"),
    ],
)
def test_what_is_no_message_is_refused(door: Door, data: bytes, words: str) -> None:
    with _proven(door) as line:
        line.sendall(data)
        answer = _answer(line)
    assert isinstance(answer, Refusal)
    assert words in answer.what


@pytest.mark.parametrize("number", [-1, 2**63, 10**400, 0.5, float("nan"), "1e999"])
def test_numbers_that_no_message_has_are_refused(number: object) -> None:
    text = json.dumps({"type": "pong", "number": 1, "nanoseconds": number}).replace('"1e999"', "1e999").encode()
    with pytest.raises(frames.FrameError, match=r"no JSON: .*number|expected int"):
        message_of(frames.Frame(frames.JSON_KIND, text), kinds(Pong))


def test_text_of_others_does_nothing_to_who_reads_it() -> None:
    (frame,) = FrameReader().feed(pack_message(Refusal("\x1b[2J\nforged: \u202e\ud800 é")))
    assert message_of(frame, kinds(Refusal)) == Refusal(r"\x1b[2J\nforged: \u202e\ud800 é")
    (frame,) = FrameReader().feed(frames.pack_json({"type": "refusal", "\x1b": 1}))
    with pytest.raises(frames.FrameError, match=r"unknown keys \\x1b;"):
        message_of(frame, kinds(Refusal))


def test_frames_come_in_any_pieces() -> None:
    messages = [Ping(3), Pong(4, 5), Refusal("é" * 50)]
    stream = b"".join(pack_message(message) for message in messages) + pack_bytes(b"xyz")
    for size in (1, 2, 7, len(stream)):
        reader = FrameReader()
        got = [frame for at in range(0, len(stream), size) for frame in reader.feed(stream[at : at + size])]
        assert [message_of(frame, kinds(Ping, Pong, Refusal)) for frame in got[:3]] == messages
        assert got[3] == frames.Frame(frames.BYTES_KIND, b"xyz")
        reader.end()


# ---- jobs


def test_a_second_host_is_told_who_is_busy(door: Door) -> None:
    with _control(door) as line:
        own = Endpoint(*line.getsockname())

        def live() -> None:
            with contextlib.suppress(OSError, DiscoError):
                _answer(line)

        threading.Thread(target=live, daemon=True).start()
        with pytest.raises(RefusedError, match=rf"busy with a job of {own} for \d+ s"):
            _control(door)
    _control(door).close()  # free again at once


def test_a_host_that_went_silent_makes_room_for_another_one(door: Door) -> None:
    with _control(door) as silent:
        _control(door).close()
        assert door.said("ends: nothing was heard of its host for")
        while silent.recv(4096):  # to the end of the heartbeats
            pass


@pytest.mark.parametrize("purpose", [LINE, PEER])
def test_a_connection_for_another_job_is_refused(door: Door, purpose: str) -> None:
    with _control(door), pytest.raises(RefusedError, match="the job of this connection does not exist here"):
        call(door.endpoint, Keys(TOKEN), purpose, "f" * 32, 1 if purpose == PEER else None)


@pytest.mark.parametrize("job", ["\ud800", "", JOB.upper() + "g", JOB[1:]])
@pytest.mark.parametrize("purpose", [CONTROL, LINE, PROBE])
def test_what_is_no_number_of_a_job_is_refused_and_the_connection_closed(door: Door, purpose: str, job: str) -> None:
    with _control(door), _proven(door) as line:
        line.sendall(pack_message(Purpose(purpose, version("disco-edge"), job, None)))
        assert _answer(line) == Refusal("a job's number is not 32 hexadecimal digits")
        assert line.recv(1) == b""


def test_another_version_is_refused(door: Door) -> None:
    with _proven(door) as line:
        line.sendall(pack_message(Purpose(CONTROL, "0.0.1", JOB, None)))
        answer = _answer(line)
    assert isinstance(answer, Refusal)
    assert "the caller 0.0.1: install the same version on both" in answer.what


def test_a_slice_that_was_changed_on_its_way_is_refused(door: Door) -> None:
    with _control(door) as line:
        line.sendall(pack_message(_request(b"int x;")))
        assert _answer(line) == Need((0,))
        line.sendall(pack_bytes(b"int y;"))
        answer = _answer(line)
    assert answer == Refusal("disco_model.c was changed on its way to this node (its hash is another): run again")


def test_more_bytes_than_announced_are_refused(door: Door) -> None:
    with _control(door) as line:
        line.sendall(pack_message(_request(b"int x;")) + pack_bytes(b"int x; int y;"))
        assert _answer(line) == Need((0,))
        answer = _answer(line)
    assert answer == Refusal("more bytes of disco_model.c came than the 6 announced")


@pytest.mark.parametrize(
    "command", [Start((), ()), _request(nodes=300), _request(bundle="../../etc"), pack_bytes(b"no slice")]
)
def test_commands_out_of_order_are_refused(door: Door, command: object) -> None:
    with _control(door) as line:
        line.sendall(command if isinstance(command, bytes) else pack_message(command))
        assert isinstance(_answer(line), Refusal)
    _control(door).close()


def test_a_slice_that_does_not_compile_says_why(door: Door) -> None:
    content = b"#error not today\n"
    with _control(door) as line:
        line.settimeout(60)
        line.sendall(pack_message(_request(content)))
        assert _answer(line) == Need((0,))
        line.sendall(pack_bytes(content))
        answer = _answer(line)
    assert isinstance(answer, Refusal)
    assert "its slice cannot be built" in answer.what


def test_a_peer_that_cannot_be_reached_is_named(door: Door) -> None:
    from disco_host.node.messages import Address

    with _control(door) as line:
        line.sendall(pack_message(Probe(Address(1, "127.0.0.1:1"))))
        answer = _answer(line)
    assert isinstance(answer, Refusal)
    assert answer.what.startswith("it cannot connect to node 1: 127.0.0.1:1 cannot be reached")


# ---- the cache


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": "shell"},
        {"mode": "--help"},
        {"bundle": "0" * 31 + "/"},
        {"node": 1},
        {"node": -1},
        {"parts": ()},
        {"parts": (Part("../disco_model.c", 1, "0" * 64),)},
        {"parts": (Part("disco_model.c\n", 1, "0" * 64),)},
        {"parts": (Part("disco_model.c", -1, "0" * 64),)},
        {"parts": (Part("disco_model.c", 1, "0" * 63 + "G"),)},
        {"parts": (Part("disco_model.c", 1, "0" * 64),) * 2},
        {"parts": (Part("disco_model.c", 1 << 40, "0" * 64),)},
    ],
)
def test_odd_requests_are_refused_before_anything_of_them_is_used(changes: dict[str, object]) -> None:
    check_request(_request())
    with pytest.raises(DiscoError):
        check_request(_request(**changes))


def test_a_cached_part_that_was_changed_is_asked_for_again(tmp_path: Path) -> None:
    slice_ = Slice(tmp_path, _request(), "")
    assert slice_.missing() == (0,)
    slice_.store(_request().parts[0], [b"int", b" x;"])
    assert Slice(tmp_path, _request(), "").missing() == ()
    (slice_.parts / "disco_model.c").write_bytes(b"int z;")
    assert Slice(tmp_path, _request(), "").missing() == (0,)
    assert Slice(tmp_path, _request(), "another runtime").folder != slice_.folder


def test_a_full_disk_is_told_to_the_host(door: Door, tmp_path: Path) -> None:
    slice_ = Slice(tmp_path / "cache", _request(), runtime_hash())
    parts = slice_.parts
    (parts / f".disco_model.c.{os.getpid()}").symlink_to("/dev/full")  # there before the agent writes it
    slice_.close()
    with _control(door) as line:
        line.sendall(pack_message(_request()))
        assert _answer(line) == Need((0,))
        line.sendall(pack_bytes(b"int x;"))
        answer = _answer(line)
    assert answer == Refusal(
        f"the disk is full at {parts}: free some space on this node, or keep its slices elsewhere (disco-node --cache)"
    )


def test_the_cache_keeps_what_was_used_last(tmp_path: Path) -> None:
    slices = []
    for number in range(KEPT + 4):
        slices.append(Slice(tmp_path, _request(bundle=f"{number:032x}"), ""))
        os.utime(slices[-1].folder, (number, number))
        if number != 1:
            slices[-1].close()
    kept = sorted(tmp_path.iterdir())
    assert kept == sorted(one.folder for one in [slices[1], *slices[5:]])  # that one is in use


def test_what_nobody_ever_held_makes_room_for_what_is_used(tmp_path: Path) -> None:
    for number in range(KEPT + 4):
        left = tmp_path / f"{number:064x}"
        left.mkdir()
        os.utime(left, (number, number))
    used = Slice(tmp_path, _request(), "")
    used.close()
    assert len(list(tmp_path.iterdir())) == KEPT
    assert used.folder.is_dir()


# ---- options


def test_a_port_in_use_is_told(door: Door, tmp_path: Path) -> None:
    with pytest.raises(DiscoError, match=f"{door.endpoint} cannot be listened at: Address already in use"):
        Agent(AgentConfig(door.endpoint, TOKEN, tmp_path / "cache"), print)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_listening_wider_without_a_token_is_refused(tmp_path: Path, host: str) -> None:
    config = AgentConfig(Endpoint(host, 0), TOKEN, tmp_path / "cache", token_given=False)
    with pytest.raises(UsageError, match="can be reached by other machines: give the token"):
        Agent(config, print)


def test_tokens_are_secret_and_long_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    with pytest.raises(DiscoError, match="cannot be read: No such file"):
        auth.load_token(path)
    auth.write_token(path)
    token = auth.load_token(path)
    auth.write_token(path)
    assert auth.load_token(path) == token  # one that is there is kept
    path.chmod(0o640)
    with pytest.raises(DiscoError, match=f"may be read by others: chmod 600 {path}"):
        auth.load_token(path)
    path.chmod(0o600)
    path.write_text("short\n")
    with pytest.raises(DiscoError, match="holds 5 bytes"):
        auth.load_token(path)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(DiscoError, match="is no regular file"):
        auth.load_token(path)
    with pytest.raises(DiscoError, match="is no regular file"):
        calling_context(path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert auth.own_token() == auth.own_token()
    assert (tmp_path / "config" / "disco-edge" / "token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("127.0.0.1:80", Endpoint("127.0.0.1", 80)),
        ("disco://pi.local:7000", Endpoint("pi.local", 7000)),
        ("pi", Endpoint("pi", 7450)),
        ("[::1]:9", Endpoint("::1", 9)),
        ("[::1]", Endpoint("::1", 7450)),
    ],
)
def test_addresses(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text) == endpoint
    assert parse_endpoint(str(endpoint)) == endpoint


@pytest.mark.parametrize("text", ["", ":80", "host:", "host:x", "host:70000", "::1:80", "host:٣", "host:" + "9" * 5000])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="is no address: write HOST:PORT"):
        parse_endpoint(text)


@pytest.mark.parametrize("host", ["a..b", "a" * 70 + ".local", "a\0b"])
def test_what_cannot_be_a_name(host: str) -> None:
    with pytest.raises(DiscoError, match="is unknown"):
        connect_to(Endpoint(host, 80))


def test_a_name_that_nobody_resolves(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: done.wait(30))
    monkeypatch.setattr("disco_host.node.address.RESOLVE_S", 0.02)
    with pytest.raises(DiscoError, match=r"pi.local:80: no name server said within 0.02 s where pi.local is"):
        connect_to(Endpoint("pi.local", 80))
    done.set()


def test_a_name_of_several_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent listens at one of them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()
        known = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, place[1])) for host in ("127.0.0.9", place[0])]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: known)
        with connect_to(Endpoint("pi.local", place[1])) as line:
            assert line.getpeername() == place


def test_loopback() -> None:
    assert is_loopback(Endpoint("127.0.0.1", 1))
    assert is_loopback(Endpoint("localhost", 1))
    assert not is_loopback(Endpoint("0.0.0.0", 1))


def test_an_agent_whose_log_cannot_be_written_serves_on(tmp_path: Path) -> None:
    token = tmp_path / "token"
    auth.write_token(token)
    keys = Keys(auth.load_token(token))
    ours, theirs = os.pipe()
    command = [sys.executable, "-m", "disco_host.cli_node", "--listen", "127.0.0.1:0", "--token-file", str(token)]
    command += ["--cache", str(tmp_path / "cache"), "--ready-fd", str(theirs)]
    with open("/dev/full", "w") as full, subprocess.Popen(command, stderr=full, pass_fds=[theirs]) as agent:
        try:
            os.close(theirs)
            endpoint = parse_endpoint(os.read(ours, 100).decode().strip())
            for _ in range(2):
                call(endpoint, keys, CONTROL, JOB).close()
        finally:
            os.close(ours)
            agent.kill()


# ---- the host's side of it


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (frames.HEADER.pack(0xFFFF_FFFF, 0), "cannot be understood: a frame of 4294967295 bytes came"),
        (frames.pack_json({"type": "beat"}), "cannot be understood: message beat: missing keys"),
        (pack_message(Pong(1, 10**400)), "cannot be understood: a message is no JSON: a number of 401 digits"),
        (pack_message(Refusal("no compiler")), "reports: no compiler"),
        (pack_message(Beat("is halted", 3.0)), "hangs: its engine was halted"),
        (b"", "is gone: its agent has ended"),
    ],
)
def test_what_an_agent_may_say_to_its_host(data: bytes, words: str) -> None:
    ours, theirs = socket.socketpair()
    with theirs, Watch() as watch:
        watch.add(3, "disco://pi", ours)
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(AgentFaultError, match=rf"node 3 \(disco://pi\) {words}") as caught:
            watch.answer(3, Need)
        assert watch.faults() == {3: Fault(str(caught.value), silent=False)}


def test_a_silent_agent_is_a_fault() -> None:
    ours, theirs = socket.socketpair()
    with theirs, Watch(silence_s=0.05) as watch:
        watch.add(0, "disco://pi", ours)
        with pytest.raises(AgentFaultError, match="was not heard of for"):
            watch.answer(0, Need)


@contextmanager
def _agent_that_says(*messages: object) -> Iterator[Watch]:
    """A watch over an agent, node 0, that says this at once, and nothing more; its connection stays open."""
    ours, theirs = socket.socketpair()
    with theirs, Watch() as watch:
        watch.add(0, "disco://pi", ours)
        theirs.sendall(b"".join(map(pack_message, messages)))
        yield watch


def test_an_agent_that_does_not_answer_is_named_with_what_was_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disco_host.remote.watch.PATIENT_S", 0.05)
    with _agent_that_says(Beat("builds its slice", 1.0)) as watch:
        message = (
            r"node 0 \(disco://pi\) does not answer: {} was awaited for {} s; it last said that it builds its slice"
        )
        with pytest.raises(AgentFaultError, match=message.format("NEED", 0.1)):
            watch.request(0, _request(), Need, 0.1)
        with pytest.raises(AgentFaultError, match=message.format("PONG", 0.05)):
            watch.clocks()


def test_a_fault_of_ours_in_the_watch_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watch, "_take", lambda *_: 1 // 0)
    with (
        _agent_that_says(Pong(1, 1)) as watch,
        pytest.raises(AgentFaultError, match=r"node 0 .* cannot take \(ZeroDivisionError"),
    ):
        watch.answer(0, Need)


def test_answers_that_nobody_asked_for_are_not_kept() -> None:
    with _agent_that_says(*[Prepared(0)] * (MOST_ANSWERS + 1)) as watch:
        assert select.select([watch], [], [], 10)[0]
        assert "4 answers came that were not asked for" in watch.faults()[0].what


@pytest.mark.parametrize("parts", [(0, 0), (2,), (0, 1, 2)])
def test_parts_that_a_slice_does_not_have_are_not_sent(
    parts: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "part").write_bytes(b"x")
    files = [slices.PartFile(Part(name, 1, "0" * 64), tmp_path / "part") for name in "ab"]
    monkeypatch.setattr(slices, "slice_of", lambda *_: files)
    bundle = cast(Any, SimpleNamespace(manifest=SimpleNamespace(bundle_id="0" * 32, nodes=1)))
    with (
        _agent_that_says(Need(parts)) as watch,
        pytest.raises(AgentFaultError, match=r"node 0 .* asks for parts .* of 2, which was not asked for"),
    ):
        slices.send_slice(watch, bundle, 0, TFLITE, REFERENCE, framed=False)


# ---- what is said when a node fails


@pytest.mark.parametrize(
    "error",
    [
        NodeError(0, "the line to node 0 broke", broke=True),
        NodeError(0, "node 0 (disco://pi) reports: its engine was killed by SIGKILL"),
        NodeError(0, "node 1 reports: the line to its peer broke", reported=True, waited="node 1 waited for it"),
    ],
)
def test_whoever_tells_it_first_an_engine_that_was_killed_is_told_alike(error: NodeError) -> None:
    fault = Fault("node 0 (disco://pi) reports: its engine was killed by SIGKILL", silent=False)
    watch = cast(Any, SimpleNamespace(faults=lambda: {0: fault}, beats=dict, silence_s=1.0))
    told = with_witnesses(cast(Any, None), error, watch, [])
    waited = error.waited or "no exchange was seen to wait for it"
    assert (told.node, str(told)) == (0, f"{fault.what}; {waited}")
