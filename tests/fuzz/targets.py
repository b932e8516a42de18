"""What is fuzzed: each target takes any bytes, and lets escape only what is a fault of ours.

They need no fuzzer: `harness.py` gives them to one, and tests replay the corpus and random bytes.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from disco_firmware import protocol
from disco_firmware.bundle import MANIFEST_NAME
from disco_firmware.framing import WIRE_MAX_BYTES, Frame, FrameSplitter, decode_frame, encode_frame
from disco_firmware.link import Link
from disco_firmware.manifest import SCHEMA_VERSION, Manifest
from disco_firmware.protocol import ADDRESS_HOST, LINK_WINDOW, MAX_PAYLOAD, STREAM_MAX_PAYLOAD, MessageError, Opcode
from disco_firmware.stream_link import FRAME_HEADER, StreamError, StreamLink
from disco_host.capture import Collector
from disco_host.node import auth, cache, frames, messages
from disco_host.node.address import parse_endpoint
from disco_host.node.peers import PeerLine, Transfer
from disco_host.remote.clocks import node_clock
from disco_host.remote.slices import send_slice
from disco_host.remote.watch import MOST_ANSWERS, Watch, _Agent
from disco_targets.errors import DiscoError, UsageError

NODE = 1
TOKEN = b"0123456789abcdef"
_T = TypeVar("_T")


class Draw:
    """Reads decisions off the bytes; zeros when they have run out."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def bytes(self, most: int) -> bytes:
        """So many of the next bytes, fewer at the end."""
        taken = self._data[self._at : self._at + most]
        self._at += most
        return taken

    def below(self, limit: int) -> int:
        """0 to limit - 1."""
        size = max(1, (limit - 1).bit_length() + 7 >> 3)
        return int.from_bytes(self.bytes(size), "little") % limit

    def chunk(self) -> bytes:
        """A length, then so many bytes."""
        return self.bytes(self.below(300))

    def of(self, choices: Sequence[_T]) -> _T:
        """One of them."""
        return choices[self.below(len(choices))]


def _pieces(data: bytes) -> list[bytes]:
    """The data as a line may deliver them: cut anywhere, as they say themselves."""
    pieces = []
    at = 0
    while at < len(data):
        step = (1, 2, 7, 61, 1000, 1 << 17)[data[at] % 6]
        pieces.append(data[at : at + step])
        at += step
    return pieces


# ---- serial frames


def framing(data: bytes) -> None:
    """However the line cuts the bytes, the same frames come out; little is kept; a frame survives being sent again."""
    splitter = FrameSplitter()
    found = []
    for piece in _pieces(data):
        found += splitter.feed(piece)
        assert len(splitter._pending) <= WIRE_MAX_BYTES
    assert found == FrameSplitter().feed(data)
    for frame in found:
        if frame is not None:
            assert decode_frame(encode_frame(frame)[:-1]) == frame


def link(data: bytes) -> None:
    """A link that is sent damaged frames, good ones that make no sense, and is used meanwhile."""
    draw = Draw(data)
    end = Link(*draw.of([(ADDRESS_HOST, NODE), (NODE, ADDRESS_HOST), (NODE, 0)]))
    end.reset(draw.below(3))
    now = 0.0
    while draw:
        action = draw.below(6)
        if action == 0:
            end.receive(draw.chunk(), now)
        elif action == 1:
            opcode = draw.of([Opcode.HELLO, Opcode.CHANNELS, Opcode.RUN])
            (end.send_control if opcode == Opcode.HELLO else end.send)(opcode, draw.chunk()[:MAX_PAYLOAD])
        elif action == 2:
            splitter = FrameSplitter()
            written = splitter.feed(end.bytes_to_send(now))
            assert None not in written
            assert not splitter._pending
        else:
            addresses = (0, NODE, ADDRESS_HOST, protocol.ADDRESS_ANY)
            frame = Frame(
                draw.of(list(Opcode)),
                draw.of(addresses),
                draw.of(addresses),
                draw.below(3),
                draw.below(256) if action == 3 else draw.below(6),
                draw.chunk()[:MAX_PAYLOAD],
                draw.below(256) if action == 4 else draw.below(6),
            )
            for message in end.receive(encode_frame(frame), now):
                assert message.payload == frame.payload
        assert len(end._window) <= LINK_WINDOW
        timeout = end.next_timeout(now)
        assert timeout is None or timeout >= 0
        now += draw.below(4) / 4


_MESSAGES: tuple[Any, ...] = (
    protocol.Hello,
    protocol.Welcome,
    protocol.Connect,
    protocol.Run,
    protocol.Done,
    protocol.ErrorReport,
    protocol.PeerHello,
    protocol.Credit,
    protocol.InputPart,
    protocol.OutputPart,
    protocol.Channels,
    protocol.OpRecords,
    protocol.RouteRecords,
    protocol.StageRecords,
    protocol.StepRecords,
)


