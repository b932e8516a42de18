"""One inference as a Chrome trace (chrome://tracing, ui.perfetto.dev): a track per node and one per link.

The viewers know only time. Counts of an emulated board stand in the `ts` field as they are, one count drawn as one microsecond; the
metadata and the track names say so. Each node's track starts at 0 at the start of its own run: their clocks are not aligned.
"""

from __future__ import annotations

from typing import Any

from disco_firmware.manifest import Manifest
from disco_host.capture import InferenceCapture, NodeCapture
from disco_host.results import RunResult


def chrome_trace(manifest: Manifest, result: RunResult, capture: InferenceCapture) -> dict[str, Any]:
    """The trace as a JSON object."""
    events: list[dict[str, Any]] = []
    links = _Tracks(len(capture.nodes))
    for node, facts in zip(capture.nodes, result.nodes, strict=True):
        scale = 1000.0 if facts.unit == "ns" else 1.0
        title = f"node {node.node} ({facts.board}), " + ("time" if facts.unit == "ns" else f"1 us drawn = 1 {facts.unit.removesuffix('s')}")
        events += [_name("process_name", node.node, 0, title), _name("thread_name", node.node, 0, "ops"), *_ops(manifest, node, scale)]
        events += _routes(manifest, node, scale, links)
    units = sorted({facts.unit for facts in result.nodes})
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "bundle_id": manifest.bundle_id,
            "inference": capture.inference,
            "units": units,
            "clocks": "not aligned: every node starts at 0 when its own run starts",
        },
    }


class _Tracks:
    """Numbers one track per link, behind those of the nodes."""

    def __init__(self, nodes: int) -> None:
        self._first = nodes
        self._known: dict[tuple[int, int], int] = {}

    def of(self, sender: int, receiver: int) -> tuple[int, bool]:
        """(track, whether it is new)."""
        new = (sender, receiver) not in self._known
        return self._known.setdefault((sender, receiver), self._first + len(self._known)), new


def _ops(manifest: Manifest, node: NodeCapture, scale: float) -> list[dict[str, Any]]:
    program = manifest.programs[node.node]
    return [
        {
            "name": op.name,
            "ph": "X",
            "pid": node.node,
            "tid": 0,
            "ts": (record.start - node.start) / scale,
            "dur": (record.end - record.start) / scale,
            "args": {"kind": op.kind, "compute": record.compute, "wait": record.wait, "send": record.send, "macs": op.macs_executed},
        }
        for op, record in zip(program.ops, node.ops, strict=True)
    ]


def _routes(manifest: Manifest, node: NodeCapture, scale: float, tracks: _Tracks) -> list[dict[str, Any]]:
    events = []
    for send, record in zip(manifest.programs[node.node].sends, node.routes, strict=True):
        track, new = tracks.of(node.node, send.receiver)
        if new:
            events.append(_name("process_name", track, 0, f"link {node.node} -> {send.receiver} (on the clock of node {node.node})"))
        events.append(
            {
                "name": f"exchange {send.exchange}",
                "ph": "X",
                "pid": track,
                "tid": 0,
                "ts": (record.first_queued - node.start) / scale,
                "dur": (record.last_packed - record.first_queued) / scale,
                "args": {"tensor": send.tensor, "bytes": record.payload_bytes, "frames": record.frames},
            }
        )
    return events


def _name(kind: str, process: int, thread: int, text: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": text}}
