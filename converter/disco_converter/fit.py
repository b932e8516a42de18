"""Checks before anything is built that each node's share fits its board."""

from __future__ import annotations

from disco_converter.c_model import ModelSource, NodeKernels
from disco_converter.kernel_choice import Limits
from disco_converter.memory import MemoryPlan, plan_memory
from disco_converter.partition import NodeSlice, Partition
from disco_firmware.footprint import RUNTIME_FLASH_BYTES, ram_bytes
from disco_targets.board import Board
from disco_targets.errors import DiscoError


def check_fit(
    cut: Partition,
    programs: tuple[NodeKernels, ...],
    plans: tuple[MemoryPlan, ...],
    sources: tuple[ModelSource, ...],
    boards: tuple[Board, ...],
) -> None:
    """DiscoError when a node needs more flash or RAM than its board has: by how much, and what takes most of it."""
    for slice_, program, plan, source, board in zip(cut.slices, programs, plans, sources, boards, strict=True):
        flash = source.constant_bytes + RUNTIME_FLASH_BYTES
        if board.flash_bytes is not None and flash > board.flash_bytes:
            kernels = zip(program.ops, program.kernels, strict=True)
            taken, largest = max((kernel.constants.bytes, lowered.op.name) for lowered, kernel in kernels)
            raise DiscoError(
                f"node {slice_.node} needs {flash} bytes of flash, {flash - board.flash_bytes} more than "
                f"{board.name} has; the largest part is "
                f"{largest} with {taken} bytes: use more nodes or a larger board"
            )
        ram = ram_bytes(plan.arena_bytes, len(slice_.ops), cut.nodes)
        if board.ram_bytes is not None and ram > board.ram_bytes:
            raise DiscoError(_ram_problem(slice_, plan, board, ram))


def kernel_limits(cut: Partition, slice_: NodeSlice, board: Board) -> Limits:
    """What the board leaves for kernels beside runtime and activations."""
    flash = None if board.flash_bytes is None else max(0, board.flash_bytes - RUNTIME_FLASH_BYTES)
    scratch = None
    if board.ram_bytes is not None:
        activations = plan_memory(cut, slice_).arena_bytes
        scratch = max(0, board.ram_bytes - ram_bytes(activations, len(slice_.ops), cut.nodes))
    return Limits(board.instruction_set, flash, scratch)


def _ram_problem(slice_: NodeSlice, plan: MemoryPlan, board: Board, ram: int) -> str:
    assert board.ram_bytes is not None
    name, place = max(plan.placements.items(), key=lambda item: item[1].size)
    return (
        f"node {slice_.node} needs {ram} bytes of RAM, {ram - board.ram_bytes} more than {board.name} has; the "
        "largest tensor is "
        f"{name!r} with {place.size} bytes: use more nodes, a smaller input or a larger board"
    )
