"""A node's program: its ops with the kernel chosen for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from disco_converter.kernel_choice import Kernel
from disco_converter.lowering import LoweredOp
from disco_firmware.manifest import runs_of_ops


@dataclass(frozen=True, eq=False)
class NodeKernels:
    """In program order, one kernel for each op."""

    ops: tuple[LoweredOp, ...]
    kernels: tuple[Kernel, ...]
    joined: frozenset[int] = frozenset()
    """Ops whose rows are computed right after the same rows of the op before."""

    def __iter__(self) -> Iterator[tuple[LoweredOp, Kernel]]:
        return zip(self.ops, self.kernels, strict=True)

    def together(self) -> tuple[tuple[int, int], ...]:
        """(first, end) of ops that are computed together."""
        return runs_of_ops([place in self.joined for place in range(len(self.ops))])

    @property
    def scratch_bytes(self) -> dict[str, int]:
        """By op name."""
        return {lowered.op.name: kernel.scratch_bytes for lowered, kernel in self}
