"""The link of runtime/src/stream_link.c, over a stream that loses nothing (TCP): frames with their length in front.

`StreamLink` has the interface of `disco_firmware.link.Link`, so that a conversation does not care which of the two it
has. There is nothing to acknowledge and no timer. A frame that does not make sense cannot be skipped: it ends the
conversation by a `StreamError`.
"""

from __future__ import annotations

import struct
from collections import deque

from disco_firmware.link import LinkStatistics, Message
from disco_firmware.protocol import ADDRESS_ANY, ADDRESS_HOST, STREAM_MAX_PAYLOAD, UNSEQUENCED, Opcode

FRAME_HEADER = struct.Struct("<IBBBB")
"""Payload bytes, opcode, source, destination, session."""
_SESSIONS = 256


class StreamError(ValueError):
    """What came is no frame of this line; nothing after it can be understood either."""


class StreamLink:
    """One end of a link: `self_address` here, `peer_address` there."""

    max_payload = STREAM_MAX_PAYLOAD

    def __init__(self, self_address: int, peer_address: int) -> None:
        self._self = self_address
        self._peer = peer_address
        self.reset(0)

    def reset(self, session: int) -> None:
        """Starts a session (1 to 255): everything queued and counted before is forgotten.

        In session 0 a node takes nothing but HELLO.
        """
        if not 0 <= session < _SESSIONS:
            raise ValueError(f"session {session} is no byte")
        self.session = session
        self.statistics = LinkStatistics()
        self._queue: deque[bytes] = deque()
        self._control: list[bytes] = []
        self._pending = bytearray()

    @property
    def idle(self) -> bool:
        """True when every message was handed out by `bytes_to_send`."""
        return not self._queue and not self._control

    def send(self, opcode: int, payload: bytes = b"") -> None:
        """Queues a message of at most `max_payload` bytes."""
        if opcode in UNSEQUENCED:
            raise ValueError(f"opcode {opcode:#x} is no message in order")
        self._queue.append(self._frame(opcode, self._peer, payload))
        self.statistics.frames_sent += 1
        self.statistics.bytes_sent += len(payload)

    def send_control(self, opcode: int, payload: bytes = b"") -> None:
        """Queues HELLO (to whichever node it is) or WELCOME before everything else."""
        self._control.append(self._frame(opcode, ADDRESS_ANY if opcode == Opcode.HELLO else self._peer, payload))

    def bytes_to_send(self, now: float) -> bytes:  # noqa: ARG002
        """What is to be written now; all of it, in this order. Empty when there is nothing."""
        parts = [*self._control, *self._queue]
        self._control.clear()
        self._queue.clear()
        return b"".join(parts)

    def next_timeout(self, now: float) -> float | None:  # noqa: ARG002
        """0 when `bytes_to_send` has something, else None: there is no timer."""
        return None if self.idle else 0.0

    def resume(self, now: float) -> None:
        """Nothing: there is no timer."""

    def receive(self, data: bytes | memoryview, now: float) -> list[Message]:  # noqa: ARG002
        """Takes any bytes from the stream; returns the messages they complete, in order.

        A HELLO is returned whatever its session: the node then calls `reset`.

        Raises:
            StreamError: A frame that is too long, or from or to somebody else.
        """
        self._pending += data
        messages = []
        at = 0
        while len(self._pending) - at >= FRAME_HEADER.size:
            length, opcode, source, destination, session = FRAME_HEADER.unpack_from(self._pending, at)
            self._check(length, opcode, source, destination)
            end = at + FRAME_HEADER.size + length
            if end > len(self._pending):
                break
            if opcode == Opcode.HELLO or (session == self.session != 0):  # else left over from another session
                messages.append(Message(opcode, bytes(self._pending[at + FRAME_HEADER.size : end]), source))
                self.statistics.frames_received += 1
            at = end
        del self._pending[:at]
        return messages

    def _frame(self, opcode: int, destination: int, payload: bytes) -> bytes:
        if len(payload) > self.max_payload:
            raise ValueError(f"payload of {len(payload)} bytes, at most {self.max_payload} fit")
        return FRAME_HEADER.pack(len(payload), opcode, self._self, destination, self.session) + payload

    def _check(self, length: int, opcode: int, source: int, destination: int) -> None:
        """Before anything is kept for the payload."""
        if length > self.max_payload:
            raise StreamError(f"a frame of {length} bytes came, at most {self.max_payload} are possible")
        if not self._address_fits(opcode, source, destination):
            raise StreamError(f"a frame (opcode {opcode:#04x}) from {source} to {destination} came on this line")

    def _address_fits(self, opcode: int, source: int, destination: int) -> bool:
        # A greeting is taken from whoever sits on the line, so that a wrong connection can be reported.
        if opcode == Opcode.HELLO:
            return self._peer == source == ADDRESS_HOST and destination in (self._self, ADDRESS_ANY)
        if opcode == Opcode.PEER_HELLO:
            return True
        if opcode == Opcode.WELCOME:
            return self._self == ADDRESS_HOST == destination
        return source == self._peer and destination == self._self
