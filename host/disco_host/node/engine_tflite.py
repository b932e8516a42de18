"""A node in Python: TFLite computes its stages, sockets carry host line and exchanges.

It speaks the protocol of the firmware over `StreamLink`. What a stage takes is recorded as it is (STAGES); OPS has one
record per op as well, where the op with most MACs of a stage stands for the whole stage and the others for nothing:
TFLite computes a stage as one.
"""

from __future__ import annotations

import contextlib
import platform
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from disco_firmware import protocol
from disco_firmware.link import Message
from disco_firmware.protocol import ADDRESS_HOST, Opcode, Status
from disco_firmware.stream_link import StreamError, StreamLink
from disco_host.node.peers import HostGone, Mesh, PeerLine, Place, ReportedError, Transfer, failure
from disco_host.node.program import NodeSlice, Stage, StagedProgram, sends_in_order
from disco_host.node.state import Doing, NodeState
from disco_targets.errors import DiscoError

BOARD = "linux"
READ_BYTES = 1 << 16
HOST_TIMEOUT_S = 10.0
"""How long the host may leave answers unread."""
RECORDS_PER_MESSAGE = 1000


def serve(slice_: NodeSlice, host: socket.socket, peers: Mapping[int, socket.socket], state: NodeState) -> None:
    """Serves the host until it closes its line. The sockets stay the caller's to close.

    Args:
        slice_: What to run.
        host: The line to the host.
        peers: The line to every other node.
        state: Is told what the node does.

    Raises:
        ReportedError: A peer is gone, silent or wrong; the host was told by ERROR.
        DiscoError: The slice cannot be run, or the host sent what does not belong.
    """
    Engine(slice_, host, peers, state).serve()


@dataclass
class _Account:
    """What is reported of one run."""

    ops: list[protocol.OpRecord]
    routes: list[protocol.RouteRecord]
    stages: list[protocol.StageRecord] = field(default_factory=list)


