"""A node's program: its ops with the kernel chosen for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from disco_converter.kernel_choice import Kernel
from disco_converter.lowering import LoweredOp


@dataclass(frozen=True, eq=False)
class NodeKernels:
    """In program order, one kernel for each op."""

    ops: tuple[LoweredOp, ...]
    kernels: tuple[Kernel, ...]

    def __iter__(self) -> Iterator[tuple[LoweredOp, Kernel]]:
        return zip(self.ops, self.kernels, strict=True)

    @property
    def scratch_bytes(self) -> dict[str, int]:
        """By op name."""
        return {lowered.op.name: kernel.scratch_bytes for lowered, kernel in self}
