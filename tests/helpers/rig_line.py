"""The other end of a node's lines in tests: frames by hand over a socket, a host, node processes.

The sockets lose nothing, so that a few lines do for the link: everything in order is acknowledged,
repeated frames are dropped, nothing is retransmitted. Any frame can be sent, however wrong.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from disco_firmware import protocol
from disco_firmware.protocol import Opcode

DEADLINE_SECONDS = 20.0


def cobs_encode(raw: bytes) -> bytes:
    """Without the delimiter."""
    blocks = (raw + b"\0").split(b"\0")[:-1]
    return b"".join(bytes([len(block) + 1]) + block for block in blocks)


def cobs_decode(encoded: bytes) -> bytes:
    """Inverse of `cobs_encode` for frames below 254 bytes."""
    raw, at = b"", 0
    while at < len(encoded):
        code = encoded[at]
        raw += encoded[at + 1 : at + code] + b"\0"
        at += code
    return raw[:-1]


def frame(
    opcode: int, source: int, destination: int, session: int, sequence: int, payload: bytes, expected: int = 0
) -> bytes:
    """A whole frame as it goes over the wire."""
    header = struct.pack("<7B", opcode, source, destination, session, sequence, expected, len(payload))
    covered = header + payload
    return cobs_encode(covered + struct.pack("<I", zlib.crc32(covered))) + b"\0"


@dataclass
class Line:
    """One end of a line to a node: `own` is our address, `node` its."""

    sock: socket.socket
    own: int
    node: int
    session: int = 0
    sent: int = 0
    expected: int = 0
    buffer: bytes = b""
    pending: list[tuple[int, bytes]] = field(default_factory=list)

    def begin(self, session: int) -> None:
        """Forgets the numbering of the last session."""
        self.session, self.sent, self.expected, self.pending = session, 0, 0, []

    def send(self, opcode: int, payload: bytes = b"") -> None:
        """A sequenced message."""
        self.send_together([(opcode, payload)])

    def send_together(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Sequenced messages, all in one piece."""
        numbered = enumerate(messages, self.sent)
        self.sent += len(messages)
        ends, expected = (self.own, self.node, self.session), self.expected % 256
        frames = [frame(opcode, *ends, number % 256, payload, expected) for number, (opcode, payload) in numbered]
        self.sock.sendall(b"".join(frames))

    def send_unsequenced(self, opcode: int, payload: bytes, session: int) -> None:
        """HELLO."""
        self.sock.sendall(frame(opcode, self.own, 0xFF, session, 0, payload))

    def receive(self, seconds: float = DEADLINE_SECONDS) -> tuple[int, bytes]:
        """The next message but acknowledgements; TimeoutError when none comes."""
        end = time.monotonic() + seconds
        while not self.pending:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"node {self.node} says nothing")
            self.sock.settimeout(left)
            chunk = self.sock.recv(4096)
            if not chunk:
                raise ConnectionError(f"node {self.node} closed its line")
            *frames, self.buffer = (self.buffer + chunk).split(b"\0")
            for encoded in frames:
                self._take(encoded)
        return self.pending.pop(0)

    def _take(self, encoded: bytes) -> None:
        raw = cobs_decode(encoded)
        if len(raw) < 11 or struct.unpack("<I", raw[-4:])[0] != zlib.crc32(raw[:-4]):
            return
        opcode, sequence = raw[0], raw[4]
        if opcode in (Opcode.ACK, Opcode.NAK) or raw[3] != self.session:
            return
        if opcode not in protocol.UNSEQUENCED:
            new = sequence == self.expected % 256
            self.expected += new
            ack = frame(Opcode.ACK, self.own, self.node, self.session, 0, b"", self.expected % 256)
            self.sock.sendall(ack)
            if not new:
                return
        self.pending.append((opcode, raw[7:-4]))


@dataclass(frozen=True)
class NodeError(Exception):
    """The node answered ERROR."""

    report: protocol.ErrorReport


@dataclass
class Result:
    """What a node told after a run."""

    outputs: dict[int, npt.NDArray[np.int8]]
    ops: list[protocol.OpRecord]
    routes: list[protocol.RouteRecord]
    steps: list[protocol.StepRecord]
    done: protocol.Done


def parse_result(messages: Sequence[tuple[int, bytes]]) -> Result:
    """Sorts the messages of a run; every record must be there, in order."""
    streams: dict[int, bytes] = {}
    ops: list[protocol.OpRecord] = []
    routes: list[protocol.RouteRecord] = []
    steps: list[protocol.StepRecord] = []
    for opcode, payload in messages[:-1]:
        if opcode == Opcode.OUTPUT:
            part = protocol.OutputPart.unpack(payload)
            assert part.offset == len(streams.get(part.index, b""))
            streams[part.index] = streams.get(part.index, b"") + part.data
        else:
            table, record, size = {
                Opcode.OPS: (ops, protocol.OpRecord, protocol.OP_RECORD_BYTES),
                Opcode.ROUTES: (routes, protocol.RouteRecord, protocol.ROUTE_RECORD_BYTES),
                Opcode.STEPS: (steps, protocol.StepRecord, 4),
            }[Opcode(opcode)]
            _, first, count = struct.unpack_from("<IHH", payload)
            assert (first, len(payload)) == (len(table), 8 + count * size)
            table += [record.unpack(payload[8 + i * size : 8 + (i + 1) * size]) for i in range(count)]
    outputs = {index: np.frombuffer(data, np.int8) for index, data in streams.items()}
    return Result(outputs, ops, routes, steps, protocol.Done.unpack(messages[-1][1]))


