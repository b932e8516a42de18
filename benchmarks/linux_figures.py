"""What the Linux benchmark makes of a run: the time in computation and in exchanges, and what the model predicts.

Both nodes are on one machine and read one monotonic clock, so their stamps are compared as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from disco_firmware.manifest import Manifest
from disco_firmware.protocol import Channels, StageRecord
from disco_firmware.stream_link import FRAME_HEADER
from disco_host.capture import InferenceCapture, NodeCapture
from disco_host.node.program import sends_in_order
from disco_planning.replay import replay
from disco_planning.replay_graph import Arrival, Graph, Link, Part, Protocol, Stream, Task

NS = 1e-9
HEADER_BYTES = FRAME_HEADER.size + Channels.HEADER_BYTES
"""In front of the channels of an exchange."""
SEGMENT_BYTES, SEGMENT_OVERHEAD = 1448, 66
"""Payload of a TCP segment with time stamps on Ethernet, and its headers, which the token bucket counts too."""


@dataclass(frozen=True)
class MeasuredLink:
    """The link between two nodes."""

    bytes_per_second: float
    """Of TCP payload, one way."""
    latency_s: float
    """From the end of the send of a small message to its receiver's having it."""
    burst_bytes: int
    """That pass at once after a pause."""


def latency_ms(capture: InferenceCapture) -> float:
    """From the start of the first node to the end of the last."""
    return (max(node.end for node in capture.nodes) - min(node.start for node in capture.nodes)) / 1e6


def compute_ms(capture: InferenceCapture) -> float:
    """In the kernels, of the node that takes longer."""
    return max(sum(stage.compute for stage in node.stages) for node in capture.nodes) / 1e6


def exchange_ms(manifest: Manifest, capture: InferenceCapture) -> float:
    """In exchanges: of every stage that waits for one, from the moment when all that it reads is computed, on whichever
    node, to the moment when it begins to compute; of the node that takes longer.
    """
    return max(_exchange_ns(manifest, capture, node) for node in capture.nodes) / 1e6


def _exchange_ns(manifest: Manifest, capture: InferenceCapture, node: NodeCapture) -> int:
    total = 0
    for place, stage in enumerate(manifest.programs[node.node].stages):
        senders = {(part.exchange, part.sender) for x in stage.inputs for part in x.halo}
        ready = [computed(capture.nodes[sender].stages[producer(manifest, e, sender)]) for e, sender in senders]
        if ready:
            record = node.stages[place]
            total += computed(record) - record.compute - max(*ready, computed(node.stages[place - 1]))
    return total


def computed(record: StageRecord) -> int:
    """When a stage had computed."""
    return record.end - record.gather - record.send


def producer(manifest: Manifest, exchange: int, sender: int) -> int:
    """The sender's stage that computes the tensor of an exchange."""
    tensor = manifest.exchanges[exchange].tensor
    return next(k for k, stage in enumerate(manifest.programs[sender].stages) if tensor in stage.outputs)


def sent_bytes(manifest: Manifest) -> int:
    """Payload of one inference in the direction that carries more."""
    return max((sum(send.bytes for send in program.sends) for program in manifest.programs), default=0)


def predicted_ms(manifest: Manifest, capture: InferenceCapture, link: MeasuredLink) -> float:
    """The latency as the max-plus replay gives it: every node's own work per stage as measured in this inference, every
    byte over the link as measured, each node beginning when it did.
    """
    start = min(node.start for node in capture.nodes)
    works = [_work(manifest, node) for node in capture.nodes]
    sends = [(node, send) for node, program in enumerate(manifest.programs) for send in sends_in_order(program)]
    numbers = {(send.exchange, node, send.receiver): number for number, (node, send) in enumerate(sends)}
    nodes, sent = [], {}
    for node, work in enumerate(works):
        tasks = [Task("start", (capture.nodes[node].start - start) * NS)]
        for place, stage in enumerate(manifest.programs[node].stages):
            prepare, run, send_each, gather_each = work[place]
            parts = {(part.exchange, part.sender) for x in stage.inputs for part in x.halo}
            needs = [numbers[exchange, sender, node] for exchange, sender in sorted(parts)]
            arrivals = tuple(Arrival(number, HEADER_BYTES + sends[number][1].bytes) for number in needs)
            tasks += [Task(f"prepare {place}", prepare), Task(f"stage {place}", run, arrivals)]
            for number, (sender, send) in enumerate(sends):
                if sender == node and send.tensor in stage.outputs:
                    tasks.append(Task("gather and send", gather_each + send_each))
                    sent[number] = len(tasks) - 1
        ended = capture.nodes[node].stages[-1].end
        nodes.append((*tasks, Task("end", (capture.nodes[node].end - ended) * NS)))
    streams = tuple(
        Stream(f"exchange {send.exchange}", node, send.receiver, (Part(HEADER_BYTES + send.bytes, sent[number]),))
        for number, (node, send) in enumerate(sends)
    )
    pairs = [(a, b) for a in range(manifest.nodes) for b in range(a + 1, manifest.nodes)]
    wire_rate = link.bytes_per_second * (SEGMENT_BYTES + SEGMENT_OVERHEAD) / SEGMENT_BYTES
    links = tuple(Link(pair, wire_rate, link.latency_s, burst_bytes=link.burst_bytes) for pair in pairs)
    protocol = Protocol(SEGMENT_BYTES, SEGMENT_OVERHEAD)
    return replay(Graph(tuple(nodes), streams, links, protocol)).latency_s * 1e3


def _work(manifest: Manifest, node: NodeCapture) -> list[tuple[float, ...]]:
    """Seconds per stage: preparing (from the end of the stage before), computing (with all that is neither waiting nor
    listed), one send, one gather.
    """
    program = manifest.programs[node.node]
    before = node.start
    result: list[tuple[float, ...]] = []
    for stage, record in zip(program.stages, node.stages, strict=True):
        count = max(1, sum(send.tensor in stage.outputs for send in program.sends))
        others = record.end - record.start - record.prepare - record.wait - record.gather - record.send
        prepare = record.start - before + record.prepare
        before = record.end
        result.append((prepare * NS, others * NS, record.send * NS / count, record.gather * NS / count))
    return result
