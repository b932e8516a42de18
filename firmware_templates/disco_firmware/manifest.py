"""The schema of `bundle.json`: what `disco-export` writes and what everything downstream reads.

Channels are indices along the last axis of a tensor of the whole model. A node keeps a tensor as pixels of the channels
that it *computes* (its own, rising, then those of other nodes that it recomputes instead of receiving them, rising)
followed by *halo* channels (received ones, grouped by sending node, rising within a group).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from disco_targets.errors import DiscoError
from disco_targets.records import record

SCHEMA_VERSION = 6
REPLICATED = "replicated"
NOBODY = -1


def _height(shape: tuple[int, ...]) -> int:
    return shape[1] if len(shape) > 2 else 1


@dataclass(frozen=True)
class TensorInfo:
    """One activation of the whole model (shape as in the .tflite file, batch included)."""

    name: str
    index: int
    """Tensor index in reference.tflite."""
    shape: tuple[int, ...]
    scale: float
    zero_point: int
    owners: str | tuple[int, ...]
    """REPLICATED, or the owner of each channel, who computes it (others may, too): NOBODY where it is constant."""
    constants: tuple[int, ...] = ()
    """Values of the channels that nobody computes, for every input and pixel, in their order."""

    @property
    def height(self) -> int:
        """Rows."""
        return _height(self.shape)

    @property
    def constant_channels(self) -> tuple[int, ...]:
        """The channels that nobody computes."""
        owners = () if isinstance(self.owners, str) else self.owners
        return tuple(channel for channel, owner in enumerate(owners) if owner == NOBODY)


@dataclass(frozen=True)
class Route:
    """The channels of one exchange that go from one node to another."""

    sender: int
    receiver: int
    channels: tuple[int, ...]
    bytes: int
    """Payload per inference: height * width * channels."""


@dataclass(frozen=True)
class Exchange:
    """The sending of all transmitted channels of one tensor."""

    index: int
    tensor: str
    routes: tuple[Route, ...]


@dataclass(frozen=True)
class OpInfo:
    """One op of the whole model."""

    index: int
    name: str
    kind: str
    """TFLite's name of the builtin operator, e.g. CONV_2D."""
    inputs: tuple[str, ...]
    """Activations only; weights and biases are not listed."""
    output: str
    macs_dense: int
    stage: int
    """How many exchanges lie on the longest path before it."""
    sub_rows: int
    """Off-diagonal sub-rows: (input channel, other node) pairs; 0 for local ops."""
    sub_rows_pruned: int
    """Those whose int8 weights are all zero."""
    sub_rows_recomputed: int
    """Those of the others for which nothing is sent, because the other node computes the channel for itself."""

    @property
    def communication_sparsity(self) -> float | None:
        """S_comm, None where there is nothing to send."""
        return self.sub_rows_pruned / self.sub_rows if self.sub_rows else None


@dataclass(frozen=True)
class HaloWait:
    """The received rows that an op of a node waits for."""

    exchange: int
    rows: tuple[int, ...]
    """Of the exchanged tensor, that must be there before each step of the op; all before the last."""


@dataclass(frozen=True)
class NodeOp:
    """One op as a node's program runs it, in the order of `disco_model_t.ops` and of the OPS records."""

    name: str
    kind: str
    output: str
    channels: tuple[int, ...]
    """Channels of `output` that the op computes on this node, in buffer order."""
    output_shape: tuple[int, ...]
    output_bytes: int
    """RAM of the output's buffer, halo channels included."""
    macs_executed: int
    channels_received: int
    channels_sent: int
    """Summed over the receiving nodes."""
    bytes_sent: int
    """Payload bytes of this op's output that leave the node in one inference."""
    kernel: str
    """Name of the kernel variant, or "portable"."""
    constant_bytes: int
    """Flash: weights as the kernel wants them, bias, requantisation."""
    scratch_bytes: int
    """RAM beside the activations while the op runs."""
    instructions_predicted: int
    """By the kernel's cost formula, for one inference."""
    row_step: int
    """Output rows computed between two looks at the links: a step."""
    joined: bool
    """Each of its steps is computed right after the same step of the op before."""
    waits: tuple[HaloWait, ...]

    @property
    def height(self) -> int:
        """Rows of the output."""
        return _height(self.output_shape)


@dataclass(frozen=True)
class Step:
    """Rows of an op that a node computes between two looks at the links."""

    op: int
    """Its place in the program."""
    number: int
    """Among the op's."""
    row: int
    """The first."""
    rows: int


def steps_of(ops: Sequence[NodeOp]) -> tuple[Step, ...]:
    """All steps of a node's program in the order in which it computes them: executor.c."""
    return tuple(
        Step(place, number, row, min(ops[first].row_step, height - row))
        for first, end in runs_of_ops([op.joined for op in ops])
        for height in [ops[first].height]
        for number, row in enumerate(range(0, height, ops[first].row_step))
        for place in range(first, end)
    )