def payloads(data: bytes) -> None:
    """Each kind of message: refused by MessageError, or the same after packing and unpacking."""
    draw = Draw(data)
    kind = draw.of(_MESSAGES)
    try:
        message = kind.unpack(draw.bytes(len(data)))
    except MessageError:
        return
    assert kind.unpack(message.pack()) == message


def collector(data: bytes) -> None:
    """What a node sends of a run: refused by DiscoError, and never more of it kept than a run has."""
    outputs = (SimpleNamespace(tensor="y", channels=(0, 1)), SimpleNamespace(tensor="y", channels=()))
    sends = (SimpleNamespace(receiver=0, exchange=0, bytes=6),)
    op = SimpleNamespace(height=1, row_step=1, joined=False)
    program = SimpleNamespace(node=NODE, outputs=outputs, ops=(op, op, op), sends=sends, stages=(1, 2))
    manifest = SimpleNamespace(tensor=lambda _: SimpleNamespace(shape=(1, 2, 3, 4)))
    collected = Collector(cast(Any, manifest), cast(Any, program), 1)
    draw = Draw(data)
    with _expecting(DiscoError, MessageError):
        while draw:
            action = draw.below(6)
            if action == 0:
                collected.output(protocol.OutputPart(draw.below(3), draw.below(20), draw.chunk()))
            elif action == 1:
                ops = (_zeros(protocol.OpRecord),) * draw.below(4)
                collected.ops(protocol.OpRecords(1, draw.below(5), ops))
            elif action == 2:
                routes = (dataclasses.replace(_zeros(protocol.RouteRecord), payload_bytes=draw.below(8)),) * draw.below(
                    3
                )
                collected.routes(protocol.RouteRecords(1, draw.below(4), routes))
            elif action == 3:
                stages = (_zeros(protocol.StageRecord),) * draw.below(3)
                collected.stages(protocol.StageRecords(1, draw.below(4), stages))
            elif action == 4:
                steps = (_zeros(protocol.StepRecord),) * draw.below(4)
                collected.steps(protocol.StepRecords(1, draw.below(5), steps))
            else:
                collected.finish(protocol.Done.unpack(draw.bytes(protocol.Done.layout.size)))
            assert len(collected._ops) <= len(program.ops)
            assert len(collected._routes) <= len(program.sends)
            assert len(collected._stages) <= len(program.stages)
            assert sum(map(len, collected._outputs)) <= 2 * 3 * 2


def _zeros(kind: Any) -> Any:
    return kind.unpack(bytes(kind.layout.size))


# ---- frames over TCP


def stream(data: bytes) -> None:
    """However the stream is cut, the same messages or the same refusal; little is kept."""
    own, peer = ((ADDRESS_HOST, NODE), (NODE, ADDRESS_HOST), (NODE, 0))[len(data) % 3]

    def run(pieces: Sequence[bytes]) -> tuple[list[Any], bool]:
        end = StreamLink(own, peer)
        end.reset(1)
        taken: list[Any] = []
        try:
            for piece in pieces:
                taken += end.receive(piece, 0.0)
                assert len(end._pending) < FRAME_HEADER.size + STREAM_MAX_PAYLOAD
        except StreamError:
            return taken, False
        return taken, True

    whole, whole_ended = run([data])
    cut, cut_ended = run(_pieces(data))
    assert whole_ended == cut_ended
    if whole_ended:  # else what came before the refusal is lost with it
        assert whole == cut


# ---- agents

_WATCHED = (messages.Need, messages.Prepared, messages.Pong, messages.Beat, messages.Refusal, messages.Started)
_AGENT_MESSAGES = messages.kinds(
    *(kind for kind in vars(messages).values() if dataclasses.is_dataclass(kind) and hasattr(kind, "type"))
)


def control(data: bytes) -> None:
    """The conversation of host and agent: refused by FrameError, or the same after packing; slices by safe names."""

    def read(pieces: Sequence[bytes]) -> list[frames.Frame] | None:
        reader = frames.FrameReader()
        taken = []
        try:
            for piece in pieces:
                taken += reader.feed(piece)
                assert len(reader._pending) < frames.HEADER.size + max(frames.MAX_JSON, frames.MAX_BYTES)
        except frames.FrameError:
            return None
        return taken

    taken = read([data])
    assert taken == read(_pieces(data))
    for frame in taken or ():
        _agent_message(frame)


def control_json(data: bytes) -> None:
    """The same for documents that are nearly right: built from the messages, then changed in places."""
    draw = Draw(data)
    kind = draw.of(list(_AGENT_MESSAGES.values()))
    document = {"type": kind.type, **_document(kind, draw)}
    for _ in range(draw.below(4)):
        document = _changed(document, draw)
    _agent_message(frames.Frame(frames.JSON_KIND, json.dumps(document).encode(errors="replace")))


