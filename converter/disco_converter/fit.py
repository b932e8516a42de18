"""Checks before anything is built that each node's share fits its board."""

from __future__ import annotations

from disco_converter import accounting
from disco_converter.c_model import ModelSource
from disco_converter.memory import MemoryPlan
from disco_converter.partition import NodeSlice, Partition
from disco_firmware.footprint import RUNTIME_FLASH_BYTES, ram_bytes
from disco_targets.board import Board
from disco_targets.errors import DiscoError


def check_fit(
    cut: Partition, plans: tuple[MemoryPlan, ...], sources: tuple[ModelSource, ...], boards: tuple[Board, ...]
) -> None:
    """DiscoError when a node needs more flash or RAM than its board has: by how much, and what takes most of it."""
    for slice_, plan, source, board in zip(cut.slices, plans, sources, boards, strict=True):
        flash = source.constant_bytes + RUNTIME_FLASH_BYTES
        if board.flash_bytes is not None and flash > board.flash_bytes:
            largest = max(slice_.ops, key=accounting.weight_bytes)
            raise DiscoError(
                f"node {slice_.node} needs {flash} bytes of flash, {flash - board.flash_bytes} more than "
                f"{board.name} has; the largest part is "
                f"{largest.name} with {accounting.weight_bytes(largest)} bytes: use more nodes or a larger board"
            )
        ram = ram_bytes(plan.arena_bytes, len(slice_.ops), cut.nodes)
        if board.ram_bytes is not None and ram > board.ram_bytes:
            raise DiscoError(_ram_problem(slice_, plan, board, ram))


def _ram_problem(slice_: NodeSlice, plan: MemoryPlan, board: Board, ram: int) -> str:
    assert board.ram_bytes is not None
    name, place = max(plan.placements.items(), key=lambda item: item[1].size)
    return (
        f"node {slice_.node} needs {ram} bytes of RAM, {ram - board.ram_bytes} more than {board.name} has; the "
        "largest tensor is "
        f"{name!r} with {place.size} bytes: use more nodes, a smaller input or a larger board"
    )
