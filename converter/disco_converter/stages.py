"""Groups a node's ops into stages: what it computes without an exchange in between.

Where an op's output is sent, a stage ends: what else can be computed before the next exchange is needed (the
convolution of a shortcut) is a stage of its own, computed while the bytes are under way.
"""

from __future__ import annotations

from dataclasses import dataclass

from disco_converter.accounting import is_sent
from disco_converter.partition import NodeSlice, Operand, Partition, SlicedOp


@dataclass(frozen=True, eq=False)
class Stage:
    """Some ops of one node, with what goes in and out."""

    node: int
    index: int
    """Of the node's stages, in the order in which they run."""
    level: int
    """How many exchanges lie before it at most: what it reads of other nodes is of a lower level."""
    ops: tuple[SlicedOp, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[str, ...]
    """Buffers (computed channels) that a later stage, an exchange or the host reads."""


def stages_of(partition: Partition, slice_: NodeSlice) -> tuple[Stage, ...]:
    """The stages of one node in order."""
    groups = _groups(partition, slice_)
    return tuple(_stage(partition, slice_, groups, index) for index in range(len(groups)))


def stage_file(stage: Stage) -> str:
    """Where the stage lies in the bundle."""
    return f"node{stage.node}/stages/stage{stage.index:02d}.tflite"


def is_internal(slice_: NodeSlice, produced: set[str], operand: Operand) -> bool:
    """Whether the operand is the computed part of a buffer that this stage itself writes."""
    return operand.buffer in produced and not slice_.halo_channels(operand)


def _groups(partition: Partition, slice_: NodeSlice) -> list[list[SlicedOp]]:
    """The ops by level, each level cut behind what is sent."""
    groups: list[list[SlicedOp]] = []
    for level in sorted({partition.stages[op.source.index] for op in slice_.ops}):
        groups.append([])
        for op in slice_.ops:
            if partition.stages[op.source.index] == level:
                if groups[-1] and is_sent(partition, slice_, groups[-1][-1].output):
                    groups.append([])
                groups[-1].append(op)
    return groups


def _stage(partition: Partition, slice_: NodeSlice, groups: list[list[SlicedOp]], index: int) -> Stage:
    ops = tuple(groups[index])
    produced = {op.output for op in ops}
    inputs = [operand for op in ops for operand in op.operands if not is_internal(slice_, produced, operand)]
    later = {operand.buffer for group in groups[index + 1 :] for op in group for operand in op.operands}
    wanted = later | {exchange.tensor for exchange in partition.exchanges} | set(partition.graph.outputs)
    outputs = tuple(op.output for op in ops if op.output in wanted)
    level = partition.stages[ops[0].source.index]
    return Stage(slice_.node, index, level, ops, tuple(dict.fromkeys(inputs)), outputs)