def _agent_message(frame: frames.Frame) -> None:
    with _expecting(frames.FrameError):
        message = frames.message_of(frame, _AGENT_MESSAGES)
        (again,) = frames.FrameReader().feed(frames.pack_message(message))
        assert repr(frames.message_of(again, _AGENT_MESSAGES)) == repr(message)  # NaN is not equal to itself
        if isinstance(message, messages.Prepare):
            with _expecting(DiscoError):
                cache.check_request(message)
                for part in message.parts:
                    assert "/" not in part.name
                    assert part.name.strip(".")
                    assert len(part.name) < 100
        if isinstance(message, messages.Address):
            with _expecting(UsageError):
                parse_endpoint(message.address)


class _Line:
    """A socket on which `data` come in, cut as they say, until it closes; everything sent is counted and lost."""

    def __init__(self, data: bytes) -> None:
        self._pieces = _pieces(data)
        self.sent = 0

    def close(self) -> None:
        self._pieces = []

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def settimeout(self, seconds: float | None) -> None:
        assert seconds is None or seconds > 0

    def sendall(self, data: bytes) -> None:
        assert data
        self.sent += len(data)

    def recv(self, size: int) -> bytes:
        assert size > 0
        if not self._pieces:
            return b""
        piece = self._pieces.pop(0)
        if len(piece) > size:
            self._pieces.insert(0, piece[size:])
        return piece[:size]

    def recv_into(self, buffer: memoryview) -> int:
        piece = self.recv(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def recvmsg_into(self, buffers: Sequence[memoryview]) -> tuple[int]:
        piece = self.recv(sum(map(len, buffers)))
        at = 0
        for buffer in buffers:
            part = piece[at : at + len(buffer)]
            buffer[: len(part)] = part
            at += len(part)
        return (len(piece),)


_HERE = Path(__file__).parent
_FILES = (MANIFEST_NAME, "targets.py", "harness.py")
_PROGRAMS = {NODE: SimpleNamespace(stages=[SimpleNamespace(file=name) for name in _FILES[1:]])}
_MANIFEST = SimpleNamespace(bundle_id="0" * 32, nodes=2, programs=_PROGRAMS)


class _Folder:
    """Of a bundle: the sources of this fuzzer."""

    def __truediv__(self, name: str) -> Path:
        return _HERE / ("make_corpus.py" if name == MANIFEST_NAME else name)


def watch(data: bytes) -> None:
    """What an agent may say while it is sent a slice and its clock is read: refused by DiscoError, or taken."""
    draw = Draw(data)
    said = draw.bytes(len(data)) if draw.below(2) else _said(draw)
    line = _Line(said)
    with Watch() as watched:
        agent = watched._agents[NODE] = _Agent(NODE, "fuzzed", cast(Any, line))
        agent.asked.update(dict.fromkeys(range(3), 0))
        while agent.fault is None:
            watched._hear(agent)
        clock = [agent.pongs.get() for _ in range(agent.pongs.qsize())]
        if read := [sample for sample in clock if sample is not None]:
            node_clock(NODE, read, read).to_host(0)
        assert agent.answers.qsize() <= MOST_ANSWERS + 1
        bundle = SimpleNamespace(path=_Folder(), manifest=_MANIFEST)
        with _expecting(DiscoError):
            send_slice(watched, cast(Any, bundle), NODE, messages.TFLITE, "reference", framed=False)
    sizes = [(_Folder() / name).stat().st_size for name in _FILES]
    assert line.sent < sum(sizes) + min(sizes) + len(said)  # no part twice


def _said(draw: Draw) -> bytes:
    """Messages that are nearly right."""
    said = b""
    while draw:
        kind = draw.of(_WATCHED)
        document = {"type": kind.type, **_document(kind, draw)}
        for _ in range(draw.below(3)):
            document = _changed(document, draw)
        said += frames.pack_json(document) if draw.below(9) else draw.chunk()
    return said


def handshake(data: bytes) -> None:
    """Nobody gets in who does not know the token; a frame that follows is read to its end and no further."""
    for prove in (auth.prove_to_caller, auth.prove_to_listener):
        try:
            prove(cast(Any, _Line(data)), TOKEN)
        except auth.HandshakeError:
            continue
        raise AssertionError("let in without the token")
    line = _Line(data)
    with _expecting(frames.FrameError):
        first = frames.read_one(cast(Any, line), 10)
        rest = b"".join(line._pieces)
        taken = frames.HEADER.size + len(first.payload) if first is not None else 0
        assert data[taken:] == rest


def peer(data: bytes) -> None:
    """Channels from another agent: what is taken is exactly what was to come, and nothing is written beside it."""
    memory = bytearray(b"\xaa" * 500)
    view = memoryview(memory)
    transfers = [Transfer(0, view[10:20]), Transfer(1, view[20:400]), Transfer(2, view[400:401])]
    draw = Draw(data)
    sent = b""
    for frame in _channel_frames(transfers, draw):
        action = draw.below(8)
        sent += draw.chunk() if action == 1 else frame
        if action == 2:
            sent = sent[: draw.below(1 << 9)]
    line = PeerLine(0, NODE, cast(Any, _Line(sent)), [], transfers)
    line.begin(1, 1)
    with _expecting(DiscoError, ConnectionError):
        for exchange in (0, 1, 2):
            assert line.receive(line.goals[exchange])
        assert sent.startswith(b"".join(_channel_frames(transfers, Draw(b""))))
    assert line.missing(3) >= 0
    assert memory[:10] == b"\xaa" * 10
    assert memory[401:] == b"\xaa" * 99
    with _expecting(DiscoError, ConnectionError):
        greeting = PeerLine(0, NODE, cast(Any, _Line(data)), [], []).read_greeting(bytearray())
        assert greeting is None or len(greeting) == protocol.PeerHello.layout.size


def _channel_frames(transfers: Sequence[Transfer], draw: Draw) -> list[bytes]:
    """What an honest peer sends; where `draw` says something else than 0, a field is another one."""
    frames_ = []
    for transfer in transfers:
        fields = [len(transfer.data) + protocol.Channels.HEADER_BYTES, Opcode.CHANNELS, NODE, 0, 1, 1]
        fields += [transfer.exchange, 0]
        if place := draw.below(len(fields) * 4):
            fields[place % len(fields)] ^= draw.below(0x80)
        frames_.append(FRAME_HEADER.pack(*fields[:5]) + protocol.Channels.header(*fields[5:]) + bytes(transfer.data))
    return frames_


# ---- bundles


def manifest(data: bytes) -> None:
    """A manifest as it should be, but for some places: refused by DiscoError, or the same after writing and reading."""
    draw = Draw(data)
    document = _document(Manifest, draw)
    document["schema"] = SCHEMA_VERSION
    for _ in range(draw.below(4)):
        document = _changed(document, draw)
    with _expecting(DiscoError):
        read = Manifest.from_json(document)
        assert repr(Manifest.from_json(json.loads(json.dumps(read.to_json())))) == repr(read)


def manifest_json(data: bytes) -> None:
    """Any text at all."""
    with _expecting(DiscoError, ValueError, RecursionError):  # as load_bundle does
        Manifest.from_json(json.loads(data))


# ---- documents from dataclasses

_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 255, 2**31, 2**64, 10**400, 0.5, float("nan"), float("inf"), "", "a/../b", "\ud800"),
    *("x" * 200, [], {}, [1], {"type": "x"}, [[[]]], "0" * 64, "127.0.0.1:1", "stage0.tflite"),
)


