"""The reliable link of runtime/src/link.c without I/O or clock: the caller moves bytes.

Typical use with a non-blocking line::

    for message in link.receive(data, now):
        ...
    line.write(link.bytes_to_send(now))
    selector.select(link.next_timeout(now))

Times are seconds of any monotonic clock. Unlike the C side the queue of messages to send has no
limit; at most `LINK_WINDOW` of them are under way.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from disco_firmware.framing import Frame, FrameSplitter, encode_frame
from disco_firmware.protocol import (
    ADDRESS_ANY,
    ADDRESS_HOST,
    LINK_WINDOW,
    MAX_PAYLOAD,
    UNSEQUENCED,
    Opcode,
)

TIMEOUT_FIRST_S = 0.2
"""Until the first retransmission; doubled up to `TIMEOUT_LAST_S` while nothing is acknowledged."""
TIMEOUT_LAST_S = 2.0
_MODULUS = 256


class Message(NamedTuple):
    """A message as delivered. WELCOME and PEER_HELLO come from any `source`."""

    opcode: int
    payload: bytes
    source: int


@dataclass
class LinkStatistics:
    """Counts since the session began, as in disco_link_stats_t."""

    frames_sent: int = 0
    """Sequenced frames, first transmissions only."""
    bytes_sent: int = 0
    """Payload bytes of those frames."""
    retransmissions: int = 0
    frames_received: int = 0
    frames_damaged: int = 0


@dataclass
class _Outgoing:
    frame: Frame
    written: bool = False


def _distance(start: int, end: int) -> int:
    return (end - start) % _MODULUS


class Link:
    """One end of a link: `self_address` here, `peer_address` there."""

    max_payload = MAX_PAYLOAD

    def __init__(self, self_address: int, peer_address: int) -> None:
        self._self = self_address
        self._peer = peer_address
        self.reset(0)

    def reset(self, session: int) -> None:
        """Starts a session (1 to 255): everything queued, numbered and counted before is forgotten.

        In session 0 a node takes nothing but HELLO.
        """
        if not 0 <= session < _MODULUS:
            raise ValueError(f"session {session} is no byte")
        self.session = session
        self.statistics = LinkStatistics()
        self._splitter = FrameSplitter()
        self._queue: deque[tuple[int, bytes]] = deque()
        self._window: deque[_Outgoing] = deque()  # from send_base on
        self._control: list[bytes] = []
        self._send_base = 0
        self._cursor = 0  # frames of the window before it need not be written (again)
        self._timeout_s = TIMEOUT_FIRST_S
        self._timer: float | None = None
        self._receive_next = 0
        self._gap_highest = 0
        self._gap_open = False
        self._damage_reported = False
        self._ack_due = False
        self._nak_due = False

    @property
    def idle(self) -> bool:
        """True when every sequenced message was acknowledged."""
        return not self._window and not self._queue

    # ---- sending

    def send(self, opcode: int, payload: bytes = b"") -> None:
        """Queues a sequenced message of at most `MAX_PAYLOAD` bytes."""
        if opcode in UNSEQUENCED:
            raise ValueError(f"opcode {opcode:#x} is unsequenced")
        if len(payload) > MAX_PAYLOAD:
            raise ValueError(f"payload of {len(payload)} bytes, at most {MAX_PAYLOAD} fit")
        self._queue.append((opcode, bytes(payload)))

    def send_control(self, opcode: int, payload: bytes = b"") -> None:
        """Queues an unsequenced message (HELLO, WELCOME) before everything else.

        HELLO goes to whichever node sits on the line. A delimiter before it ends any garbage.
        """
        destination = ADDRESS_ANY if opcode == Opcode.HELLO else self._peer
        frame = Frame(opcode, self._self, destination, self.session, 0, bytes(payload))
        self._control.append(b"\0" + encode_frame(frame))

    def bytes_to_send(self, now: float) -> bytes:
        """What is to be written now; all of it, in this order. Empty when there is nothing."""
        self._run_timer(now)
        parts, self._control = self._control, []
        self._fill_window()
        if self._nak_due or (self._ack_due and self._cursor == len(self._window)):
            parts.append(self._acknowledgement())
        for outgoing in list(self._window)[self._cursor :]:
            parts.append(encode_frame(outgoing.frame._replace(expected=self._receive_next)))
            self._count(outgoing)
            self._ack_due = False
        self._cursor = len(self._window)
        if self._window and self._timer is None:
            self._timer = now
        return b"".join(parts)

    def next_timeout(self, now: float) -> float | None:
        """Seconds until `bytes_to_send` has something though nothing came in; None: never."""
        if self._control or self._ack_due or self._nak_due or self._cursor < len(self._window):
            return 0.0
        if self._queue and len(self._window) < LINK_WINDOW:
            return 0.0
        if self._timer is None:
            return None
        return max(0.0, self._timer + self._timeout_s - now)

    def resume(self, now: float) -> None:
        """Restarts the retransmission timer: after a pause, or while the line is full."""
        if self._timer is not None:
            self._timer = now

    def _run_timer(self, now: float) -> None:
        if not self._window:
            self._timer = None
        elif self._timer is not None and now - self._timer >= self._timeout_s:
            self._timeout_s = min(2 * self._timeout_s, TIMEOUT_LAST_S)
            self._timer = now
            self._cursor = 0

    def _acknowledgement(self) -> bytes:
        opcode = Opcode.NAK if self._nak_due else Opcode.ACK
        self._ack_due = self._nak_due = False
        return encode_frame(Frame(opcode, self._self, self._peer, self.session, 0, expected=self._receive_next))

    def _fill_window(self) -> None:
        while self._queue and len(self._window) < LINK_WINDOW and self.session:
            opcode, payload = self._queue.popleft()
            sequence = (self._send_base + len(self._window)) % _MODULUS
            self._window.append(_Outgoing(Frame(opcode, self._self, self._peer, self.session, sequence, payload)))

    def _count(self, outgoing: _Outgoing) -> None:
        if outgoing.written:
            self.statistics.retransmissions += 1
            return
        outgoing.written = True
        self.statistics.frames_sent += 1
        self.statistics.bytes_sent += len(outgoing.frame.payload)

    # ---- receiving

    def receive(self, data: bytes, now: float) -> list[Message]:
        """Takes any bytes from the line; returns the messages they complete, in order, each once.

        A HELLO is returned whatever its session: the node then calls `reset`.
        """
        messages = []
        for frame in self._splitter.feed(data):
            if frame is None:
                self._take_damaged()
            elif message := self._take(frame, now):
                messages.append(message)
        return messages

    def _take(self, frame: Frame, now: float) -> Message | None:
        if frame.opcode == Opcode.HELLO:
            return _message(frame) if self._is_hello(frame) else None
        if self.session == 0 or frame.session != self.session:
            return None  # left over from another session
        if not self._address_fits(frame):
            self.statistics.frames_damaged += 1
            return None
        self._damage_reported = False
        if frame.opcode == Opcode.WELCOME:
            return _message(frame)
        self._take_acknowledgement(frame, now)
        return None if frame.opcode in UNSEQUENCED else self._take_sequenced(frame)

    def _is_hello(self, frame: Frame) -> bool:
        from_host = self._peer == ADDRESS_HOST and frame.source == ADDRESS_HOST
        return from_host and frame.destination in (self._self, ADDRESS_ANY)

    def _address_fits(self, frame: Frame) -> bool:
        # A greeting is taken from whoever sits on the line, so that a wrong cable can be reported.
        if frame.opcode == Opcode.PEER_HELLO:
            return True
        if frame.opcode == Opcode.WELCOME:
            return self._self == ADDRESS_HOST and frame.destination == self._self
        return frame.source == self._peer and frame.destination == self._self

    def _take_sequenced(self, frame: Frame) -> Message | None:
        ahead = _distance(self._receive_next, frame.sequence)
        if ahead == 0:
            self._receive_next = (self._receive_next + 1) % _MODULUS
            self.statistics.frames_received += 1
            self._ack_due = True
            self._gap_open = False
            return _message(frame)
        if ahead < LINK_WINDOW:
            self._take_beyond_gap(ahead, frame.sequence)
        elif _distance(frame.sequence, self._receive_next) <= LINK_WINDOW:
            self._ack_due = True  # a repeated frame: our ACK was lost
        return None

    def _take_beyond_gap(self, ahead: int, sequence: int) -> None:
        seen = _distance(self._receive_next, self._gap_highest)
        if not self._gap_open or ahead <= seen:  # new, or the sender started over and it is missing again
            self._nak_due = True
            self._gap_open = True
        self._gap_highest = sequence

    def _take_damaged(self) -> None:
        if self.session == 0:
            return  # before a session there is nothing to ask for
        self.statistics.frames_damaged += 1
        if not self._damage_reported:
            self._damage_reported = True
            self._gap_open = True
            self._gap_highest = self._receive_next
            self._nak_due = True

    def _take_acknowledgement(self, frame: Frame, now: float) -> None:
        progress = _distance(self._send_base, frame.expected)
        written = sum(outgoing.written for outgoing in self._window)
        if progress > written:
            return  # older than what we know, or nonsense
        if progress > 0:
            for _ in range(progress):
                self._window.popleft()
            self._send_base = frame.expected
            self._cursor = max(0, self._cursor - progress)
            self._timeout_s = TIMEOUT_FIRST_S
            self._timer = now if self._window else None
        if frame.opcode == Opcode.NAK:
            self._cursor = 0
            self._ack_due = True  # what came damaged may have been our ACK
            self.resume(now)


def _message(frame: Frame) -> Message:
    return Message(frame.opcode, frame.payload, frame.source)
