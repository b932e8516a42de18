"""How a node's rows and the exchanges wait for each other: what runtime/src/executor.c does, told ahead of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from disco_converter.accounting import is_sent
from disco_converter.kernel_choice import Kernel
from disco_converter.lowering import LoweredOp
from disco_converter.memory import MemoryPlan
from disco_converter.node_kernels import NodeKernels
from disco_converter.partition import NodeSlice, Partition
from disco_firmware import kernel_params as k
from disco_firmware.manifest import HaloWait, NodeReceive

_ROW_BY_ROW = (k.Add, k.Mul, k.Concatenation, k.SelectChannels, k.Relu)
"""An output row of these needs the same row of each input, and no other."""
STREAMED_STEPS = 4
LEAST_STREAMED_ROWS = 4
"""A tensor that is exchanged goes in at least so many steps, unless they have fewer rows than this."""
MOST_LOOKS = 8
"""An op that streams looks at the links no more often than this, unless its kernel is a portable one: every look costs,
and what it sends a little earlier is seldom awaited."""


def streamed(cut: Partition, slice_: NodeSlice, ops: Sequence[LoweredOp]) -> tuple[LoweredOp, ...]:
    """The ops, with how many rows their kernels may compute together so that rows still stream.

    An op streams when it waits for a halo, or when what it computes is sent, or what an op computes that may be joined
    to it.
    """
    result: list[LoweredOp] = []
    for place, lowered in enumerate(ops):
        waits = any(slice_.halo_channels(operand) for operand in lowered.op.operands)
        joined = [after for after in ops[place + 1 : place + 2] if isinstance(after.layer.params, _ROW_BY_ROW)]
        streams = waits or any(is_sent(cut, slice_, one.op.output) for one in (lowered, *joined))
        height = lowered.layer.output.height
        most_rows = max(LEAST_STREAMED_ROWS, height // STREAMED_STEPS) if streams else None
        result.append(replace(lowered, layer=replace(lowered.layer, most_rows=most_rows)))
    return tuple(result)


def joined_ops(
    cut: Partition, slice_: NodeSlice, ops: Sequence[LoweredOp], kernels: Sequence[Kernel]
) -> frozenset[int]:
    """The ops whose rows are computed right after the same rows of the op before: so their rows leave earlier.

    They send what they compute, read what the op before has computed, and no halo for which they would have to wait.
    """
    joined: set[int] = set()
    first = 0
    for place, (lowered, kernel) in enumerate(zip(ops, kernels, strict=True)):
        before = ops[place - 1]
        if (
            place > 0
            and isinstance(lowered.layer.params, _ROW_BY_ROW)
            and not isinstance(before.layer.params, k.Reshape)
            and lowered.layer.output.height == before.layer.output.height > 1
            and before.op.output in {operand.buffer for operand in lowered.op.operands}
            and not any(slice_.halo_channels(operand) for operand in lowered.op.operands)
            and is_sent(cut, slice_, lowered.op.output)
            and kernels[first].row_step % kernel.row_step == 0
        ):
            joined.add(place)
        else:
            first = place
    return frozenset(joined)


def row_steps(cut: Partition, slice_: NodeSlice, program: NodeKernels) -> tuple[int, ...]:
    """For each op, the output rows that are computed between two looks at the links: those of some runs of its kernel
    where rows come or go, else all of them.
    """
    steps: list[int] = []
    for first, end in program.together():
        lowered = program.ops[first]
        height = lowered.layer.output.height
        streams = any(
            is_sent(cut, slice_, one.op.output) or any(slice_.halo_channels(operand) for operand in one.op.operands)
            for one in program.ops[first:end]
        )
        if streams and not isinstance(lowered.layer.params, k.Reshape):
            height = min(_step(program.kernels[first], height), height)
        steps += [height] * (end - first)
    return tuple(steps)


def _step(kernel: Kernel, height: int) -> int:
    """Rows of as many runs of the kernel as keep to MOST_LOOKS; portable kernels compute row by row (executor.c)."""
    runs = 1 if kernel.variant is None else -(-height // (MOST_LOOKS * kernel.row_step))
    return runs * kernel.row_step


def step_count(program: NodeKernels, steps: Sequence[int]) -> int:
    """How many steps a run has, over all ops, with the `row_steps` of each: manifest.steps_of ahead of the manifest."""
    return sum(
        (end - first) * -(-program.ops[first].layer.output.height // steps[first]) for first, end in program.together()
    )


def halo_waits(cut: Partition, slice_: NodeSlice, lowered: LoweredOp, step: int) -> tuple[HaloWait, ...]:
    """For each exchange that the op reads: how many of its rows must be there before each step."""
    numbers = {exchange.tensor: exchange.index for exchange in cut.exchanges}
    height = lowered.layer.output.height
    ends = [min(first + step, height) for first in range(0, height, step)]
    waits = []
    for operand, view in zip(lowered.op.operands, lowered.layer.inputs, strict=True):
        if slice_.halo_channels(operand):
            rows = [last_input_row(lowered.layer.params, view.height, end - 1) + 1 for end in ends[:-1]]
            waits.append(HaloWait(numbers[slice_.buffers[operand.buffer].tensor], (*rows, view.height)))
    return tuple(waits)


def last_input_row(params: k.KernelParams, height: int, row: int) -> int:
    """The last of the `height` input rows that output row `row` needs; disco_executor_last_input_row in Python."""
    window = getattr(params, "window", None)
    if isinstance(window, k.Window):
        last = row * window.stride_h + (window.kernel_h - 1) * window.dilation_h - window.pad_top
    elif isinstance(params, k.Pad):
        last = row - params.pad_top
    elif isinstance(params, (k.Mean, k.Reshape)):
        last = height - 1
    else:
        last = row  # pixel by pixel
    return min(max(last, 0), height - 1)


def receives(cut: Partition, slice_: NodeSlice, plan: MemoryPlan) -> tuple[NodeReceive, ...]:
    """What comes in, in the order of `disco_model_t.receives`."""
    return tuple(
        NodeReceive(exchange.index, sender, plan.opened.get(exchange.tensor, 0))
        for exchange in cut.exchanges
        for sender, receiver in sorted(exchange.routes)
        if receiver == slice_.node
    )


def last_op_of_send(plan: MemoryPlan, tensor: str) -> int:
    """The op at whose end all bytes of the tensor must be with the link: after it the buffer may be written over."""
    return max(0, plan.placements[tensor].reused_from - 1)
