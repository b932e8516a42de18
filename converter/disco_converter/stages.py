"""Groups a node's ops into stages: what it computes between two exchanges."""

from __future__ import annotations

from dataclasses import dataclass

from disco_converter.partition import NodeSlice, Operand, Partition, SlicedOp


@dataclass(frozen=True, eq=False)
class Stage:
    """The ops of one node between two exchanges, with what goes in and out."""

    node: int
    index: int
    ops: tuple[SlicedOp, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[str, ...]
    """Buffers (own channels) that a later stage, an exchange or the host reads."""


def stages_of(partition: Partition, slice_: NodeSlice) -> tuple[Stage, ...]:
    """The stages of one node in order; stages in which it has no op are left out."""
    indices = sorted({partition.stages[op.source.index] for op in slice_.ops})
    return tuple(_stage(partition, slice_, index) for index in indices)


def stage_file(stage: Stage) -> str:
    """Where the stage lies in the bundle."""
    return f"node{stage.node}/stages/stage{stage.index:02d}.tflite"


def is_internal(slice_: NodeSlice, produced: set[str], operand: Operand) -> bool:
    """Whether the operand is the own part of a buffer that this stage itself writes."""
    return operand.buffer in produced and len(operand.channels) <= len(slice_.buffers[operand.buffer].own)


def _stage(partition: Partition, slice_: NodeSlice, index: int) -> Stage:
    ops = tuple(op for op in slice_.ops if partition.stages[op.source.index] == index)
    produced = {op.output for op in ops}
    inputs = [operand for op in ops for operand in op.operands if not is_internal(slice_, produced, operand)]
    wanted = _read_outside(partition, slice_, index)
    outputs = tuple(op.output for op in ops if op.output in wanted)
    return Stage(slice_.node, index, ops, tuple(dict.fromkeys(inputs)), outputs)


def _read_outside(partition: Partition, slice_: NodeSlice, index: int) -> set[str]:
    later = {
        operand.buffer for op in slice_.ops if partition.stages[op.source.index] > index for operand in op.operands
    }
    sent = {exchange.tensor for exchange in partition.exchanges}
    return later | sent | set(partition.graph.outputs)
