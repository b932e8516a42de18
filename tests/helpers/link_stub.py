"""Boards that run tests/c/link_stub.c instead of a model, and the host's end of their lines."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from pathlib import Path

from disco_firmware.build import build_node
from disco_firmware.link import Link, Message
from disco_firmware.project import copy_firmware_sources, write_node_project
from disco_firmware.protocol import ADDRESS_HOST, Hello, Opcode
from disco_targets.board import load_board

ECHO, BLAST, COUNT, COMPUTE, STACK = 0x70, 0x71, 0x72, 0x73, 0x74
STUB = Path(__file__).parents[1] / "c" / "link_stub.c"
DEADLINE_S = 60.0
HELLO_AGAIN_S = 0.5


def build_stub(folder: Path, target: str, *, nodes: int = 2, port: str = "board", sanitize: bool = False) -> list[Path]:
    """Builds the stub for every node of a bundle without a model."""
    board = load_board(target)
    copy_firmware_sources([board], folder)
    (folder / "firmware" / "bsp" / "common" / "main.c").write_bytes(STUB.read_bytes())
    images = []
    for node in range(nodes):
        source = folder / f"node{node}"
        source.mkdir()
        write_node_project(board, node, nodes, source)
        (source / "disco_model.c").write_text("typedef int no_model;\n")
        images.append(build_node(folder, node, port=port, sanitize=sanitize).path)
    return images


class StubHost:
    """Talks to one stub over a line with a descriptor; every wait has a deadline."""

    def __init__(self, node: int, descriptor: int, read: Callable[[], bytes], write: Callable[[bytes], int]) -> None:
        self.link = Link(ADDRESS_HOST, node)
        self._descriptor, self._read, self._write = descriptor, read, write
        self._outgoing = b""
        self._messages: list[Message] = []

    def greet(self, session: int = 7) -> Message:
        """HELLO, again and again, until WELCOME comes. What an earlier session brought is forgotten."""
        self.link.reset(session)
        self._messages.clear()
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            self.link.send_control(Opcode.HELLO, Hello(session).pack())
            again = time.monotonic() + HELLO_AGAIN_S
            while time.monotonic() < again:
                self.pump(again - time.monotonic())
                for message in self._messages:
                    if message.opcode == Opcode.WELCOME:
                        self._messages.remove(message)
                        return message
        raise AssertionError("no WELCOME")

    def send(self, opcode: int, payload: bytes = b"") -> None:
        """Queues a command and writes what the line takes."""
        self.link.send(opcode, payload)
        self.pump(0)

    def wait(self, opcode: int) -> bytes:
        """The payload of the next message of this kind."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            for message in self._messages:
                if message.opcode == opcode:
                    self._messages.remove(message)
                    return message.payload
            self.pump(end - time.monotonic())
        raise AssertionError(f"no message {opcode:#x} within {DEADLINE_S} s")

    def ask(self, opcode: int, payload: bytes = b"") -> bytes:
        """A command and its answer."""
        self.send(opcode, payload)
        return self.wait(opcode)

    def pump(self, patience_s: float) -> None:
        """Moves bytes both ways, after waiting for some at most so long."""
        self._outgoing += self.link.bytes_to_send(time.monotonic())
        if self._outgoing:
            self._outgoing = self._outgoing[self._write(self._outgoing) :]
        timeout = self.link.next_timeout(time.monotonic())
        patience = max(0.0, patience_s if timeout is None else min(timeout, patience_s))
        writing = [self._descriptor] if self._outgoing else []
        if select.select([self._descriptor], writing, [], patience)[0]:
            self._messages += self.link.receive(self._read(), time.monotonic())
            self._outgoing += self.link.bytes_to_send(time.monotonic())
