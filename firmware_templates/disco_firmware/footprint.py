"""What the runtime itself takes on a board, beside a model's constants and arena.

Upper bounds, held against real builds by tests/pair/test_footprint.py; `disco-flash` reports what the linker measured.
"""

from __future__ import annotations

RUNTIME_FLASH_BYTES = 33 * 1024
"""Code and tables of runtime, port and C library at -O3; the most on Armv6-M."""
RUNTIME_RAM_BYTES = 12 * 1024
"""Stack, the line to the host with its receive ring, and the node's state."""
LINK_RAM_BYTES = 2816
"""One line to a peer: transmit window and frame buffer (1.5 KB), receive ring (1 KB), states of its routes."""
RECORD_RAM_BYTES = 64
"""Stamps of one op."""
STEP_RAM_BYTES = 4
"""What one step computed."""


def ram_bytes(arena_bytes: int, ops: int, nodes: int, steps: int = 0) -> int:
    """Upper bound of a node's RAM: arena, stamps (of steps where they are recorded), lines to the peers, runtime."""
    records = ops * RECORD_RAM_BYTES + steps * STEP_RAM_BYTES
    return arena_bytes + records + (nodes - 1) * LINK_RAM_BYTES + RUNTIME_RAM_BYTES
