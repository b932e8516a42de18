"""A node's lines to its peers: what is sent and received is known ahead of a run, frame by frame.

One thread does all of it. A send hands the bytes to the kernel at once, which sends them while the next stage is
computed; what the kernel does not take goes out during the waits. A frame is received straight into the buffer of its
exchange. There is no leave to send: a node that is not in the run yet leaves the bytes in its socket.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from disco_firmware import protocol
from disco_firmware.protocol import Opcode, Status
from disco_firmware.stream_link import FRAME_HEADER
from disco_host.node.state import Doing, NodeState
from disco_targets.errors import DiscoError

FRAME_DATA_BYTES = protocol.STREAM_MAX_PAYLOAD - protocol.Channels.HEADER_BYTES
FAREWELL_S = 0.3
"""How long after a peer the host may close its line without the peer being called lost."""
_MOST_VECTORS = 512
"""Of one call (the kernel takes 1024)."""
_BROKEN = select.POLLRDHUP | select.POLLHUP | select.POLLERR | select.POLLNVAL


class ReportedError(DiscoError):
    """A run or a greeting failed: what the host is told."""

    exit_code = 3
    """So that the agent knows that the host was told."""

    def __init__(self, report: protocol.ErrorReport) -> None:
        """`report`: goes to the host as ERROR."""
        super().__init__(
            f"{Status(report.status).name}: op {report.op}, exchange {report.exchange}, node {report.peer}, "
            f"{report.missing_bytes} bytes missing after {report.waited_ms} ms: see the host's message"
        )
        self.report = report


class HostGone(Exception):  # noqa: N818 - the usual end of a job, no error
    """The host has closed its line."""


@dataclass(frozen=True)
class Transfer:
    """The channels of one exchange from one node to another."""

    exchange: int
    data: memoryview
    """Where they are gathered or received: bytes [h][w][channels]."""


@dataclass(frozen=True)
class Place:
    """Where in a run something is awaited."""

    op: int
    exchange: int


@dataclass(frozen=True)
class _Frame:
    exchange: int
    offset: int
    data: memoryview


def _frames(transfers: Sequence[Transfer]) -> tuple[_Frame, ...]:
    return tuple(
        _Frame(transfer.exchange, at, transfer.data[at : at + FRAME_DATA_BYTES])
        for transfer in transfers
        for at in range(0, len(transfer.data), FRAME_DATA_BYTES)
    )


class PeerLine:
    """The line to one peer."""

    def __init__(
        self, node: int, peer: int, line: socket.socket, sends: Sequence[Transfer], receives: Sequence[Transfer]
    ) -> None:
        """Sends and receives are in the order of a run, the same at both ends."""
        line.setblocking(False)
        self.peer = peer
        self.line = line
        self._node = node
        self._outbox: deque[memoryview] = deque()
        self._incoming = _frames(receives)
        self._outgoing = {transfer.exchange: _frames([transfer]) for transfer in sends}
        ends = {frame.exchange: place + 1 for place, frame in enumerate(self._incoming)}
        self.goals = ends
        """By exchange, how many frames of a run must have come."""
        self._header = bytearray(FRAME_HEADER.size + protocol.Channels.HEADER_BYTES)
        self._view = memoryview(self._header)
        self._next = 0
        self._got = 0  # bytes of frame _next, header included
        self._session = self._inference = 0

    def begin(self, session: int, inference: int) -> None:
        """A run begins."""
        self._session, self._inference = session, inference
        self._next = self._got = 0

    # ---- sending

    @property
    def unsent(self) -> bool:
        """Whether the kernel has not taken all yet."""
        return bool(self._outbox)

    def send(self, exchange: int) -> int:
        """Sends what was gathered for an exchange; returns the number of frames."""
        frames = self._outgoing[exchange]
        for frame in frames:
            self._outbox.append(memoryview(self._packed(frame, self._node, self.peer)))
            self._outbox.append(frame.data)
        self.push()
        return len(frames)

    def greet(self, greeting: bytes, session: int) -> None:
        """Sends PEER_HELLO."""
        header = FRAME_HEADER.pack(len(greeting), Opcode.PEER_HELLO, self._node, self.peer, session)
        self._outbox.append(memoryview(header + greeting))
        self.push()

    def push(self) -> None:
        """Hands over what the kernel takes now. OSError where the line is broken."""
        while self._outbox:
            try:
                taken = self.line.sendmsg(list(self._outbox)[:_MOST_VECTORS])
            except BlockingIOError:
                return
            while taken:
                first = self._outbox[0]
                if taken < len(first):
                    self._outbox[0] = first[taken:]
                    return  # it did not take all: it is full
                taken -= len(first)
                self._outbox.popleft()

    # ---- receiving

    def receive(self, goal: int) -> bool:
        """Takes what has come of the frames before `goal`; True when that is all of them.

        Raises:
            ConnectionError: The line is broken.
            ReportedError: Something else than the next frame came.
        """
        while self._next < goal:
            frame = self._incoming[self._next]
            head = len(self._header)
            try:
                if self._got < head:
                    taken = self.line.recvmsg_into([self._view[self._got :], frame.data])[0]
                else:
                    taken = self.line.recv_into(frame.data[self._got - head :])
            except BlockingIOError:
                return False
            if not taken:
                raise ConnectionError("end of stream")
            before, self._got = self._got, self._got + taken
            if before < head <= self._got and self._header != self._packed(frame, self.peer, self._node):
                raise ReportedError(failure(Status.ERR_PROTOCOL, peer=self.peer, exchange=frame.exchange))
            if self._got == head + len(frame.data):
                self._next, self._got = self._next + 1, 0
        return True

    def missing(self, goal: int) -> int:
        """How many bytes of channels before `goal` have not come."""
        begun = max(0, self._got - len(self._header))
        return sum(len(frame.data) for frame in self._incoming[self._next : goal]) - begun

    def read_greeting(self, pending: bytearray) -> bytes | None:
        """PEER_HELLO's payload once all of it has come, kept in `pending` till then; ConnectionError as above."""
        size = FRAME_HEADER.size + protocol.PeerHello.layout.size
        try:
            data = self.line.recv(size - len(pending))
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionError("end of stream")
        pending += data
        if len(pending) < size:
            return None
        length, opcode, *_ = FRAME_HEADER.unpack_from(pending)
        if (length, opcode) != (protocol.PeerHello.layout.size, Opcode.PEER_HELLO):
            raise ReportedError(failure(Status.ERR_PROTOCOL, peer=self.peer))
        return bytes(pending[FRAME_HEADER.size :])

    def _packed(self, frame: _Frame, source: int, destination: int) -> bytes:
        payload = protocol.Channels.HEADER_BYTES + len(frame.data)
        header = FRAME_HEADER.pack(payload, Opcode.CHANNELS, source, destination, self._session)
        return header + protocol.Channels.header(self._inference, frame.exchange, frame.offset)


