"""The graph of a run for the replay: steps of rows as tasks, exchanges as streams, as executor.c goes through them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from disco_firmware.framing import WIRE_OVERHEAD_BYTES
from disco_firmware.manifest import runs_of_ops, steps_of
from disco_firmware.protocol import LINK_EAGER, LINK_WINDOW, MAX_PAYLOAD, Channels, Credit
from disco_planning.replay_graph import Arrival, Graph, Part, Protocol, Stream, Task
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from disco_firmware.manifest import Manifest, NodeOp, NodeSend, Step
    from disco_host.projection_file import NodeModel, ProjectionModel
    from disco_host.results import NodeResult, RunResult
    from disco_host.stats import Summary

PROTOCOL = Protocol(
    data_bytes=MAX_PAYLOAD - Channels.HEADER_BYTES,
    overhead_bytes=Channels.HEADER_BYTES + WIRE_OVERHEAD_BYTES,
    window=LINK_WINDOW,
    eager=LINK_EAGER,
    acknowledgement_bytes=WIRE_OVERHEAD_BYTES,
    credit_bytes=Credit.layout.size + WIRE_OVERHEAD_BYTES,
)
"""What framing.py, link.c and exchange_send.c do."""
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
        self._schedules = [Schedule(program.ops, {r.open_op for r in program.receives}) for program in programs]

    def graph(self) -> Graph:
        """The whole run."""
        nodes = tuple(self._tasks(node) for node in range(self.manifest.nodes))
        streams = tuple(self._stream(node, send) for node, send in self._sends)
        return Graph(nodes, streams, tuple(link.link for link in self.model.links), PROTOCOL)

    def _stream(self, sender: int, send: NodeSend) -> Stream:
        receives = self.manifest.programs[send.receiver].receives
        open_op = next(r.open_op for r in receives if (r.exchange, r.sender) == (send.exchange, sender))
        parts = tuple(Part(size, task) for task, size in self._parts(sender, send))
        opened_by = self._schedules[send.receiver].first_task(open_op)
        return Stream(self.manifest.exchange_label(send), sender, send.receiver, parts, opened_by)

    def _parts(self, node: int, send: NodeSend) -> list[tuple[int, int]]:
        """(task, bytes that are final after it) of the op that makes the sent tensor."""
        row = send.bytes // self.manifest.tensor(send.tensor).height
        for place, op in enumerate(self.manifest.programs[node].ops):
            if op.output == send.tensor and op.kind != "SELECT_CHANNELS":
                return [(task, rows * row) for task, rows in self._schedules[node].tasks_of(place)]
        raise KeyError(send.tensor)

    def _tasks(self, node: int) -> tuple[Task, ...]:
        program, schedule, board = self.manifest.programs[node], self._schedules[node], self.model.nodes[node]
        link_bytes = self._sent_after(node)
        seen: dict[int, int] = defaultdict(int)
        tasks: list[Task] = []
        for step in schedule.steps:
            op, counts = program.ops[step.op], self.result.nodes[node]
            needs = self._needs(node, op, step.number)
            received = sum(need.bytes - seen[need.stream] for need in needs)
            seen.update({need.stream: need.bytes for need in needs})
            count = counts.steps[len(tasks)] if counts.steps else _share(counts.ops[step.op].compute, step, op)
            protocol = self._protocol(node, schedule.looks(step), link_bytes[len(tasks)] + received)
            seconds = _seconds(count, counts, board) + protocol
            tasks.append(Task(schedule.label(step.op), seconds, needs, self._handed_over(node, len(tasks))))
        received_streams = [index for index, (_, send) in enumerate(self._sends) if send.receiver == node]
        needs = tuple(Arrival(index, self._sends[index][1].bytes) for index in received_streams)
        return (*tasks, Task(END, 0.0, needs, self._handed_over(node, len(tasks))))

    def _handed_over(self, node: int, task: int) -> tuple[int, ...]:
        return tuple(
            index
            for index, (sender, send) in enumerate(self._sends)
            if sender == node and self._schedules[node].task_after(send.last_op) == task
        )

    def _needs(self, node: int, op: NodeOp, step: int) -> tuple[Arrival, ...]:
        rows = {wait.exchange: wait.rows[step] for wait in op.waits}
        return tuple(
            Arrival(index, rows[send.exchange] * send.bytes // self.manifest.tensor(send.tensor).height)
            for index, (_, send) in enumerate(self._sends)
            if send.receiver == node and send.exchange in rows
        )

    def _sent_after(self, node: int) -> dict[int, int]:
        """Task -> bytes that it makes final."""
        sent: dict[int, int] = defaultdict(int)
        for sender, send in self._sends:
            if sender == node:
                for task, size in self._parts(node, send):
                    sent[task] += size
        return sent

    def _protocol(self, node: int, looks: int, data_bytes: int) -> float:
        """Seconds of the looks at the links, and of the frames that the step sends and needs, as if all were full."""
        board = self.model.nodes[node]
        wire = data_bytes * (1 + PROTOCOL.overhead_bytes / PROTOCOL.data_bytes)
        seconds = (board.cycles_per_look * looks + board.cycles_per_link_byte * wire) / board.clock_hz
        self.protocol_s[node] += seconds
        return seconds


class Schedule:
    """In which order a node computes its steps, and when it looks at the links: executor.c."""

    def __init__(self, ops: tuple[NodeOp, ...], opening: Set[int] = frozenset()) -> None:
        self._ops = ops
        self._together = runs_of_ops([op.joined for op in ops])
        self._opening = opening
        self.steps = steps_of(ops)

    def looks(self, step: Step) -> int:
        """At the links: one after every step, and one before the first where the node then gives leave to send. Ops
        that are computed together share them.
        """
        first, end = self._ends(step.op)
        opens = step.op == first and step.row == 0 and not self._opening.isdisjoint(range(first, end))
        return (step.op == end - 1) + opens

    def tasks_of(self, op: int) -> list[tuple[int, int]]:
        """(task, rows) of each of its steps."""
        return [(task, step.rows) for task, step in enumerate(self.steps) if step.op == op]

    def first_task(self, op: int) -> int:
        """With which the op begins, or the first of those that are computed together with it."""
        return self.tasks_of(self._ends(op)[0])[0][0]

    def task_after(self, op: int) -> int:
        """The first after its last, and after those that are computed together with it."""
        return self.tasks_of(self._ends(op)[1] - 1)[-1][0] + 1

    def label(self, op: int) -> str:
        """Its name, and those of the ops that are computed together with it."""
        return " + ".join(one.name for one in self._ops[slice(*self._ends(op))])

    def _ends(self, op: int) -> tuple[int, int]:
        return next((first, end) for first, end in self._together if first <= op < end)


def _share(compute: Summary | None, step: Step, op: NodeOp) -> float | None:
    """Of what an op computes, spread evenly over its rows."""
    return None if compute is None else compute.median * step.rows / op.height


def _seconds(count: float | None, node: NodeResult, board: NodeModel) -> float:
    if node.unit == "ns" or count is None:
        raise DiscoError(f"node {node.node} measured time, which is not projected: run on emulated boards")
    if node.unit != "instructions":
        return count / board.clock_hz
    if board.cycles_per_instruction is None:
        raise DiscoError(
            f"node {node.node} counted instructions: give it cycles_per_instruction in the projection file"
        )
    return count * board.cycles_per_instruction / board.clock_hz
