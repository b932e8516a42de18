"""Replays a run on modelled nodes and links.

In max-plus algebra (Baccelli, Cohen, Olsder and Quadrat, "Synchronization and Linearity", 1992): everything begins at
the latest end of what it waits for, and ends its duration later. Which rows share a frame depends on when a link is
free, so the equations are solved in the order of time. What each beginning waited for last is kept: followed back from
the end, that is the critical path, which covers the latency without a gap.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from disco_planning.replay_graph import Graph, Link, Protocol

Kind = Literal["compute", "transfer"]


@dataclass(frozen=True, eq=False)
class Activity:
    """A task of a node, or a frame on a link, with its times."""

    kind: Kind
    nodes: tuple[int, ...]
    """The node, or sender and receiver."""
    label: str
    start_s: float
    free_s: float
    """When the node or the line is free again."""
    end_s: float
    """When its result is there: of a frame, the link's latency later."""
    cause: Activity | None
    """What its start waited for last; None at the beginning."""
    bytes: int = 0
    """Of a frame, on the line."""


@dataclass(frozen=True)
class Step:
    """A piece of the critical path."""

    kind: Kind
    nodes: tuple[int, ...]
    label: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Replay:
    """All times of a run."""

    tasks: tuple[tuple[Activity, ...], ...]
    """Of each node, in order."""
    frames: tuple[Activity, ...]
    """Of all links, by their start."""

    @property
    def latency_s(self) -> float:
        """Until the last node has ended."""
        return max((tasks[-1].end_s for tasks in self.tasks if tasks), default=0.0)

    def compute_s(self, node: int) -> float:
        """The node's work."""
        return sum(task.end_s - task.start_s for task in self.tasks[node])

    def waiting_s(self, node: int) -> float:
        """The node's time without work until its last task has ended: what computation does not hide."""
        return (self.tasks[node][-1].end_s if self.tasks[node] else 0.0) - self.compute_s(node)

    def critical_path(self) -> tuple[Step, ...]:
        """From the beginning to the end of the run; neighbours of one node or link with one label are one step."""
        last = max((tasks[-1] for tasks in self.tasks if tasks), key=lambda task: task.end_s, default=None)
        steps: list[Step] = []
        until = self.latency_s
        while last is not None:
            step = Step(last.kind, last.nodes, last.label, last.start_s, until)
            if steps and (step.kind, step.nodes, step.label) == (steps[-1].kind, steps[-1].nodes, steps[-1].label):
                steps[-1] = replace(steps[-1], start_s=step.start_s)
            elif step.end_s > step.start_s:
                steps.append(step)
            until, last = last.start_s, last.cause
        return tuple(reversed(steps))


def replay(graph: Graph) -> Replay:
    """Computes when everything begins and ends, all nodes beginning at 0.

    Raises:
        ValueError: Two nodes have a stream but no link, or nodes wait for each other for ever.
    """
    return _Engine(graph).run()


def without_communication(graph: Graph) -> Graph:
    """The same run where every byte is at its receiver in the moment it is final: what is then left of the waiting is
    that for a slower node.
    """
    links = tuple(Link(link.ends, float("inf")) for link in graph.links)
    streams = tuple(replace(stream, opened_by=None) for stream in graph.streams)
    largest = max((stream.bytes for stream in streams), default=1)
    return replace(graph, streams=streams, links=links, protocol=Protocol(largest))


@dataclass(eq=False)
class _Frame:
    direction: _Direction
    label: str
    wire_bytes: int
    packed_s: float
    cause: Activity | None
    stream: int | None = None
    data_bytes: int = 0
    opens: tuple[int, ...] = ()
    acknowledges: int = 0
    """Frames that came the other way."""

    @property
    def sequenced(self) -> bool:
        """Whether it is acknowledged itself."""
        return self.data_bytes > 0 or bool(self.opens)


