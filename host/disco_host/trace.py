"""The timeline of a run in Chrome's trace format, for Perfetto or chrome://tracing."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any

from disco_firmware.manifest import runs_of_ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disco_firmware.manifest import Manifest
    from disco_host.capture import InferenceCapture, NodeCapture
    from disco_host.results import NodeResult, RunResult

Event = dict[str, Any]


def chrome_trace(manifest: Manifest, result: RunResult, *captures: InferenceCapture) -> dict[str, Any]:
    """One track per node (ops, with their parts inside) and one per link (exchanges).

    Where the clocks of all nodes are known, events lie as they were on the host's clock, to within the
    error of the metadata. Else they are not aligned: in every inference each node's run starts at the same
    point of the time axis. Counted instructions are written as they are, one per microsecond of the
    viewer, and the metadata says so.
    """
    nodes = result.nodes
    events = _names(manifest, nodes)
    for capture, origins in zip(captures, _origins(result, captures), strict=True):
        for node, origin in zip(capture.nodes, origins, strict=True):
            scale = _scale(nodes[node.node])
            events += _node_events(manifest, capture, node, origin, scale)
            events += _link_events(manifest, capture, node, origin, scale)
    return {"traceEvents": events, "displayTimeUnit": "ns", "metadata": _metadata(manifest, result)}


def _origins(result: RunResult, captures: Sequence[InferenceCapture]) -> list[list[float]]:
    """Where each node's run lies on the time axis, by inference and node."""
    if aligned(result):
        starts = [[result.clocks[n.node].to_host(n.start) / 1000 for n in capture.nodes] for capture in captures]
        first = min(min(row) for row in starts) if starts else 0.0
        return [[start - first for start in row] for row in starts]
    origins, origin = [], 0.0
    for capture in captures:
        origins.append([origin] * len(capture.nodes))
        spans = [(n.end - n.start) * _scale(result.nodes[n.node]) for n in capture.nodes]
        origin += max(spans) * 1.05  # a gap, so that inferences are told apart
    return origins


def aligned(result: RunResult) -> bool:
    """Whether the clocks of all nodes are known."""
    return [clock.node for clock in result.clocks] == [node.node for node in result.nodes]


def _scale(node: NodeResult) -> float:
    """Microseconds of the viewer per tick; 1 where a tick is no time."""
    if node.unit == "ns":
        return 1e-3
    if node.unit == "cycles" and node.ticks_per_second:
        return 1e6 / node.ticks_per_second
    return 1.0


def _metadata(manifest: Manifest, result: RunResult) -> dict[str, Any]:
    nodes = result.nodes
    counted = any(node.unit != "ns" and _scale(node) == 1.0 for node in nodes)
    return {
        "bundle_id": manifest.bundle_id,
        "units": {f"node {node.node}": node.unit for node in nodes},
        "clocks": (
            f"aligned to within {max(clock.error_ns for clock in result.clocks) / 1000:.1f} us of the host's"
            if aligned(result)
            else "not aligned: in every inference each node's run starts at the same point"
        ),
        "parts": "wait, compute and send are sums over the op, drawn one after the other",
        "axis": (
            "ts and dur are COUNTS (see units), not time: one count is drawn as 1 us"
            if counted
            else "ts and dur are microseconds"
        ),
    }


def _names(manifest: Manifest, nodes: Sequence[NodeResult]) -> list[Event]:
    events = [track_name(node.node, f"node {node.node}: {node.board} [{node.unit}]") for node in nodes]
    return events + [
        track_name(_track(manifest, sender, receiver), f"link {sender} to {receiver} (on the clock of node {sender})")
        for sender, receiver in permutations(range(manifest.nodes), 2)
    ]


def track_name(track: int, text: str) -> Event:
    """Names a track."""
    return {"ph": "M", "name": "process_name", "pid": track, "tid": 0, "args": {"name": text}}


def _track(manifest: Manifest, sender: int, receiver: int) -> int:
    """Behind the nodes' tracks, which have their own numbers."""
    return manifest.nodes + sender * manifest.nodes + receiver


def slice_of(name: str, track: int, start: float, length: float, **args: Any) -> Event:
    """A piece of a track; start and length in microseconds of the viewer."""
    return {"ph": "X", "name": name, "pid": track, "tid": 0, "ts": start, "dur": length, "args": args}


def _node_events(
    manifest: Manifest, capture: InferenceCapture, node: NodeCapture, origin: float, scale: float
) -> list[Event]:
    events: list[Event] = []
    ops = manifest.programs[node.node].ops
    for places in _together(manifest, node):  # one slice for all of them
        together, records = [ops[place] for place in places], [node.ops[place] for place in places]
        start = origin + (records[0].start - node.start) * scale
        events.append(
            slice_of(
                " + ".join(f"{op.kind} {op.name}" for op in together),
                node.node,
                start,
                (max(record.end for record in records) - records[0].start) * scale,
                inference=capture.inference,
                macs_executed=sum(op.macs_executed for op in together),
                bytes_sent=sum(op.bytes_sent for op in together),
            )
        )
        computed = [record.compute for record in records]
        names = ["compute"] if len(together) == 1 or node.stages else [f"compute {op.name}" for op in together]
        if node.stages:
            computed = [sum(computed)]
        parts = [("wait", sum(record.wait for record in records)), *zip(names, computed, strict=True)]
        for name, ticks in (*parts, ("send", sum(record.send for record in records))):
            if ticks:
                events.append(slice_of(name, node.node, start, ticks * scale, ticks=ticks))
                start += ticks * scale
    return events


def _together(manifest: Manifest, node: NodeCapture) -> list[tuple[int, ...]]:
    """Ops that are computed as one: those of a stage, or joined ones, which take turns."""
    program = manifest.programs[node.node]
    if node.stages:
        return [stage.ops for stage in program.stages]
    return [tuple(range(*ends)) for ends in runs_of_ops([op.joined for op in program.ops])]


def _link_events(
    manifest: Manifest, capture: InferenceCapture, node: NodeCapture, origin: float, scale: float
) -> list[Event]:
    """Exchanges from the first byte queued to the last one packed, never overlapping on a link."""
    events = []
    free: dict[int, int] = {}
    sends = zip(manifest.programs[node.node].sends, node.routes, strict=True)
    for send, route in sorted(sends, key=lambda pair: pair[1].last_packed):
        if not route.payload_bytes:
            continue
        first = max(route.first_queued, free.get(send.receiver, node.start))
        last = max(first, route.last_packed)
        free[send.receiver] = last
        events.append(
            slice_of(
                manifest.exchange_label(send),
                _track(manifest, node.node, send.receiver),
                origin + (first - node.start) * scale,
                (last - first) * scale,
                inference=capture.inference,
                tensor=send.tensor,
                bytes=route.payload_bytes,
                frames=route.frames,
                queued_ticks=route.first_queued - node.start,
            )
        )
    return events