def runs_of_ops(joined: Sequence[bool]) -> tuple[tuple[int, int], ...]:
    """(first, end) of the ops that are computed together, each alone where nothing is joined to it; `joined` by op."""
    firsts = [place for place, to_the_one_before in enumerate(joined) if not to_the_one_before]
    return tuple(zip(firsts, [*firsts[1:], len(joined)], strict=True))


@dataclass(frozen=True)
class NodeSend:
    """One send of a node's program, in the order of `disco_model_t.sends` and of the ROUTES records."""

    exchange: int
    tensor: str
    receiver: int
    bytes: int
    last_op: int
    """All bytes must be with the link when this op has ended."""


@dataclass(frozen=True)
class NodeReceive:
    """One receive of a node's program, in the order of `disco_model_t.receives`."""

    exchange: int
    sender: int
    open_op: int
    """From the start of this op on the sender may send."""


@dataclass(frozen=True)
class NodeOutput:
    """The share of one model output that a node sends to the host."""

    tensor: str
    channels: tuple[int, ...]
    """In buffer order; empty when the node sends nothing of it."""


@dataclass(frozen=True)
class HaloPart:
    """Received channels at the end of a stage's input."""

    exchange: int
    sender: int
    channels: int
    """The first so many of the route's channels."""


@dataclass(frozen=True)
class StageInput:
    """One input of a stage's .tflite file: per pixel computed channels of a buffer, then the halo's parts in order."""

    buffer: str
    """An output of an earlier stage, or the model's input."""
    computed: int
    """The first so many of the channels that the node computes."""
    halo: tuple[HaloPart, ...]


@dataclass(frozen=True)
class NodeStage:
    """What a node computes without waiting in between, as one .tflite file."""

    file: str
    """In the bundle, with / between folders."""
    inputs: tuple[StageInput, ...]
    outputs: tuple[str, ...]
    """Buffers (computed channels) that a later stage, an exchange or the host reads. A buffer that is sent or that goes
    to the host is called like its tensor."""
    ops: tuple[int, ...]
    """Places in the node's `ops`."""
    buffers: tuple[str, ...]
    """What each of these ops writes: the name of a tensor in the file."""


@dataclass(frozen=True)
class NodeProgram:
    """What one node runs, and what it takes."""

    node: int
    target: str
    ops: tuple[NodeOp, ...]
    sends: tuple[NodeSend, ...]
    receives: tuple[NodeReceive, ...]
    outputs: tuple[NodeOutput, ...]
    stages: tuple[NodeStage, ...]
    """The same program for TFLite: run one after the other, what each writes being sent at its end."""
    arena_bytes: int
    """Activations and scratch memory."""
    arena_bound_bytes: int
    """No placement of them takes less: the largest sum of what is in use in one op, an output over its input counted
    once."""
    constant_bytes: int
    """Weights, biases, requantisation tables and descriptors: the model's part of the flash."""


@dataclass(frozen=True)
class ModelInfo:
    """Where the bundle came from."""

    name: str
    sha256: str
    """Of the file given to disco-export."""
    reference_sha256: str
    """Of reference.tflite."""


@dataclass(frozen=True)
class Manifest:
    """The whole of bundle.json (files and their hashes are kept beside it by bundle.py)."""

    schema: int
    tool_version: str
    bundle_id: str
    """32 hexadecimal digits, compiled into every node."""
    model: ModelInfo
    nodes: int
    targets: tuple[str, ...]
    input: str
    outputs: tuple[str, ...]
    tensors: tuple[TensorInfo, ...]
    ops: tuple[OpInfo, ...]
    exchanges: tuple[Exchange, ...]
    programs: tuple[NodeProgram, ...]

    def tensor(self, name: str) -> TensorInfo:
        """The tensor called `name` (KeyError when there is none)."""
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(name)

    def exchange_label(self, send: NodeSend) -> str:
        """For tables and traces: its number, and the op that makes its tensor."""
        maker = next((op.name for op in self.ops if op.output == send.tensor), send.tensor)
        return f"exchange {send.exchange}: {maker}"

    def to_json(self) -> dict[str, Any]:
        """Plain lists, dicts, strings and numbers."""
        data: dict[str, Any] = dataclasses.asdict(self)
        return data

    @staticmethod
    def from_json(data: Any) -> Manifest:
        """Strict inverse of to_json: DiscoError on another schema, unknown or missing keys, wrong types."""
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != SCHEMA_VERSION:
            raise DiscoError(
                f"bundle.json has schema {schema!r}; this version of disco-edge reads schema {SCHEMA_VERSION}: "
                "export the model again with disco-export"
            )
        manifest = record(Manifest, data, "bundle.json")
        if not manifest.nodes == len(manifest.targets) == len(manifest.programs) > 0:
            raise DiscoError(
                f"bundle.json is for {manifest.nodes} nodes, but has {len(manifest.targets)} targets and "
                f"{len(manifest.programs)} programs: export the model again"
            )
        return manifest
