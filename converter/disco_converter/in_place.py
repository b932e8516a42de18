"""Which buffers share their place: what works value by value is computed over an input that nobody reads any more.

Every kernel of such an op reads a value before it writes the result of that value, so that no copy is needed. Where
the result has halo channels, which may come in before it is computed, the input gets gaps of their size.
"""

from __future__ import annotations

import dataclasses

from disco_converter import graph as g
from disco_converter.accounting import is_sent
from disco_converter.partition import NodeSlice, Partition

_BY_VALUE = (g.Add, g.Mul, g.Activation)


def with_shared_places(cut: Partition) -> Partition:
    """The same cut, the buffers of each node laid out so that they can share their places."""
    return dataclasses.replace(cut, slices=tuple(_shared(cut, slice_) for slice_ in cut.slices))


def _shared(cut: Partition, slice_: NodeSlice) -> NodeSlice:
    buffers, in_place = dict(slice_.buffers), {}
    for place in reversed(range(len(slice_.ops))):  # the end of a chain says how far apart its pixels are
        op = slice_.ops[place]
        candidates = [
            operand.buffer for operand in op.operands if _may_be_overwritten(cut, slice_, place, operand.buffer)
        ]
        if isinstance(op.params, _BY_VALUE) and candidates:
            name = max(candidates, key=lambda buffer: _made_by(slice_, buffer))  # the least time with gaps
            buffers[name] = dataclasses.replace(
                buffers[name], gap=buffers[op.output].stride - len(buffers[name].computed)
            )
            in_place[name] = op.output
    return dataclasses.replace(slice_, buffers=buffers, in_place=in_place)


def _may_be_overwritten(cut: Partition, slice_: NodeSlice, place: int, name: str) -> bool:
    """Whether nobody needs the buffer behind the op, and the op computes as many values from it as it has."""
    op, buffer = slice_.ops[place], slice_.buffers[name]
    tensors = cut.graph.tensors
    kept = name == cut.graph.input or name in cut.graph.outputs or bool(buffer.halo) or is_sent(cut, slice_, name)
    return (
        not kept
        and len(buffer.computed) == len(slice_.buffers[op.output].computed)
        and tensors[buffer.tensor].plane == tensors[slice_.buffers[op.output].tensor].plane
        and not any(name == operand.buffer for later in slice_.ops[place + 1 :] for operand in later.operands)
    )


def _made_by(slice_: NodeSlice, name: str) -> int:
    outputs: list[str] = [op.output for op in slice_.ops]
    return outputs.index(name) if name in outputs else -1
