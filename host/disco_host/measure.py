"""From the captures of the measured inferences to the figures of a run."""

from __future__ import annotations

import math
from itertools import permutations
from statistics import median
from typing import TYPE_CHECKING

from disco_firmware.manifest import REPLICATED
from disco_host.results import LinkResult, Memory, NodeResult, OpResult, StageResult
from disco_host.stats import summarise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disco_firmware.build import FirmwareImage
    from disco_firmware.manifest import Manifest, NodeOp
    from disco_firmware.protocol import OpRecord
    from disco_host.capture import InferenceCapture, NodeCapture
    from disco_host.session import NodeFacts
    from disco_host.stats import Summary


def node_results(
    manifest: Manifest,
    facts: Sequence[NodeFacts],
    captures: Sequence[InferenceCapture],
    images: Sequence[FirmwareImage | None] = (),
) -> tuple[NodeResult, ...]:
    """One result per node.

    Args:
        manifest: Of the bundle.
        facts: By node.
        captures: The measured inferences, at least one.
        images: By node, where the run built the firmware of boards; None for a node that is no board, or no images.
    """
    return tuple(
        _node_result(
            manifest,
            fact,
            [capture.nodes[fact.node] for capture in captures],
            images[fact.node] if images else None,
        )
        for fact in facts
    )


def _memory(fact: NodeFacts, last: NodeCapture, image: FirmwareImage) -> Memory | None:
    if not fact.stack_bytes:
        return None
    used = last.stack_used_bytes
    return Memory(image.flash_bytes, image.ram_bytes + used, used, fact.stack_bytes)


def _node_result(
    manifest: Manifest, fact: NodeFacts, captures: Sequence[NodeCapture], image: FirmwareImage | None
) -> NodeResult:
    stages = _stages(manifest, captures)
    together = {name for stage in stages if len(stage.ops) > 1 for name in stage.ops}
    return NodeResult(
        node=fact.node,
        board=fact.board,
        core=fact.core,
        unit=fact.unit,
        ticks_per_second=fact.ticks_per_second,
        resolution_ticks=fact.resolution_ticks,
        total=summarise([capture.end - capture.start for capture in captures]),
        compute=summarise([sum(op.compute for op in capture.ops) for capture in captures]),
        wait=summarise([sum(op.wait for op in capture.ops) for capture in captures]),
        send=summarise([sum(op.send for op in capture.ops) for capture in captures]),
        ops=tuple(
            OpResult(
                name=op.name,
                kind=op.kind,
                macs_dense=dense_macs(manifest, fact.node, op),
                macs_executed=op.macs_executed,
                **_op_figures([capture.ops[place] for capture in captures], measured=op.name not in together),
                bytes_sent=op.bytes_sent,
            )
            for place, op in enumerate(manifest.programs[fact.node].ops)
        ),
        memory=_memory(fact, captures[-1], image) if image is not None else None,
        stages=stages,
        steps=tuple(median(step) for step in zip(*(capture.steps for capture in captures), strict=True)),
    )


def _op_figures(records: Sequence[OpRecord], *, measured: bool) -> dict[str, Summary | None]:
    parts = ("compute", "wait", "send")
    return {part: summarise([getattr(record, part) for record in records]) if measured else None for part in parts}


def _stages(manifest: Manifest, captures: Sequence[NodeCapture]) -> tuple[StageResult, ...]:
    if not captures[0].stages:
        return ()
    program = manifest.programs[captures[0].node]
    parts = ("prepare", "wait", "scatter", "compute", "gather", "send")
    return tuple(
        StageResult(
            tuple(program.ops[op].name for op in stage.ops),
            *(summarise([getattr(capture.stages[place], part) for capture in captures]) for part in parts),
        )
        for place, stage in enumerate(program.stages)
    )


def dense_macs(manifest: Manifest, node: int, op: NodeOp) -> int:
    """The node's share of the op's dense MACs: all input channels, its own output channels.

    0 for ops that the exporter added (gathers): the whole model does not have them.
    """
    for info in manifest.ops:
        if info.name == op.name:
            tensor = manifest.tensor(info.output)
            owned = [c for c in op.channels if tensor.owners == REPLICATED or tensor.owners[c] == node]
            return math.ceil(info.macs_dense * len(owned) / tensor.shape[-1])
    return 0


def link_results(
    manifest: Manifest,
    captures: Sequence[InferenceCapture],
    before: InferenceCapture | None,
) -> tuple[LinkResult, ...]:
    """One result per ordered pair of nodes, also where nothing is sent.

    Args:
        manifest: Of the bundle.
        captures: The measured inferences, at least one.
        before: The last warm-up inference: retransmissions are counted from there on.
    """
    return tuple(
        LinkResult(
            sender=sender,
            receiver=receiver,
            bytes=sum(_routes(manifest, c, sender, receiver)[0] for c in captures),
            frames=sum(_routes(manifest, c, sender, receiver)[1] for c in captures),
            retransmissions=_routes(manifest, captures[-1], sender, receiver)[2]
            - (_routes(manifest, before, sender, receiver)[2] if before else 0),
        )
        for sender, receiver in permutations(range(manifest.nodes), 2)
    )


def _routes(manifest: Manifest, capture: InferenceCapture, sender: int, receiver: int) -> tuple[int, int, int]:
    """Payload bytes and frames of one inference, and retransmissions since the session began."""
    records = [
        record
        for send, record in zip(manifest.programs[sender].sends, capture.nodes[sender].routes, strict=True)
        if send.receiver == receiver
    ]
    return (
        sum(record.payload_bytes for record in records),
        sum(record.frames for record in records),
        max((record.retransmitted for record in records), default=0),
    )
