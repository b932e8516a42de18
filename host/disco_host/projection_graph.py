"""The graph of a run for the replay: steps of rows as tasks, exchanges as streams, as executor.c goes through them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from disco_firmware.framing import WIRE_OVERHEAD_BYTES
from disco_firmware.protocol import LINK_WINDOW, MAX_PAYLOAD, Channels, Credit
from disco_planning.replay_graph import Arrival, Graph, Part, Protocol, Stream, Task
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from disco_firmware.manifest import Manifest, NodeOp, NodeSend
    from disco_host.projection_file import NodeModel, ProjectionModel
    from disco_host.results import NodeResult, RunResult

PROTOCOL = Protocol(
    data_bytes=MAX_PAYLOAD - Channels.HEADER_BYTES,
    overhead_bytes=Channels.HEADER_BYTES + WIRE_OVERHEAD_BYTES,
    window=LINK_WINDOW,
    acknowledgement_bytes=WIRE_OVERHEAD_BYTES,
    credit_bytes=Credit.layout.size + WIRE_OVERHEAD_BYTES,
)
"""What framing.py, link.c and exchange_send.c do."""
END = "end of the run"
END = "end of the run"


@dataclass
class GraphBuilder:
    """Makes the replay's graph from the manifest and the medians of a run."""

    manifest: Manifest
    result: RunResult
    model: ProjectionModel
    protocol_s: list[float] = field(init=False)
    """Per node, of the work that its tasks hold."""

    def __post_init__(self) -> None:
        self.protocol_s = [0.0] * self.manifest.nodes
        programs = self.manifest.programs
        self._sends = [(program.node, send) for program in programs for send in program.sends]
        self._first_task = [_first_tasks(program.ops) for program in programs]

    def graph(self) -> Graph:
        """The whole run."""
        nodes = tuple(self._tasks(node) for node in range(self.manifest.nodes))
        streams = tuple(self._stream(node, send) for node, send in self._sends)
        return Graph(nodes, streams, tuple(link.link for link in self.model.links), PROTOCOL)

    def _stream(self, sender: int, send: NodeSend) -> Stream:
        receives = self.manifest.programs[send.receiver].receives
        open_op = next(r.open_op for r in receives if (r.exchange, r.sender) == (send.exchange, sender))
        steps = self._steps_of(sender, send.tensor)
        row = send.bytes // self._height(send.tensor)
        parts = tuple(Part(rows * row, task) for task, rows in steps)
        return Stream(
            f"exchange {send.exchange}", sender, send.receiver, parts, self._first_task[send.receiver][open_op]
        )

    def _height(self, tensor: str) -> int:
        return _height(self.manifest.tensor(tensor).shape)

    def _steps_of(self, node: int, tensor: str) -> list[tuple[int, int]]:
        """(task, rows that are final after it) of the op that makes `tensor`."""
        for place, op in enumerate(self.manifest.programs[node].ops):
            if op.output == tensor and op.kind != "SELECT_CHANNELS":
                first = self._first_task[node][place]
                return [(first + step, rows) for step, rows in enumerate(_steps(op))]
        raise KeyError(tensor)

    def _tasks(self, node: int) -> tuple[Task, ...]:
        program, counts = self.manifest.programs[node], self.result.nodes[node]
        sent = self._sent_after(node)
        handed_over = defaultdict(list)
        for index, (sender, send) in enumerate(self._sends):
            if sender == node:
                handed_over[send.last_op + 1].append(index)
        tasks: list[Task] = []
        seen: dict[int, int] = defaultdict(int)
        for place, (op, count) in enumerate(zip(program.ops, counts.ops, strict=True)):
            steps = _steps(op)
            seconds = _seconds(count.compute.median, counts, self.model.nodes[node])
            for step, rows in enumerate(steps):
                needs = self._needs(node, op, step)
                wire = sent[len(tasks)] + sum(need.bytes - seen[need.stream] for need in needs)
                seen.update({need.stream: need.bytes for need in needs})
                overhead = self._protocol(node, wire)
                waits = tuple(handed_over[place]) if step == 0 else ()
                tasks.append(Task(op.name, seconds * rows / sum(steps) + overhead, needs, waits))
        rest = tuple(handed_over[len(program.ops)])
        received = [i for i, (_, send) in enumerate(self._sends) if send.receiver == node]
        tasks.append(Task(END, 0.0, tuple(Arrival(i, self._sends[i][1].bytes) for i in received), rest))
        return tuple(tasks)

    def _needs(self, node: int, op: NodeOp, step: int) -> tuple[Arrival, ...]:
        rows = {wait.exchange: wait.rows[step] for wait in op.waits}
        return tuple(
            Arrival(index, rows[send.exchange] * send.bytes // self._height(send.tensor))
            for index, (_, send) in enumerate(self._sends)
            if send.receiver == node and send.exchange in rows
        )

    def _sent_after(self, node: int) -> dict[int, int]:
        """Task -> bytes that it makes final."""
        sent: dict[int, int] = defaultdict(int)
        for sender, send in self._sends:
            if sender == node:
                for task, rows in self._steps_of(node, send.tensor):
                    sent[task] += rows * send.bytes // self._height(send.tensor)
        return sent

    def _protocol(self, node: int, data_bytes: int) -> float:
        """Seconds of a look at the links, and of the frames that its step sends and needs, as if all were full."""
        board = self.model.nodes[node]
        wire = data_bytes * (1 + PROTOCOL.overhead_bytes / PROTOCOL.data_bytes)
        seconds = 0.0
        if self.manifest.nodes > 1:
            seconds = (board.cycles_per_step + board.cycles_per_link_byte * wire) / board.clock_hz
        self.protocol_s[node] += seconds
        return seconds


def _height(shape: tuple[int, ...]) -> int:
    return shape[1] if len(shape) > 2 else 1


def _steps(op: NodeOp) -> list[int]:
    """The rows of each step."""
    height = _height(op.output_shape)
    return [min(op.row_step, height - first) for first in range(0, height, op.row_step)]


def _first_tasks(ops: tuple[NodeOp, ...]) -> list[int]:
    """The first task of each op, and behind them that of the end."""
    first = [0]
    for op in ops:
        first.append(first[-1] + len(_steps(op)))
    return first


def _seconds(count: float, node: NodeResult, board: NodeModel) -> float:
    if node.unit == "ns":
        raise DiscoError(f"node {node.node} measured time, which is not projected: run on emulated boards")
    if node.unit != "instructions":
        return count / board.clock_hz
    if board.cycles_per_instruction is None:
        raise DiscoError(
            f"node {node.node} counted instructions: give it cycles_per_instruction in the projection file"
        )
    return count * board.cycles_per_instruction / board.clock_hz