@dataclass
class Node:
    """A node process and the host's line to it."""

    host: Line
    process: subprocess.Popen[bytes]

    def hello(self, session: int) -> protocol.Welcome:
        """Begins a session."""
        self.host.begin(session)
        self.host.send_unsequenced(Opcode.HELLO, protocol.Hello(session).pack(), session)
        opcode, payload = self.host.receive()
        assert opcode == Opcode.WELCOME
        return protocol.Welcome.unpack(payload)

    def ask_connect(self, deadline_ms: int = 10_000) -> None:
        """CONNECT; the answer comes with `expect`."""
        self.host.send(Opcode.CONNECT, protocol.Connect(deadline_ms).pack())

    def expect(self, opcode: int) -> bytes:
        """The next message, which must be `opcode`; NodeError when it is ERROR."""
        got, payload = self.host.receive()
        if got == Opcode.ERROR:
            raise NodeError(protocol.ErrorReport.unpack(payload))
        assert got == opcode
        return payload

    def expect_error(self) -> protocol.ErrorReport:
        """The next message, which must be ERROR."""
        return protocol.ErrorReport.unpack(self.host_message(Opcode.ERROR))

    def host_message(self, opcode: int) -> bytes:
        """The next message, which must be `opcode`, ERROR or not."""
        got, payload = self.host.receive()
        assert got == opcode
        return payload

    def ask_run(self, inference: int, x: npt.NDArray[np.int8], deadline_ms: int = 10_000, flags: int = 1) -> None:
        """INPUT and RUN; the answer comes with `result`."""
        for part in protocol.InputPart.split(0, x.tobytes()):
            self.host.send(Opcode.INPUT, part.pack())
        self.host.send(Opcode.RUN, protocol.Run(inference, deadline_ms, flags).pack())

    def result(self) -> Result:
        """All messages up to DONE; NodeError when the run failed."""
        messages = []
        while not messages or messages[-1][0] != Opcode.DONE:
            messages.append(self.host.receive())
            if messages[-1][0] == Opcode.ERROR:
                raise NodeError(protocol.ErrorReport.unpack(messages[-1][1]))
        return parse_result(messages)


def connect_all(nodes: Sequence[Node], session: int) -> None:
    """HELLO to all, then CONNECT to all."""
    for node in nodes:
        node.hello(session)
    for node in nodes:
        node.ask_connect()
    for node in nodes:
        node.expect(Opcode.CONNECTED)


def run_all(nodes: Sequence[Node], inference: int, x: npt.NDArray[np.int8]) -> list[Result]:
    """One inference on all nodes at once."""
    for node in nodes:
        node.ask_run(inference, x)
    return [node.result() for node in nodes]


@contextlib.contextmanager
def start_node(program: Path, index: int, peers: Sequence[socket.socket], slow_us: int = 0) -> Iterator[Node]:
    """Starts a node; `peers` are its ends of the lines to its peers, in rising order.

    At the end the host's line is closed and the node must exit with 0, as it does when no
    sanitizer complains.
    """
    ours, its = socket.socketpair()
    ends = [its, *peers]
    command = [str(program), *(str(end.fileno()) for end in ends)]
    command += ["--slow", str(slow_us)] if slow_us else []
    process = subprocess.Popen(command, pass_fds=[end.fileno() for end in ends], stderr=subprocess.PIPE)
    for end in ends:
        end.close()
    try:
        yield Node(Line(ours, protocol.ADDRESS_HOST, index), process)
        ours.close()
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0, errors.decode(errors="replace")
    finally:
        ours.close()
        process.kill()
        process.communicate()


@contextlib.contextmanager
def _noisy(one_in: int) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a line that damages bytes, the same ones in every test."""
    low, from_low = socket.socketpair()
    high, from_high = socket.socketpair()
    threads = [
        threading.Thread(target=_carry, args=(source, sink, one_in, random.Random(seed)))
        for seed, (source, sink) in enumerate([(from_low, from_high), (from_high, from_low)])
    ]
    for thread in threads:
        thread.start()
    try:
        yield low, high
    finally:
        for sock in (from_low, from_high):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
        from_low.close()
        from_high.close()


def _carry(source: socket.socket, sink: socket.socket, one_in: int, rng: random.Random) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(4096):
            flips = (1 << rng.randrange(8) if rng.randrange(one_in) == 0 else 0 for _ in chunk)
            sink.sendall(bytes(byte ^ flip for byte, flip in zip(chunk, flips, strict=True)))


@contextlib.contextmanager
def start_mesh(programs: Sequence[Path], slow_us: Sequence[int] = (), damage_one_in: int = 0) -> Iterator[list[Node]]:
    """Starts all nodes with a line between each two; one byte in so many is damaged on its way."""
    count = len(programs)
    ends: list[dict[int, socket.socket]] = [{} for _ in programs]
    with contextlib.ExitStack() as stack:
        for low in range(count):
            for high in range(low + 1, count):
                line = stack.enter_context(_noisy(damage_one_in)) if damage_one_in else None
                ends[low][high], ends[high][low] = line or socket.socketpair()
        nodes = []
        for index, program in enumerate(programs):
            lines = [ends[index][peer] for peer in sorted(ends[index])]
            slow = slow_us[index] if slow_us else 0
            nodes.append(stack.enter_context(start_node(program, index, lines, slow)))
        yield nodes