def _document(cls: Any, draw: Draw) -> dict[str, Any]:
    """JSON of an instance of a dataclass."""
    hints = typing.get_type_hints(cls)
    return {field.name: _drawn(hints[field.name], draw) for field in dataclasses.fields(cls)}


def _drawn(hint: Any, draw: Draw) -> Any:
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return [_drawn(arguments[0], draw) for _ in range(draw.below(3))]
    if arguments:  # a union
        return _drawn(draw.of(arguments), draw)
    if dataclasses.is_dataclass(hint):
        return _document(hint, draw)
    if hint is str:
        return draw.of(["", "y", "native", "tflite", "disco_model.c", "stage1.tflite", "ab" * 16, "ab" * 32])
    if hint is type(None):
        return None
    if hint is bool:
        return draw.below(2) == 1
    return float(draw.below(100)) if hint is float else draw.below(3)


def _changed(document: Any, draw: Draw) -> Any:
    """One place of it replaced, taken away, or added to."""
    if isinstance(document, dict) and document and draw.below(4):
        key = draw.of(sorted(document))
        if draw.below(8) == 0:
            return {name: value for name, value in document.items() if name != key}
        return document | {key: _changed(document[key], draw)}
    if isinstance(document, list) and document and draw.below(4):
        place = draw.below(len(document))
        return [*document[:place], _changed(document[place], draw), *document[place + 1 :]]
    if isinstance(document, dict) and draw.below(4) == 0:
        return document | {"extra": 1}
    return draw.of(_VALUES)


class _expecting:  # noqa: N801 - reads as a statement
    """contextlib.suppress, but never an assertion of ours."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, self._kinds)


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        framing,
        link,
        payloads,
        collector,
        stream,
        control,
        control_json,
        watch,
        handshake,
        peer,
        manifest,
        manifest_json,
    )
}
