"""Cases for the C kernels, and the program that runs them (tests/c/kernel_driver.c)."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from helpers.c_build import RUNTIME

Int8Array = npt.NDArray[np.int8]

DRIVER_SOURCES = (
    Path(__file__).parents[1] / "c" / "kernel_driver.c",
    *sorted((RUNTIME / "src").glob("kernel_*.c")),
    *(RUNTIME / "src" / name for name in ("dot_products.c", "requantise.c")),
)
KERNELS = (
    "conv2d",
    "depthwise_conv2d",
    "fully_connected",
    "add",
    "average_pool2d",
    "max_pool2d",
    "mean",
    "pad",
    "copy_channels",
    "select_channels",
    "reshape",
    "relu",
    "softmax",
    "mul",
)
"""In the order of the driver's table."""
_ABSENT = 0xFFFFFFFF


@dataclass(frozen=True, eq=False)
class Buffer:
    """Pixels [height, width, stride], of which the leading channels count."""

    pixels: Int8Array
    channels: int

    @property
    def leading(self) -> Int8Array:
        return self.pixels[:, :, : self.channels]

    def packed(self) -> bytes:
        height, width, stride = self.pixels.shape
        return struct.pack("<4H", height, width, self.channels, stride) + self.pixels.tobytes()


@dataclass(frozen=True, eq=False)
class Case:
    """One call of a kernel, perhaps in several row ranges, and what it must write."""

    kernel: str
    params: tuple[int, ...]
    arrays: tuple[npt.NDArray[Any] | None, ...]
    inputs: tuple[Buffer, ...]
    output: Buffer
    """Poisoned; bytes that the kernel may not touch must come back as they are."""
    ranges: tuple[tuple[int, int], ...]
    expected: Int8Array
    """[height, width, channels] of the whole output."""

    def packed(self) -> bytes:
        parts = [struct.pack("<2I", KERNELS.index(self.kernel), len(self.params))]
        parts.append(struct.pack(f"<{len(self.params)}i", *self.params))
        parts.append(struct.pack("<I", len(self.arrays)))
        for array in self.arrays:
            if array is None:
                parts.append(struct.pack("<I", _ABSENT))
            else:
                parts.append(struct.pack("<I", array.nbytes) + array.tobytes())
        parts.append(struct.pack("<I", len(self.inputs)))
        parts += [view.packed() for view in self.inputs]
        parts.append(self.output.packed())
        parts.append(struct.pack("<I", len(self.ranges)))
        parts += [struct.pack("<2H", *limits) for limits in self.ranges]
        return b"".join(parts)

    def wanted(self) -> Int8Array:
        """The whole output buffer after a right run."""
        pixels = self.output.pixels.copy()
        for begin, end in self.ranges:
            pixels[begin:end, :, : self.output.channels] = self.expected[begin:end]
        return pixels


def pack(cases: Sequence[Case]) -> bytes:
    """The driver's case file."""
    return struct.pack("<I", len(cases)) + b"".join(case.packed() for case in cases)


def run_driver(command: Sequence[str], packed: bytes, directory: Path) -> bytes:
    """The output buffers of the packed cases, one after the other.

    AssertionError when the driver fails; what it said is in the message.
    """
    (directory / "cases.bin").write_bytes(packed)
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=directory)
    assert result.returncode == 0, result.stderr
    return (directory / "results.bin").read_bytes()


def assert_equal(cases: Sequence[Case], results: bytes) -> None:
    """Every byte of every output buffer is what it must be; names the first case that differs."""
    sizes = [case.output.pixels.size for case in cases]
    assert len(results) == sum(sizes)
    start = 0
    for number, (case, size) in enumerate(zip(cases, sizes, strict=True)):
        got = np.frombuffer(results, np.int8, size, start).reshape(case.output.pixels.shape)
        wanted = case.wanted()
        wrong = np.argwhere(got != wanted)
        if wrong.size:
            place = tuple(int(i) for i in wrong[0])
            raise AssertionError(
                f"case {number} ({case.kernel}): {len(wrong)} of {size} bytes differ, "
                f"first at {place} of {got.shape} ({case.output.channels} channels count): "
                f"{got[place]}, not {wanted[place]}; params {case.params}, ranges {case.ranges}"
            )
        start += size
