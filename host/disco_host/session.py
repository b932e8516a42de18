"""Talks to all nodes of a run at once: greets them, runs inferences, collects what they send.

Every wait has a deadline on a monotonic clock; an error names the node, what was awaited and for
how long, and what to look at next.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from disco_firmware import protocol
from disco_firmware.link import Message
from disco_firmware.protocol import MessageError, Opcode
from disco_firmware.stream_link import StreamError
from disco_host.capture import Collector, InferenceCapture, NodeCapture
from disco_host.failures import NodeError, error_report, greeting_problem, halted, lost_line, silence
from disco_host.node_end import NodeEnd
from disco_host.remote.witnesses import check_faults, with_witnesses
from disco_host.transport import LineClosedError
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from disco_firmware.manifest import Manifest
    from disco_host.boards import NodeLine
    from disco_host.remote.watch import Watch

HELLO_EVERY_S = 0.25
LOOK_EVERY_S = 0.5
"""At the processes of boards on this PC: one that was halted would be told by others, and late."""
HOST_MARGIN_S = 2.0
"""The host waits longer than the nodes among themselves, so that their report comes first."""


@dataclass(frozen=True)
class NodeFacts:
    """What a node says about itself, checked against the bundle."""

    node: int
    board: str
    core: str
    unit: str
    ticks_per_second: int
    clock_hz: int
    resolution_ticks: int
    free_ram_bytes: int
    stack_bytes: int
    """Room that is kept for the stack, 0 where unknown."""


Handler = Callable[[NodeEnd, Message], None]


class Session:
    """A conversation with all nodes of a bundle; a context manager."""

    def __init__(
        self,
        manifest: Manifest,
        lines: Sequence[NodeLine],
        deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        exchange_deadline_s: float | None = None,
        watch: Watch | None = None,
    ) -> None:
        """Takes one line per node; `deadline_s` bounds every single wait.

        `exchange_deadline_s`: of the nodes' waits for each other, where it is another. `watch`: over the agents of
        Linux nodes.
        """
        self._manifest = manifest
        self._deadline_s = deadline_s
        self._exchange_deadline_s = exchange_deadline_s or deadline_s
        self._watch = watch
        self._clock = clock
        self._number = random.randint(1, 255)
        self._hello_at = self._look_at = clock()
        self._ends = [NodeEnd(line, self._number) for line in lines]
        self._selector = selectors.DefaultSelector()
        for end in self._ends:
            self._selector.register(end.line.transport, selectors.EVENT_READ, end)
        if watch is not None:
            self._selector.register(watch, selectors.EVENT_READ)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *unused: object) -> None:
        self._selector.close()

    def greet(self) -> tuple[NodeFacts, ...]:
        """Says hello to all nodes and checks who they are.

        Raises:
            DiscoError: A node does not answer, or is not what the bundle needs at this place.
        """
        facts: dict[int, NodeFacts] = {}

        def take(end: NodeEnd, message: Message) -> None:
            if message.opcode != Opcode.WELCOME:
                return  # an older session's frame that bears our number
            facts[end.node] = self._welcome(end, message.payload)
            end.awaited = None

        with self._witnessed():
            self._await("WELCOME", take, self._deadline_s, self._say_hello)
        return tuple(facts[end.node] for end in self._ends)

    def connect(self) -> None:
        """Lets the nodes greet each other over their lines.

        Raises:
            DiscoError: A node reports that a peer does not answer or is the wrong one.
        """
        payload = protocol.Connect(round(self._exchange_deadline_s * 1000)).pack()

        def take(end: NodeEnd, message: Message) -> None:
            self._expect(end, message, Opcode.CONNECTED)
            end.awaited = None

        for end in self._ends:
            end.link.send(Opcode.CONNECT, payload)
        with self._witnessed():
            self._await("CONNECTED (its peers' answers)", take, self._deadline_s + HOST_MARGIN_S)

    def infer(
        self, inference: int, input_index: int, sample: npt.NDArray[np.int8], *, checksums: bool
    ) -> InferenceCapture:
        """Runs one inference on all nodes.

        Args:
            inference: Its number, rising from 1.
            input_index: Kept in the capture.
            sample: int8 values of the model's input.
            checksums: Ask the nodes for a checksum of every op's output.

        Raises:
            DiscoError: A node fails, dies, is silent or sends what does not fit.
        """
        start = self._clock()
        for end in self._ends:
            end.link.resume(start)
            for part in protocol.InputPart.split(0, sample.tobytes(), end.link.max_payload):
                end.link.send(Opcode.INPUT, part.pack())
        with self._witnessed():
            self._await_acknowledged("acknowledgement of the input")
            nodes, finished = self._run(inference, checksums)
            self._flush()
        return InferenceCapture(inference, input_index, finished - start, nodes)

    def _run(self, inference: int, checksums: bool) -> tuple[tuple[NodeCapture, ...], float]:
        """All nodes' accounts and when the last one came."""
        programs = self._manifest.programs
        collectors = [Collector(self._manifest, program, inference) for program in programs]
        captures: dict[int, NodeCapture] = {}

        def take(end: NodeEnd, message: Message) -> None:
            collector = collectors[end.node]
            if message.opcode == Opcode.OUTPUT:
                collector.output(protocol.OutputPart.unpack(message.payload))
            elif message.opcode == Opcode.OPS:
                collector.ops(protocol.OpRecords.unpack(message.payload))
            elif message.opcode == Opcode.ROUTES:
                collector.routes(protocol.RouteRecords.unpack(message.payload))
            elif message.opcode == Opcode.STAGES:
                collector.stages(protocol.StageRecords.unpack(message.payload))
            elif message.opcode == Opcode.STEPS:
                collector.steps(protocol.StepRecords.unpack(message.payload))
            else:
                self._expect(end, message, Opcode.DONE)
                captures[end.node] = collector.finish(protocol.Done.unpack(message.payload))
                end.awaited = None

        deadline_ms = round(self._exchange_deadline_s * 1000)
        flags = protocol.RUN_CHECKSUMS if checksums else 0
        for end in self._ends:
            end.link.send(Opcode.RUN, protocol.Run(inference, deadline_ms, flags).pack())
        what = f"DONE of inference {inference}"
        finished = self._await(what, take, self._deadline_s + HOST_MARGIN_S)
        return tuple(captures[end.node] for end in self._ends), finished

    # ---- waiting

    def _await(
        self,
        what: str,
        take: Handler,
        deadline_s: float,
        meanwhile: Callable[[float], float] | None = None,
    ) -> float:
        """Serves all lines until no node is awaited any more; returns when that was.

        Every message restarts the deadline of its node. `meanwhile` is called between and says in
        how many seconds it wants to be called again.
        """
        start = self._clock()
        heard = {end.node: start for end in self._ends}
        for end in self._ends:
            end.awaited = what
        while True:
            waiting = [end for end in self._ends if end.awaited is not None]
            now = self._clock()
            if not waiting:
                return now
            for end in waiting:
                if now - heard[end.node] >= deadline_s:
                    raise silence(end, now - heard[end.node])
            pause = min(heard[end.node] for end in waiting) + deadline_s - now
            if meanwhile is not None:
                pause = min(pause, meanwhile(now))
            for end, message in self._serve(pause):
                heard[end.node] = self._clock()
                self._deliver(end, message, take)

    def _await_acknowledged(self, what: str) -> None:
        """Until everything sent was acknowledged; nothing but errors may come meanwhile."""

        def refuse(end: NodeEnd, message: Message) -> None:
            self._expect(end, message, None)

        self._flush()  # a link without acknowledgements is idle from here on
        start = self._clock()
        sent = {end.node: (end.link.statistics.frames_sent, start) for end in self._ends}
        while waiting := [end for end in self._ends if not end.link.idle]:
            now = self._clock()
            for end in waiting:
                end.awaited = what
                frames, since = sent[end.node]
                if end.link.statistics.frames_sent > frames:  # the window moves: it acknowledges
                    sent[end.node] = (end.link.statistics.frames_sent, now)
                elif now - since >= self._deadline_s:
                    raise silence(end, now - since)
            pause = min(sent[end.node][1] for end in waiting) + self._deadline_s - now
            for end, message in self._serve(max(0.0, pause)):
                self._deliver(end, message, refuse)

    def _serve(self, pause: float) -> list[tuple[NodeEnd, Message]]:
        """Writes, sleeps until a line or a timer is ready, reads."""
        now = self._clock()
        if any(end.line.process is not None for end in self._ends):
            pause = min(pause, self._look_at + LOOK_EVERY_S - now)
        for end in self._ends:
            full = self._write(end, now)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if full else 0)
            if self._selector.get_key(end.line.transport).events != events:
                self._selector.modify(end.line.transport, events, end)
            timeout = end.timeout(now)
            if timeout is not None:
                pause = min(pause, timeout)
        messages = []
        for key, events in self._selector.select(max(0.0, pause)):
            end = key.data
            if end is not None and events & selectors.EVENT_READ:
                messages += [(end, message) for message in self._read(end)]
        if self._watch is not None:
            check_faults(self._watch, self._ends)
        self._look_at_processes()
        return messages

    def _look_at_processes(self) -> None:
        """Now and then: has a board's process been halted?"""
        now = self._clock()
        if now < self._look_at + LOOK_EVERY_S:
            return
        self._look_at = now
        for end in self._ends:
            if end.line.process is not None and end.line.process.halted():
                raise halted(end)

    @contextlib.contextmanager
    def _witnessed(self) -> Iterator[None]:
        """Where agents are watched, a failure is told with what they and the other nodes say about it."""
        try:
            yield
        except NodeError as error:
            if self._watch is None:
                raise
            raise with_witnesses(self._manifest, error, self._watch, self._ends) from error

    def _read(self, end: NodeEnd) -> list[Message]:
        try:
            return end.read(self._clock())
        except (LineClosedError, StreamError) as error:
            raise lost_line(end, str(error)) from error

    def _write(self, end: NodeEnd, now: float) -> bool:
        try:
            return end.write(now)
        except LineClosedError as error:
            raise lost_line(end, str(error)) from error

    def _flush(self) -> None:
        """Writes what the links have and the lines take."""
        for end in self._ends:
            self._write(end, self._clock())

    # ---- messages

    def _deliver(self, end: NodeEnd, message: Message, take: Handler) -> None:
        try:
            if message.opcode == Opcode.ERROR:
                report = protocol.ErrorReport.unpack(message.payload)
                raise error_report(self._manifest, end, report)
            if message.opcode == Opcode.WELCOME and end.awaited != "WELCOME":
                return  # the answer to a repeated HELLO
            take(end, message)
        except MessageError as error:
            raise DiscoError(
                f"node {end.node} ({end.line.transport.name}) sent a malformed message, {error}, "
                f"while {end.awaited} was awaited: build and flash it again with disco-flash"
            ) from error

    def _expect(self, end: NodeEnd, message: Message, opcode: Opcode | None) -> None:
        if message.opcode != opcode:
            known = message.opcode in list(Opcode)
            name = Opcode(message.opcode).name if known else f"opcode {message.opcode:#04x}"
            raise DiscoError(
                f"node {end.node} ({end.line.transport.name}) sent {name} while {end.awaited} was "
                "awaited: build and flash it again with disco-flash"
            )

    def _say_hello(self, now: float) -> float:
        """Sends HELLO now and then to those that have not answered."""
        if now >= self._hello_at:
            self._hello_at = now + HELLO_EVERY_S
            for end in self._ends:
                if end.awaited is not None:
                    end.link.send_control(Opcode.HELLO, protocol.Hello(self._number).pack())
        return self._hello_at - now

    def _welcome(self, end: NodeEnd, payload: bytes) -> NodeFacts:
        # The version comes first in every version; the rest may look different.
        version = int.from_bytes(payload[:2], "little")
        if version != protocol.PROTOCOL_VERSION:
            raise DiscoError(
                f"node {end.node} ({end.line.transport.name}) speaks protocol version {version}, this "
                f"program speaks {protocol.PROTOCOL_VERSION}: flash it again with this version's "
                "disco-flash"
            )
        welcome = protocol.Welcome.unpack(payload)
        problem = greeting_problem(self._manifest, end, welcome)
        if problem is not None:
            raise DiscoError(f"node {end.node} ({end.line.transport.name}) {problem}")
        return NodeFacts(
            end.node,
            welcome.board,
            welcome.core,
            protocol.Unit(welcome.unit).label,
            welcome.ticks_per_second,
            welcome.clock_hz,
            welcome.resolution_ticks,
            welcome.free_ram_bytes,
            welcome.stack_bytes,
        )
