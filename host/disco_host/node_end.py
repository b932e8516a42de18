"""The host's end of one node's line: its link, and the bytes that the line has not taken yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from disco_firmware import protocol

if TYPE_CHECKING:
    from disco_firmware.link import Message
    from disco_host.boards import NodeLine

KEPT_BYTES = 16
"""How many of the first bytes are kept, to be shown when they are no frame."""


class NodeEnd:
    """The host's end of one node's line."""

    def __init__(self, line: NodeLine, session: int) -> None:
        """A fresh link in the given session."""
        self.line = line
        self.link = line.link(protocol.ADDRESS_HOST, line.node)
        self.link.reset(session)
        self.awaited: str | None = None
        """What is still to come in the current step; None: nothing."""
        self.bytes_received = 0
        self.first_bytes = b""
        self._outbox = bytearray()

    @property
    def node(self) -> int:
        """Its index."""
        return self.line.node

    def read(self, now: float) -> list[Message]:
        """Messages that are complete by now."""
        data = self.line.transport.read()
        self.first_bytes = (self.first_bytes + data)[:KEPT_BYTES]
        self.bytes_received += len(data)
        return self.link.receive(data, now)

    def write(self, now: float) -> bool:
        """Writes what the link has and the line takes; True when some is left."""
        if not self._outbox:
            self._outbox += self.link.bytes_to_send(now)
        if self._outbox:
            del self._outbox[: self.line.transport.write(bytes(self._outbox))]
        if self._outbox:
            self.link.resume(now)
        return bool(self._outbox)

    def timeout(self, now: float) -> float | None:
        """Seconds until the link wants to write; None: never, or the line is full anyway."""
        return None if self._outbox else self.link.next_timeout(now)
