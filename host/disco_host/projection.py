"""Turns the counts of a run into time: the graph of its steps and exchanges, replayed on modelled boards and links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from disco_host.projection_graph import GraphBuilder
from disco_host.results import with_ends
from disco_planning.replay import Replay, replay, without_communication

if TYPE_CHECKING:
    from disco_firmware.manifest import Manifest
    from disco_host.projection_file import ProjectionModel
    from disco_host.results import RunResult


EVENLY = "an op's count is spread evenly over its rows"
"""Assumed where what each step computes was not recorded."""


@dataclass(frozen=True)
class NodeProjection:
    """One node, projected; ms."""

    node: int
    compute_ms: float
    protocol_ms: float
    """Looking at the links, packing and unpacking frames."""
    waiting_ms: float
    end_ms: float


@dataclass(frozen=True)
class LinkProjection:
    """One direction between two nodes, projected."""

    sender: int
    receiver: int
    wire_bytes: int
    """Headers, CRC, COBS, acknowledgements and credits included."""
    frames: int
    busy_ms: float


@dataclass(frozen=True)
class StepProjection:
    """A piece of the critical path, projected; ms."""

    kind: str
    """"compute" or "transfer"."""
    nodes: tuple[int, ...]
    """The node, or sender and receiver."""
    label: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True)
class Projection:
    """What a run would take on the boards and links of a file. Nothing of it was measured."""

    label: str
    """"projected"."""
    file: str
    latency_ms: float
    without_communication_ms: float
    """The same if every byte were at its receiver in the moment it is final, at no cost to the processors: kernels, and
    waiting for slower nodes."""
    exposed_communication_ms: float
    """The difference: what kernels do not hide of the links, and of the protocol's work on the boards."""
    exposed_waiting_ms: float
    """Of it what links that take no time would save."""
    exposed_protocol_ms: float
    """Of it the rest: looking at the links, packing and unpacking frames."""
    nodes: tuple[NodeProjection, ...]
    links: tuple[LinkProjection, ...]
    critical_path: tuple[StepProjection, ...]
    assumptions: tuple[str, ...]

    @property
    def exposed_share(self) -> float:
        """Of the latency."""
        return self.exposed_communication_ms / self.latency_ms if self.latency_ms else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values; a direction's ends are called `from` and `to`."""
        return {
            **vars(self),
            "exposed_share": self.exposed_share,
            "nodes": [vars(node) for node in self.nodes],
            "links": [with_ends(vars(link)) for link in self.links],
            "critical_path": [vars(step) for step in self.critical_path],
        }


@dataclass(frozen=True)
class Projected:
    """A projection, and the replay behind it for a trace."""

    projection: Projection
    replay: Replay


def project(manifest: Manifest, result: RunResult, model: ProjectionModel, file: str) -> Projected:
    """Replays a run on the boards and links of `model`.

    Args:
        manifest: Of the bundle that ran.
        result: Its counts: the medians of what the steps of the ops computed are used (of the ops, where steps were
            not recorded), nothing else.
        model: For as many nodes.
        file: Where the model was read, for the report.

    Raises:
        DiscoError: The run measured time, or counted instructions where the model has no cycles per instruction.
    """
    builder = GraphBuilder(manifest, result, model)
    graph = builder.graph()
    replayed = replay(graph)
    instant = replay(without_communication(graph)).latency_s
    kernels = GraphBuilder(manifest, result, model.without_protocol_work()).graph()
    ideal = replay(without_communication(kernels)).latency_s
    nodes = range(manifest.nodes)
    projection = Projection(
        label="projected",
        file=file,
        latency_ms=1e3 * replayed.latency_s,
        without_communication_ms=1e3 * ideal,
        exposed_communication_ms=1e3 * (replayed.latency_s - ideal),
        exposed_waiting_ms=1e3 * (replayed.latency_s - instant),
        exposed_protocol_ms=1e3 * (instant - ideal),
        nodes=tuple(
            NodeProjection(
                node,
                1e3 * (replayed.compute_s(node) - builder.protocol_s[node]),
                1e3 * builder.protocol_s[node],
                1e3 * replayed.waiting_s(node),
                1e3 * replayed.tasks[node][-1].end_s,
            )
            for node in nodes
        ),
        links=tuple(_link(replayed, a, b) for a in nodes for b in nodes if a != b),
        critical_path=tuple(
            StepProjection(step.kind, step.nodes, step.label, 1e3 * step.start_s, 1e3 * step.end_s)
            for step in replayed.critical_path()
        ),
        assumptions=_assumptions(result, model),
    )
    return Projected(projection, replayed)


def _link(replayed: Replay, sender: int, receiver: int) -> LinkProjection:
    frames = [frame for frame in replayed.frames if frame.nodes == (sender, receiver)]
    busy = sum(frame.free_s - frame.start_s for frame in frames)
    return LinkProjection(sender, receiver, sum(frame.bytes for frame in frames), len(frames), 1e3 * busy)


def _assumptions(result: RunResult, model: ProjectionModel) -> tuple[str, ...]:
    texts = []
    for node, board in zip(result.nodes, model.nodes, strict=True):
        counted = f"{node.unit} counted" if node.unit != "cycles-estimate" else "cycles estimated"
        rate = f" x {board.cycles_per_instruction:g} cycles" if node.unit == "instructions" else ""
        texts.append(
            f"node {node.node}: {counted}{rate} at {board.clock_hz / 1e6:g} MHz; {board.cycles_per_look:g} cycles for "
            f"each look at the links, {board.cycles_per_link_byte:g} for each byte of a frame sent or received"
        )
    return (
        *texts,
        *(f"link {link.link.ends[0]} - {link.link.ends[1]}: {link.text}" for link in model.links),
        *(() if all(node.steps for node in result.nodes) else (EVENLY,)),
        "all nodes start at once, with their inputs; no frame is lost",
        "the line takes and gives bytes without the processor (DMA), a window of frames ahead",
    )
