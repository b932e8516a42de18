"""What the firmware of each node is made of: the kernel of each op, the memory plan, the generated source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from disco_converter.c_model import ModelSource, Provenance, model_source
from disco_converter.fit import kernel_limits
from disco_converter.kernel_choice import choose_kernels
from disco_converter.lowering import lower
from disco_converter.memory import MemoryPlan, plan_memory
from disco_converter.node_kernels import NodeKernels
from disco_converter.overlap import overlaps_of
from disco_converter.partition import NodeSlice, Partition
from disco_converter.streaming import joined_ops, streamed
from disco_firmware.manifest import SCHEMA_VERSION
from disco_firmware.protocol import MODEL_ABI, PROTOCOL_VERSION
from disco_targets.board import Board

MOST_C_BYTES = 4 << 20
"""Of constants as C source: compilers take minutes and gigabytes for more. Only nodes that can do without have more."""


@dataclass(frozen=True)
class Origin:
    """The model that was given."""

    name: str
    sha256: str
    """Of the file as given."""
    content: bytes
    """The full-int8 .tflite file."""


@dataclass(frozen=True, eq=False)
class NodeFirmware:
    """One node."""

    slice_: NodeSlice
    board: Board
    program: NodeKernels
    plan: MemoryPlan
    provenance: Provenance
    source: ModelSource | None
    """None where the node can do without and has more constants than MOST_C_BYTES."""

    @property
    def constant_bytes(self) -> int:
        """The model's part of the flash."""
        if self.source is not None:
            return self.source.constant_bytes
        return _constant_bytes(self.program)


def firmware_of(cut: Partition, boards: Sequence[Board], optimize: str, origin: Origin) -> tuple[NodeFirmware, ...]:
    """The firmware of all nodes of a cut; nothing is written yet.

    Args:
        cut: The cut graph.
        boards: By node.
        optimize: One of kernel_choice.OPTIMIZE.
        origin: Where the graph came from.
    """
    bundle_id = _bundle_id(cut, tuple(board.name for board in boards), optimize, origin)
    return tuple(
        _node(cut, slice_, board, optimize, Provenance(version("disco-edge"), origin.name, origin.sha256, bundle_id))
        for slice_, board in zip(cut.slices, boards, strict=True)
    )


def _node(cut: Partition, slice_: NodeSlice, board: Board, optimize: str, provenance: Provenance) -> NodeFirmware:
    ops = streamed(cut, slice_, lower(cut, slice_))
    limits = kernel_limits(cut, slice_, board)
    kernels = choose_kernels(ops, limits, optimize)
    program = NodeKernels(ops, kernels, joined_ops(cut, slice_, ops, kernels))
    plan = plan_memory(cut, slice_, program.scratch_bytes, program.together(), overlaps_of(cut, slice_, program))
    source = None
    if not (board.tflite and _constant_bytes(program) > MOST_C_BYTES):
        recorded = records_steps(board, cut.nodes)
        source = model_source(cut, slice_, program, plan, board.name, provenance, records_steps=recorded)
    return NodeFirmware(slice_, board, program, plan, provenance, source)


def records_steps(board: Board, nodes: int) -> bool:
    """Whether its firmware records what each step computes: runs of emulated boards can be replayed."""
    return nodes > 1 and board.emulator is not None


def _constant_bytes(program: NodeKernels) -> int:
    return sum(kernel.constants.bytes for kernel in program.kernels)


def _bundle_id(cut: Partition, targets: tuple[str, ...], optimize: str, origin: Origin) -> str:
    """The same for the same model, cut, targets, kernels and versions: what all nodes must agree on."""
    routes = [[e.tensor, sorted((list(pair), channels) for pair, channels in e.routes.items())] for e in cut.exchanges]
    versions = [SCHEMA_VERSION, version("disco-edge"), MODEL_ABI, PROTOCOL_VERSION]
    order = [op.index for op in cut.graph.ops]
    constants = {tensor: sorted(values.items()) for tensor, values in cut.graph.constants.items()}
    computed = [{name: buffer.computed for name, buffer in slice_.buffers.items()} for slice_ in cut.slices]
    facts = [*versions, targets, optimize, routes, order, constants, computed]
    return hashlib.sha256(json.dumps(facts).encode() + hashlib.sha256(origin.content).digest()).hexdigest()[:32]
