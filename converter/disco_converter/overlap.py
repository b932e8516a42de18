"""Where the output of an op may lie over its input: behind the rows that are still to be read.

A convolution that goes through its rows from top to bottom needs no input row above those of the window of its next
output row. So the output may be written over what has been read, if it begins far enough before the input never to
catch up with what has not ("Diagonal Memory Optimisation for Machine Learning on Micro-controllers", Blacker, Bridges
and Hadfield, 2020). A depthwise convolution that takes some channels of many rows at a time may be written channel over
channel: over the rows that its windows begin with, or where it takes all rows at once over the input itself.
"""

from __future__ import annotations

from disco_converter.accounting import is_sent
from disco_converter.memory import place_of
from disco_converter.node_kernels import NodeKernels
from disco_converter.partition import NodeSlice, Partition
from disco_converter.placement import ALIGNMENT, Overlap, Overlaps
from disco_firmware import kernel_params as k
from disco_firmware.variants.base import Layer, Variant, first_row


def overlaps_of(cut: Partition, slice_: NodeSlice, program: NodeKernels) -> Overlaps:
    """For each op whose output may lie over its input: how.

    Not where rows of the input may still have to be sent when it is overwritten, nor where halo channels of the output
    may come in before the input is read.
    """
    return {
        (place_of(slice_, lowered.op.output), place_of(slice_, lowered.op.operands[0].buffer)): overlap
        for index, (lowered, kernel) in enumerate(program)
        if _is_free(cut, slice_, index)
        for overlap in [overlap_of(lowered.layer, kernel.variant)]
        if overlap is not None
    }


def overlap_of(layer: Layer, variant: Variant | None) -> Overlap | None:
    """How the output of an op may lie over its input; None where that wins nothing.

    Args:
        layer: The op.
        variant: Of its kernel; None for the portable one, which computes row by row.
    """
    window = getattr(layer.params, "window", None)
    if not isinstance(window, k.Window):
        return None
    view, output = layer.inputs[0], layer.output
    in_row, out_row = view.width * view.stride, output.width * output.stride
    rows = 1 if variant is None else variant.rows_at_once(layer)
    distance = 0
    for begin in range(0, output.height, rows):
        end = min(begin + rows, output.height)
        unread = first_row(window, begin) if variant is None else variant.first_unread(layer, begin, end)
        distance = max(distance, end * out_row - min(max(unread, 0), view.height) * in_row)
    above = window.pad_top * in_row if rows < output.height else 0
    alike = (view.width, view.stride, window.stride_h, window.stride_w) == (output.width, output.stride, 1, 1)
    by_channels = variant is not None and variant.by_channels(layer)
    exactly = above if by_channels and alike and above < distance and above % ALIGNMENT == 0 else None
    overlap = Overlap(distance, exactly)
    return overlap if overlap.least < output.height * out_row else None


def _is_free(cut: Partition, slice_: NodeSlice, index: int) -> bool:
    op = slice_.ops[index]
    source, target = place_of(slice_, op.operands[0].buffer), place_of(slice_, op.output)
    read_later = any(
        place_of(slice_, operand.buffer) == source for later in slice_.ops[index + 1 :] for operand in later.operands
    )
    kept = read_later or is_sent(cut, slice_, source) or source in cut.graph.outputs
    return not (kept or slice_.buffers[target].halo)