@dataclass(eq=False)
class _Line:
    """What one frame at a time can be on: a direction of a link, or both where they share it."""

    link: Link
    queue: deque[_Frame] = field(default_factory=deque)
    busy: bool = False
    paid_s: float = -math.inf
    """When what was sent so far has passed at the link's rate."""
    last: Activity | None = None


@dataclass(eq=False)
class _Direction:
    """One sender's side of a link, and what has arrived over it but not been looked at."""

    sender: int
    receiver: int
    line: _Line
    streams: deque[int] = field(default_factory=deque)
    """Not yet handed over to the last byte."""
    under_way: int = 0
    unacknowledged: int = 0
    """Frames that came the other way and are to be acknowledged on this one."""
    credits: tuple[int, ...] = ()
    inbox: list[_Frame] = field(default_factory=list)


@dataclass(eq=False)
class _StreamState:
    final: int = 0
    packed: int = 0
    received: int = 0
    open: bool = False


class _Engine:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = 0
        self._frames: list[Activity] = []
        self._tasks: list[list[Activity]] = [[] for _ in graph.nodes]
        self._turn = [0 for _ in graph.nodes]
        self._reached = [-1 for _ in graph.nodes]
        self._running = [False for _ in graph.nodes]
        self._states = [_StreamState(open=stream.opened_by is None) for stream in graph.streams]
        self._directions = _directions(graph)
        self._final_after: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for index, stream in enumerate(graph.streams):
            if (stream.sender, stream.receiver) not in self._directions:
                raise ValueError(f"no link between nodes {stream.sender} and {stream.receiver}")
            self._directions[stream.sender, stream.receiver].streams.append(index)
            for part in stream.parts:
                self._final_after.setdefault((stream.sender, part.task), []).append((index, part.bytes))

    def run(self) -> Replay:
        for node in range(len(self._graph.nodes)):
            self._go_on(node, 0.0, None)
        while self._events:
            now, _, event = heapq.heappop(self._events)
            event(now)
        for node, tasks in enumerate(self._graph.nodes):
            if self._turn[node] < len(tasks):
                raise ValueError(f"node {node} waits for ever before task {self._turn[node]}")
        return Replay(tuple(tuple(tasks) for tasks in self._tasks), tuple(self._frames))

    def _at(self, time: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (time, self._order, event))
        self._order += 1

    # ---- nodes

    def _go_on(self, node: int, now: float, cause: Activity | None) -> None:
        """A node looks at its links, and begins its next task if nothing is missing."""
        self._look(node, now, cause)
        turn, tasks = self._turn[node], self._graph.nodes[node]
        if turn == len(tasks):
            return
        task = tasks[turn]
        if self._reached[node] < turn:
            if any(self._states[s].packed < self._graph.streams[s].bytes for s in task.handed_over):
                return
            self._reached[node] = turn
            self._give_leave(node, turn)
            self._look(node, now, cause)
        if any(self._states[need.stream].received < need.bytes for need in task.needs):
            return
        end = now + task.seconds
        activity = Activity("compute", (node,), task.label, now, end, end, cause)
        self._tasks[node].append(activity)
        self._running[node] = True
        self._at(end, lambda time: self._task_ended(node, time, activity))

    def _task_ended(self, node: int, now: float, activity: Activity) -> None:
        self._running[node] = False
        for stream, size in self._final_after.get((node, self._turn[node]), ()):
            self._states[stream].final += size
        self._turn[node] += 1
        self._go_on(node, now, activity)

    def _give_leave(self, node: int, turn: int) -> None:
        for (sender, receiver), direction in self._directions.items():
            if sender == node:
                direction.credits += tuple(
                    index
                    for index, stream in enumerate(self._graph.streams)
                    if (stream.receiver, stream.sender, stream.opened_by) == (node, receiver, turn)
                )

    # ---- links

    def _look(self, node: int, now: float, cause: Activity | None) -> None:
        for (_, receiver), direction in self._directions.items():
            if receiver == node:
                self._take(direction)
        for (sender, _), direction in self._directions.items():
            if sender == node:
                self._offer(direction, now, cause)
                self._transmit(direction.line, now)

    def _take(self, direction: _Direction) -> None:
        back = self._directions[direction.receiver, direction.sender]
        for frame in direction.inbox:
            back.under_way -= frame.acknowledges
            if frame.stream is not None:
                self._states[frame.stream].received += frame.data_bytes
            for stream in frame.opens:
                self._states[stream].open = True
            back.unacknowledged += frame.sequenced
        direction.inbox.clear()

    def _offer(self, direction: _Direction, now: float, cause: Activity | None) -> None:
        """Packs what may leave now."""
        protocol = self._graph.protocol
        while protocol.window is None or direction.under_way < protocol.window:
            frame = self._credit(direction, now, cause) or self._data(direction, now, cause)
            if frame is None:
                break
            direction.under_way += 1
            _hand_over(frame)
        if protocol.window is not None and direction.unacknowledged:
            _hand_over(_Frame(direction, "acknowledgement", protocol.acknowledgement_bytes, now, cause))

    def _credit(self, direction: _Direction, now: float, cause: Activity | None) -> _Frame | None:
        if not direction.credits:
            return None
        opens, direction.credits = direction.credits, ()
        return _Frame(direction, "credit", self._graph.protocol.credit_bytes, now, cause, opens=opens)

    def _data(self, direction: _Direction, now: float, cause: Activity | None) -> _Frame | None:
        if not direction.streams:
            return None
        index = direction.streams[0]
        stream, state, protocol = self._graph.streams[index], self._states[index], self._graph.protocol
        size = min(state.final - state.packed, protocol.data_bytes)
        at_once = protocol.window is None or direction.under_way < protocol.eager or state.final == stream.bytes
        if not state.open or size == 0 or (size < protocol.data_bytes and not at_once):
            return None
        state.packed += size
        if state.packed == stream.bytes:
            direction.streams.popleft()
        wire = size + protocol.overhead_bytes
        return _Frame(direction, stream.label, wire, now, cause, stream=index, data_bytes=size)

    def _transmit(self, line: _Line, now: float) -> None:
        if line.busy or not line.queue:
            return
        frame = line.queue.popleft()
        link = line.link
        begun = max(line.paid_s, now - link.burst_bytes / link.bytes_per_second)
        line.paid_s = begun + link.frame_s + frame.wire_bytes / link.bytes_per_second
        free = max(now, line.paid_s)
        cause = frame.cause if frame.packed_s == now else line.last
        nodes = (frame.direction.sender, frame.direction.receiver)
        activity = Activity("transfer", nodes, frame.label, now, free, free + link.latency_s, cause, frame.wire_bytes)
        self._frames.append(activity)
        line.busy, line.last = True, activity
        self._at(activity.free_s, lambda time: self._line_free(line, time))
        self._at(activity.end_s, lambda time: self._arrived(frame, time, activity))

    def _line_free(self, line: _Line, now: float) -> None:
        line.busy = False
        self._transmit(line, now)

    def _arrived(self, frame: _Frame, now: float, activity: Activity) -> None:
        frame.direction.inbox.append(frame)
        if not self._running[frame.direction.receiver]:
            self._go_on(frame.direction.receiver, now, activity)


def _hand_over(frame: _Frame) -> None:
    """To the line, with the acknowledgement of all that came the other way."""
    direction = frame.direction
    frame.acknowledges, direction.unacknowledged = direction.unacknowledged, 0
    direction.line.queue.append(frame)


def _directions(graph: Graph) -> dict[tuple[int, int], _Direction]:
    directions = {}
    for link in graph.links:
        first, second = link.ends
        there = _Line(link)
        back = _Line(link) if link.full_duplex else there
        directions[first, second] = _Direction(first, second, there)
        directions[second, first] = _Direction(second, first, back)
    return directions