class Engine:
    """One node's end of one conversation."""

    def __init__(
        self, slice_: NodeSlice, host: socket.socket, peers: Mapping[int, socket.socket], state: NodeState
    ) -> None:
        """Loads the stages; see `serve`."""
        self._node = slice_.node
        self._manifest = slice_.manifest
        self._program = StagedProgram(slice_)
        self._host = host
        self._host.settimeout(HOST_TIMEOUT_S)
        self._link = StreamLink(slice_.node, ADDRESS_HOST)
        self._state = state
        self._input = self._program.input.data.cast("B")
        lines = {peer: self._line(peer, line) for peer, line in sorted(peers.items())}
        self._mesh = Mesh(lines, host, state)
        self._awaited = tuple(self._goals(stage) for stage in self._program.stages)

    def _line(self, peer: int, line: socket.socket) -> PeerLine:
        sends = [
            Transfer(gather.exchange, gather.stream.data.cast("B"))
            for gathers in self._program.gathers
            for gather in gathers
            if gather.receiver == peer
        ]
        receives = [
            Transfer(send.exchange, self._program.received[send.exchange, peer].data.cast("B"))
            for send in sends_in_order(self._manifest.programs[peer])
            if send.receiver == self._node
        ]
        return PeerLine(self._node, peer, line, sends, receives)

    def _goals(self, stage: Stage) -> tuple[tuple[Place, dict[int, int]], ...]:
        """Per exchange that the stage awaits, how many frames of each sender must be there."""
        senders = {
            exchange: sorted(sender for number, sender in self._program.received if number == exchange)
            for exchange in stage.exchanges
        }
        return tuple(
            (Place(stage.main_op, exchange), {s: self._mesh.lines[s].goals[exchange] for s in senders[exchange]})
            for exchange in stage.exchanges
        )

    # ---- the conversation

    def serve(self) -> None:
        """See the function."""
        try:
            with contextlib.suppress(HostGone):
                while True:
                    for message in self._link.receive(self._read(), 0.0):
                        self._take(message)
                        self._flush()
        except ReportedError as error:
            with contextlib.suppress(HostGone):
                self._link.send(Opcode.ERROR, error.report.pack())
                self._flush()
            raise
        except (protocol.MessageError, StreamError) as error:
            raise DiscoError(f"the host sent what does not belong ({error}): use the same version on both") from error
        finally:
            self._state.set(Doing.IDLE)

    def _read(self) -> bytes:
        """What the host sends next; a peer that is lost meanwhile ends it."""
        self._state.set(Doing.IDLE)
        self._mesh.idle()
        try:
            data = self._host.recv(READ_BYTES)
        except OSError as error:
            raise HostGone from error
        if not data:
            raise HostGone
        return data

    def _flush(self) -> None:
        if not self._link.idle:
            try:
                self._host.sendall(self._link.bytes_to_send(0.0))
            except OSError as error:
                raise HostGone from error

    def _take(self, message: Message) -> None:
        if message.opcode == Opcode.HELLO:
            self._hello(protocol.Hello.unpack(message.payload))
        elif message.opcode == Opcode.CONNECT:
            self._connect(protocol.Connect.unpack(message.payload))
        elif message.opcode == Opcode.INPUT:
            part = protocol.InputPart.unpack(message.payload)
            end = part.offset + len(part.data)
            if part.index != 0 or end > len(self._input):
                raise ReportedError(failure(Status.ERR_ARGUMENT))
            self._input[part.offset : end] = part.data
        elif message.opcode == Opcode.RUN:
            self._run(protocol.Run.unpack(message.payload))
        else:
            raise ReportedError(failure(Status.ERR_PROTOCOL))

    def _hello(self, hello: protocol.Hello) -> None:
        if self._link.session != hello.session:
            self._link.reset(hello.session)
        self._link.send_control(Opcode.WELCOME, self._welcome().pack())

    def _welcome(self) -> protocol.Welcome:
        return protocol.Welcome(
            version=protocol.PROTOCOL_VERSION,
            model_abi=protocol.MODEL_ABI,
            node=self._node,
            node_count=self._manifest.nodes,
            unit=protocol.Unit.NANOSECONDS,
            endianness=protocol.LITTLE_ENDIAN,
            ticks_per_second=1_000_000_000,
            clock_hz=0,
            resolution_ticks=max(1, round(time.get_clock_info("monotonic").resolution * 1e9)),
            free_ram_bytes=0,
            stack_bytes=0,
            max_payload=protocol.STREAM_MAX_PAYLOAD,
            link_count=self._manifest.nodes,
            bundle_id=bytes.fromhex(self._manifest.bundle_id),
            board=BOARD,
            core=platform.machine()[:15],
        )

    def _connect(self, connect: protocol.Connect) -> None:
        hello = protocol.PeerHello(bytes.fromhex(self._manifest.bundle_id), self._node, self._manifest.nodes)
        self._mesh.greet(hello, self._link.session, connect.deadline_ms / 1000)
        self._link.send(Opcode.CONNECTED)

    # ---- a run

    def _run(self, run: protocol.Run) -> None:
        start = time.monotonic_ns()
        deadline_s = run.deadline_ms / 1000
        observed = bool(run.flags & protocol.RUN_CHECKSUMS)
        for line in self._mesh.lines.values():
            line.begin(self._link.session, run.inference)
        program = self._program.program
        account = _Account(
            [protocol.OpRecord(start, start, 0, 0, 0, 0)] * len(program.ops),
            [protocol.RouteRecord(0, 0, 0, 0, 0)] * len(program.sends),
        )
        for place, stage in enumerate(self._program.stages):
            stage.observe(observed)
            self._stage(place, stage, deadline_s, account)
        self._mesh.drain(deadline_s)
        end = time.monotonic_ns()
        self._state.set(Doing.SENDING)
        if observed:
            self._add_checksums(account)
        self._report(run.inference, account, start, end)

    def _stage(self, place: int, stage: Stage, deadline_s: float, account: _Account) -> None:
        clock = time.monotonic_ns
        start = clock()
        self._program.scatter_computed(stage)
        before = clock()
        for awaited, goals in self._awaited[place]:
            self._mesh.wait(goals, awaited, deadline_s)
        waited = clock()
        self._program.scatter_halo(stage)
        scattered = clock()
        self._state.set(Doing.COMPUTING, op=stage.main_op)
        stage.model.invoke()
        computed = clock()
        gathering = sending = 0
        for gather in self._program.gathers[place]:
            began = clock()
            self._program.gather(gather)
            gathered = clock()
            frames = self._mesh.send(gather.receiver, Place(gather.op, gather.exchange))
            sent = clock()
            gathering += gathered - began
            sending += sent - gathered
            account.routes[gather.place] = protocol.RouteRecord(began, sent, gather.stream.size, frames, 0)
        end = clock()
        prepare, wait, scatter, compute = before - start, waited - before, scattered - waited, computed - scattered
        account.stages.append(protocol.StageRecord(start, end, prepare, wait, scatter, compute, gathering, sending))
        for op in stage.info.ops:
            account.ops[op] = protocol.OpRecord(start, start, 0, 0, 0, 0)
        account.ops[stage.main_op] = protocol.OpRecord(
            start, end, compute, wait, prepare + scatter + gathering + sending, 0
        )

    def _add_checksums(self, account: _Account) -> None:
        for stage in self._program.stages:
            for op, buffer in zip(stage.info.ops, stage.info.buffers, strict=True):
                account.ops[op] = replace(account.ops[op], checksum=stage.checksum(buffer))

    def _report(self, inference: int, account: _Account, start: int, end: int) -> None:
        send = self._link.send
        for index, output in enumerate(self._program.program.outputs):
            if output.channels:
                stream = self._program.computed_channels(output.tensor).tobytes()
                for part in protocol.OutputPart.split(index, stream, self._link.max_payload):
                    send(Opcode.OUTPUT, part.pack())
        accounts: tuple[tuple[Opcode, Any, list[Any]], ...] = (
            (Opcode.OPS, protocol.OpRecords, account.ops),
            (Opcode.ROUTES, protocol.RouteRecords, account.routes),
            (Opcode.STAGES, protocol.StageRecords, account.stages),
        )
        for opcode, message, records in accounts:
            for at in range(0, len(records), RECORDS_PER_MESSAGE):
                send(opcode, message(inference, at, tuple(records[at : at + RECORDS_PER_MESSAGE])).pack())
        send(Opcode.DONE, protocol.Done(inference, 0, start, end).pack())
