"""How a node's rows and the exchanges wait for each other: what runtime/src/executor.c does, told ahead of the run."""

from __future__ import annotations

from disco_converter.kernel_choice import Kernel
from disco_converter.lowering import LoweredOp
from disco_converter.memory import MemoryPlan, open_ops
from disco_converter.partition import NodeSlice, Operand, Partition
from disco_firmware import kernel_params as k
from disco_firmware.manifest import HaloWait, NodeReceive


def row_step(cut: Partition, slice_: NodeSlice, lowered: LoweredOp, kernel: Kernel) -> int:
    """Output rows computed between two looks at the links: the kernel's where rows come or go, else all of them."""
    output = slice_.buffers[lowered.op.output].tensor
    sends = any(
        sender == slice_.node
        for exchange in cut.exchanges
        if exchange.tensor == output
        for sender, _ in exchange.routes
    )
    receives = any(_reads_halo(slice_, operand) for operand in lowered.op.operands)
    height = lowered.layer.output.height
    if not (sends or receives) or isinstance(lowered.layer.params, k.Reshape):
        return height
    return min(kernel.row_step, height)


def halo_waits(cut: Partition, slice_: NodeSlice, lowered: LoweredOp, step: int) -> tuple[HaloWait, ...]:
    """For each exchange that the op reads: how many of its rows must be there before each step."""
    numbers = {exchange.tensor: exchange.index for exchange in cut.exchanges}
    height = lowered.layer.output.height
    ends = [min(first + step, height) for first in range(0, height, step)]
    waits = []
    for operand, view in zip(lowered.op.operands, lowered.layer.inputs, strict=True):
        if _reads_halo(slice_, operand):
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


def receives(cut: Partition, slice_: NodeSlice) -> tuple[NodeReceive, ...]:
    """What comes in, in the order of `disco_model_t.receives`."""
    opened = open_ops(cut, slice_)
    return tuple(
        NodeReceive(exchange.index, sender, opened.get(exchange.tensor, 0))
        for exchange in cut.exchanges
        for sender, receiver in sorted(exchange.routes)
        if receiver == slice_.node
    )


def last_op_of_send(plan: MemoryPlan, tensor: str) -> int:
    """The op at whose end all bytes of the tensor must be with the link: after it the buffer may be written over."""
    return max(0, plan.placements[tensor].reused_from - 1)


def _reads_halo(slice_: NodeSlice, operand: Operand) -> bool:
    return len(operand.channels) > len(slice_.buffers[operand.buffer].own)