class Mesh:
    """All lines to peers, and the waits on them."""

    def __init__(self, lines: Mapping[int, PeerLine], host: socket.socket, state: NodeState) -> None:
        """Watches `host` too: the end of its line ends every wait."""
        self.lines = lines
        self._host = host
        self._state = state

    def send(self, peer: int, place: Place) -> int:
        """Sends an exchange to a peer; see PeerLine.send."""
        line = self.lines[peer]
        try:
            return line.send(place.exchange)
        except OSError as error:
            raise self._lost(line, place, {}, time.monotonic()) from error

    def wait(self, goals: Mapping[int, int], place: Place, deadline_s: float) -> None:
        """Until of every peer in `goals` so many frames have come.

        Raises:
            ReportedError: The deadline passed, a line broke, or something else came.
            HostGone: The host gave up.
        """
        pending = dict(goals)
        start = time.monotonic()
        self._take(pending, place, start)
        if not pending:
            return
        peer = next(iter(pending))
        self._state.set(Doing.WAITING, op=place.op, exchange=place.exchange, peer=peer)
        while pending:
            self._poll(dict.fromkeys(pending, select.POLLIN), pending, place, start, deadline_s)
            self._take(pending, place, start)

    def idle(self) -> None:
        """Until the host sends something or closes its line; ReportedError when a peer is lost meanwhile."""
        poll = select.poll()
        poll.register(self._host, select.POLLIN)
        for line in self.lines.values():
            poll.register(line.line, select.POLLRDHUP)
        ready = dict(poll.poll())
        if self._host.fileno() in ready:
            return
        lost = next(peer for peer, line in self.lines.items() if line.line.fileno() in ready)
        farewell = select.poll()  # at the end of a job all lines close, in any order
        farewell.register(self._host, select.POLLRDHUP)
        if farewell.poll(FAREWELL_S * 1000):
            raise HostGone
        raise ReportedError(failure(Status.ERR_LINE, peer=lost))

    def drain(self, deadline_s: float) -> None:
        """Until the kernel has taken everything; raises as `wait`."""
        start = time.monotonic()
        place = Place(protocol.NO_INDEX, protocol.NO_INDEX)
        while unsent := [line.peer for line in self.lines.values() if line.unsent]:
            self._state.set(Doing.SENDING, peer=unsent[0])
            self._poll({}, {}, place, start, deadline_s)

    def greet(self, hello: protocol.PeerHello, session: int, deadline_s: float) -> None:
        """Exchanges greetings with all peers; raises as `wait`, or where a peer is not what it should be."""
        start = time.monotonic()
        place = Place(protocol.NO_INDEX, protocol.NO_INDEX)
        for line in self.lines.values():
            line.greet(hello.pack(), session)
        pending = {peer: bytearray() for peer in self.lines}
        while pending:
            waiting = next(iter(pending))
            self._state.set(Doing.CONNECTING, peer=waiting)
            self._poll(dict.fromkeys(pending, select.POLLIN), {waiting: 0}, place, start, deadline_s)
            for peer, begun in list(pending.items()):
                try:
                    greeting = self.lines[peer].read_greeting(begun)
                except OSError as error:
                    raise self._lost(self.lines[peer], place, {}, start) from error
                if greeting is not None:
                    _check_greeting(protocol.PeerHello.unpack(greeting), hello, peer)
                    del pending[peer]

    def _take(self, pending: dict[int, int], place: Place, start: float) -> None:
        for peer, goal in list(pending.items()):
            line = self.lines[peer]
            try:
                if line.receive(goal):
                    del pending[peer]
            except OSError as error:
                raise self._lost(line, place, pending, start) from error

    def _poll(
        self, wanted: Mapping[int, int], pending: Mapping[int, int], place: Place, start: float, deadline_s: float
    ) -> None:
        """Sleeps until a line is ready, and writes to those that take more."""
        poll = select.poll()
        poll.register(self._host, select.POLLRDHUP)
        for peer, line in self.lines.items():
            events = wanted.get(peer, select.POLLRDHUP) | (select.POLLOUT if line.unsent else 0)
            poll.register(line.line, events)
        left = start + deadline_s - time.monotonic()
        ready = dict(poll.poll(max(0.0, left) * 1000))
        if not ready:
            late = next(iter(pending or {peer: 0 for peer, line in self.lines.items() if line.unsent}))
            raise ReportedError(self._report(Status.ERR_TIMEOUT, late, place, pending, start))
        if ready.get(self._host.fileno(), 0) & _BROKEN:
            raise HostGone
        for peer, line in self.lines.items():
            events = ready.get(line.line.fileno(), 0)
            if events & select.POLLOUT:
                try:
                    line.push()
                except OSError as error:
                    raise self._lost(line, place, pending, start) from error
            still_to_read = events & select.POLLIN and peer in wanted
            if events & _BROKEN and not still_to_read:
                raise self._lost(line, place, pending, start)

    def _lost(self, line: PeerLine, place: Place, pending: Mapping[int, int], start: float) -> ReportedError:
        return ReportedError(self._report(Status.ERR_LINE, line.peer, place, pending, start))

    def _report(
        self, status: Status, peer: int, place: Place, pending: Mapping[int, int], start: float
    ) -> protocol.ErrorReport:
        missing = self.lines[peer].missing(pending.get(peer, 0)) if peer in pending else 0
        waited = round((time.monotonic() - start) * 1000)
        return protocol.ErrorReport(status, place.op, place.exchange, peer, max(0, missing), waited)


def failure(
    status: Status, *, op: int = protocol.NO_INDEX, exchange: int = protocol.NO_INDEX, peer: int = protocol.NO_PEER
) -> protocol.ErrorReport:
    """A report of something that nobody waited for."""
    return protocol.ErrorReport(status, op, exchange, peer, 0, 0)


def _check_greeting(theirs: protocol.PeerHello, ours: protocol.PeerHello, peer: int) -> None:
    if theirs.version != ours.version:
        raise ReportedError(failure(Status.ERR_VERSION, peer=peer))
    if theirs.bundle_id != ours.bundle_id or theirs.node_count != ours.node_count:
        raise ReportedError(failure(Status.ERR_BUNDLE, peer=peer))
    if theirs.node != peer:
        raise ReportedError(failure(Status.ERR_PEER, peer=peer))
