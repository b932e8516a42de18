"""What a node's share needs of its board, checked before anything is built, and what the board leaves for kernels."""

from __future__ import annotations

from disco_converter.kernel_choice import Limits
from disco_converter.memory import MemoryPlan, plan_memory
from disco_converter.node_kernels import NodeKernels
from disco_converter.partition import NodeSlice, Partition
from disco_firmware.footprint import RUNTIME_FLASH_BYTES, ram_bytes
from disco_targets.board import Board
from disco_targets.errors import DiscoError


def kernel_limits(cut: Partition, slice_: NodeSlice, board: Board) -> Limits:
    """What the board leaves for kernels beside runtime and activations."""
    flash = None if board.flash_bytes is None else max(0, board.flash_bytes - RUNTIME_FLASH_BYTES)
    scratch = None
    if board.ram_bytes is not None:
        activations = plan_memory(cut, slice_).arena_bytes
        scratch = max(0, board.ram_bytes - ram_bytes(activations, len(slice_.ops), cut.nodes))
    return Limits(board.instruction_set, flash, scratch)


def check_flash(node: int, program: NodeKernels, constant_bytes: int, board: Board) -> None:
    """DiscoError when a node needs more flash than its board has: by how much, and what takes most of it."""
    flash = constant_bytes + RUNTIME_FLASH_BYTES
    if board.flash_bytes is not None and flash > board.flash_bytes:
        taken, largest = max((kernel.constants.bytes, lowered.op.name) for lowered, kernel in program)
        raise DiscoError(
            f"node {node} needs {flash} bytes of flash, {flash - board.flash_bytes} more than {board.name} has; the "
            f"largest part is {largest} with {taken} bytes: use more nodes or a larger board"
        )


def check_ram(node: int, ops: int, nodes: int, plan: MemoryPlan, board: Board) -> None:
    """The same for RAM."""
    ram = ram_bytes(plan.arena_bytes, ops, nodes)
    if board.ram_bytes is not None and ram > board.ram_bytes:
        name, place = max(plan.placements.items(), key=lambda item: item[1].size)
        raise DiscoError(
            f"node {node} needs {ram} bytes of RAM, {ram - board.ram_bytes} more than {board.name} has; the largest "
            f"tensor is {name!r} with {place.size} bytes: use more nodes, a smaller input or a larger board"
        )
