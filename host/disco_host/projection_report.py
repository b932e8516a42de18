"""Shows a projection: printed, and as tracks of the timeline. Every figure says that it is projected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from disco_host.trace import slice_of, track_name
from disco_targets.tables import report_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from disco_host.projection import Projected, Projection, StepProjection
    from disco_planning.replay import Activity

SHOWN_STEPS = 12
"""Longest pieces of the critical path that are printed."""


def print_projection(projection: Projection, console: Console) -> None:
    """Prints all of a projection, its assumptions last."""
    console.print(_nodes(projection))
    if projection.links:
        console.print(_links(projection))
    console.print(_path(projection))
    console.print(
        f"[bold]Projected[/] latency {projection.latency_ms:.2f} ms; exposed communication "
        f"{projection.exposed_communication_ms:.2f} ms, {100 * projection.exposed_share:.1f} % of it: "
        f"{projection.exposed_waiting_ms:.2f} ms waiting for the links, {projection.exposed_protocol_ms:.2f} ms "
        f"protocol work of the boards (kernels alone: {projection.without_communication_ms:.2f} ms). Nothing of this "
        "was measured. Assumed:",
        highlight=False,
    )
    for text in projection.assumptions:
        console.print(f"- {escape(text)}", highlight=False)


def _nodes(projection: Projection) -> Table:
    title = f"Nodes, projected with {escape(Path(projection.file).name)}"
    table = report_table(title, ("node",), ("compute ms", "protocol ms", "waiting ms", "end ms"))
    for node in projection.nodes:
        values = (node.compute_ms, node.protocol_ms, node.waiting_ms, node.end_ms)
        table.add_row(str(node.node), *(f"{value:.2f}" for value in values))
    return table


def _links(projection: Projection) -> Table:
    columns = ("bytes on the line", "frames", "busy ms", "of the latency")
    table = report_table("Links, projected", ("from → to",), columns)
    for link in projection.links:
        share = 100 * link.busy_ms / projection.latency_ms if projection.latency_ms else 0.0
        table.add_row(
            f"{link.sender} → {link.receiver}",
            f"{link.wire_bytes:,}",
            f"{link.frames:,}",
            f"{link.busy_ms:.2f}",
            f"{share:.1f} %",
        )
    return table


def _path(projection: Projection) -> Table:
    steps = projection.critical_path
    longest = set(sorted(steps, key=lambda step: step.start_ms - step.end_ms)[:SHOWN_STEPS])
    shown = [step for step in steps if step in longest]
    title = "Critical path, projected"
    if len(shown) < len(steps):
        title += f": the {len(shown)} longest of {len(steps)} steps"
    table = report_table(title, ("what",), ("where", "from ms", "to ms", "ms"))
    for step in shown:
        duration = step.end_ms - step.start_ms
        table.add_row(escape(step.label), _place(step), f"{step.start_ms:.2f}", f"{step.end_ms:.2f}", f"{duration:.2f}")
    return table


def _place(step: StepProjection) -> str:
    if step.kind == "compute":
        return f"node {step.nodes[0]}"
    return f"link {step.nodes[0]} to {step.nodes[1]}"


def add_projection(trace: dict[str, Any], nodes: int, projected: Projected) -> None:
    """Adds tracks of projected time to a Chrome trace: one per node and one per direction of a link."""
    events = trace["traceEvents"]
    first = 1 + max((event["pid"] for event in events), default=0)
    names = [f"projected: node {node}" for node in range(nodes)]
    tracks: dict[tuple[int, ...], int] = {(node,): first + node for node in range(nodes)}
    for frame in projected.replay.frames:
        if frame.nodes not in tracks:
            tracks[frame.nodes] = first + len(tracks)
            names.append(f"projected: link {frame.nodes[0]} to {frame.nodes[1]}")
    for track, name in enumerate(names, start=first):
        events.append(track_name(track, f"{name} [us]"))
    activities = [*projected.replay.frames, *(task for tasks in projected.replay.tasks for task in tasks)]
    events += [_slice(activity, tracks[activity.nodes]) for activity in activities]
    trace["metadata"]["projected"] = {
        "axis": "on tracks called projected, ts and dur are microseconds of a model: nothing of them was measured",
        "assumptions": list(projected.projection.assumptions),
    }


def _slice(activity: Activity, track: int) -> dict[str, Any]:
    size = {"bytes": activity.bytes} if activity.bytes else {}
    start_us, duration_us = 1e6 * activity.start_s, 1e6 * (activity.free_s - activity.start_s)
    return slice_of(activity.label, track, start_us, duration_us, projected=True, **size)
