"""Proves on the host that the sliced network equals the whole one, bit for bit, in TFLite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from disco_converter import graph as g
from disco_converter.partition import NodeSlice, Operand, Partition
from disco_converter.stages import Stage
from disco_firmware.reference import REFERENCE, TfliteModel
from disco_targets.errors import DiscoError


@dataclass(frozen=True)
class SliceFile:
    """One stage of one node as a .tflite file."""

    stage: Stage
    content: bytes


@dataclass(frozen=True, eq=False)
class Proof:
    """What was compared: all of it was equal."""

    inferences: int
    elements: int
    outputs: tuple[g.Int8Array, ...]
    """Per model output: [n, *shape[1:]] of the whole model."""


def prove(
    partition: Partition,
    reference: bytes,
    slices: tuple[tuple[SliceFile, ...], ...],
    inputs: g.Int8Array,
    progress: Callable[[], None] = lambda: None,
    mode: str = REFERENCE,
) -> Proof:
    """Runs the whole model and the chained stages on every input and compares every op's output.

    Args:
        partition: The cut.
        reference: The whole model (.tflite).
        slices: Per node its stages in order.
        inputs: int8 [n, *input shape without batch].
        progress: Called after each input.
        mode: Which kernels compute, one of reference.MODES.

    Raises:
        DiscoError: The first op, node and channel that differ, with both values.
    """
    whole = TfliteModel(reference, "the whole model", mode=mode, observe=True)
    chain = _Chain(partition, slices, mode)
    outputs: list[list[g.Int8Array]] = [[] for _ in partition.graph.outputs]
    elements = 0
    for number, sample in enumerate(inputs):
        whole.run([sample[None]])
        golden = {name: whole.tensor(tensor.index) for name, tensor in partition.graph.tensors.items()}
        for node, operand, value in chain.run(sample[None]):
            elements += _compare(partition, golden, node, operand, value, f"{number} with {mode} kernels")
        elements += _compare_constants(partition.graph, golden, number)
        for place, name in enumerate(partition.graph.outputs):
            outputs[place].append(golden[name][0])
        progress()
    return Proof(len(inputs), elements, tuple(np.array(output) for output in outputs))


class _Chain:
    """All stages of all nodes, exchanging what the partition lists and nothing else."""

    def __init__(self, partition: Partition, slices: tuple[tuple[SliceFile, ...], ...], mode: str) -> None:
        self._partition = partition
        ordered = sorted(
            (f for files in slices for f in files), key=lambda f: (f.stage.level, f.stage.node, f.stage.index)
        )
        self._stages = [(f.stage, TfliteModel(f.content, _name(f.stage), mode=mode, observe=True)) for f in ordered]

    def run(self, sample: g.Int8Array) -> Iterator[tuple[int, tuple[str, str], g.Int8Array]]:
        """Yields (node, (buffer, op name), computed channels of its output) for every op."""
        values: list[dict[str, g.Int8Array]] = [
            {self._partition.graph.input: sample} for _ in range(self._partition.nodes)
        ]
        for stage, model in self._stages:
            slice_ = self._partition.slices[stage.node]
            model.run([np.ascontiguousarray(self._operand(values, slice_, operand)) for operand in stage.inputs])
            for op in stage.ops:
                value = model.tensor(model.tensor_index(op.output))
                values[stage.node][op.output] = value
                yield stage.node, (op.output, op.name), value

    def _operand(self, values: list[dict[str, g.Int8Array]], slice_: NodeSlice, operand: Operand) -> g.Int8Array:
        """The channels that the node computed, then the halo channels that their owners computed."""
        buffer = slice_.buffers[operand.buffer]
        parts = [values[slice_.node][operand.buffer]] if buffer.computed else []
        if slice_.halo_channels(operand):
            parts += [self._received(values, buffer.tensor, sender, channels) for sender, channels in buffer.halo]
        return np.concatenate(parts, axis=-1)[..., : len(operand.channels)]

    def _received(
        self, values: list[dict[str, g.Int8Array]], tensor: str, sender: int, channels: tuple[int, ...]
    ) -> g.Int8Array:
        computed = self._partition.slices[sender].buffers[tensor].computed
        value: g.Int8Array = values[sender][tensor][..., [computed.index(channel) for channel in channels]]
        return value


def _name(stage: Stage) -> str:
    return f"stage {stage.index} of node {stage.node}"


def _compare(
    partition: Partition,
    golden: dict[str, g.Int8Array],
    node: int,
    place: tuple[str, str],
    value: g.Int8Array,
    which: str,
) -> int:
    name, op = place
    buffer = partition.slices[node].buffers[name]
    expected = golden[buffer.tensor][..., list(buffer.computed)]
    if expected.shape != value.shape or (expected != value).any():
        raise DiscoError(_difference(buffer.tensor, buffer.computed, node, op, expected, value, which))
    return int(value.size)


def _compare_constants(graph: g.Graph, golden: dict[str, g.Int8Array], number: int) -> int:
    elements = 0
    for name, constants in graph.constants.items():
        values = golden[name][..., list(constants)]
        wrong = np.argwhere(values != np.array(list(constants.values())))
        if len(wrong):
            channel = list(constants)[int(wrong[0][-1])]
            raise DiscoError(
                f"channel {channel} of tensor {name!r} is not constant, see input {number}; this is a bug of "
                "disco-edge, please report it"
            )
        elements += values.size
    return elements


def _difference(
    tensor: str, computed: tuple[int, ...], node: int, op: str, expected: g.Int8Array, value: g.Int8Array, which: str
) -> str:
    if expected.shape != value.shape:
        return (
            f"{op} on node {node} has shape {list(value.shape)}, not {list(expected.shape)}: this is a bug of "
            "disco-edge, please report it"
        )
    first = tuple(int(i) for i in np.argwhere(expected != value)[0])
    return (
        f"the sliced network differs from the whole one: input {which}, {op} on node {node}, tensor {tensor!r}, "
        f"channel {computed[first[-1]]}, position {list(first[1:-1])}: {value[first]} instead of {expected[first]}; "
        "this is a bug of disco-edge, please report it"
    )
