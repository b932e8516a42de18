"""The quantised graph as the converter sees it: activations, ops, constant weights.

Shapes carry the batch of 1 as in TFLite. Padding is always explicit (a PAD in front of a convolution is folded into it:
it pads with the zero point, and a padded element then contributes exactly 0 to the accumulator, like a skipped one).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int8Array: TypeAlias = npt.NDArray[np.int8]
Int32Array: TypeAlias = npt.NDArray[np.int32]
Float32Array: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Tensor:
    """One int8 activation."""

    name: str
    index: int
    """Tensor index in the .tflite file."""
    shape: tuple[int, ...]
    scale: float
    """float32 value, held as a Python float."""
    zero_point: int

    @property
    def channels(self) -> int:
        """Size of the last axis."""
        return self.shape[-1]

    @property
    def plane(self) -> tuple[int, int]:
        """(height, width) of the pixels: 4-D [1,h,w,c] -> (h, w), 3-D [1,h,c] -> (h, 1), 2-D [1,c] -> (1, 1)."""
        if len(self.shape) == 4:
            return self.shape[1], self.shape[2]
        return (self.shape[1], 1) if len(self.shape) == 3 else (1, 1)


@dataclass(frozen=True)
class Padding:
    """Pixels added on each side."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0

    def __add__(self, other: Padding) -> Padding:
        return Padding(
            self.top + other.top,
            self.bottom + other.bottom,
            self.left + other.left,
            self.right + other.right,
        )

    def __bool__(self) -> bool:
        return any((self.top, self.bottom, self.left, self.right))


def same_padding(
    plane: tuple[int, int], size: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> Padding:
    """TFLite's SAME: as little as needed, the odd pixel at the end (tflite/kernels/padding.h). All (height, width)."""
    before, after = [], []
    for length, kernel, step, spread in zip(plane, size, stride, dilation, strict=True):
        total = max(0, (-(-length // step) - 1) * step + (kernel - 1) * spread + 1 - length)
        before.append(total // 2)
        after.append(total - total // 2)
    return Padding(before[0], after[0], before[1], after[1])


@dataclass(frozen=True)
class Window:
    """Kernel of a convolution or pooling: sizes as (height, width)."""

    size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = Padding()


@dataclass(frozen=True, eq=False)
class Filter:
    """Constant weights with one scale per output channel, and the bias (int32, scale = input scale * weight scale)."""

    weights: Int8Array
    scales: Float32Array
    """[out] (per-tensor scales are repeated)."""
    per_channel: bool
    """Whether the .tflite file had one scale per output channel."""
    bias: Int32Array | None


@dataclass(frozen=True, eq=False)
class Conv2D:
    """weights [out, kernel_h, kernel_w, in]."""

    window: Window
    filter: Filter
    activation: str


@dataclass(frozen=True, eq=False)
class DepthwiseConv2D:
    """weights [1, kernel_h, kernel_w, out]; output channel c reads input channel c // multiplier."""

    window: Window
    filter: Filter
    multiplier: int
    activation: str


@dataclass(frozen=True, eq=False)
class FullyConnected:
    """weights [out, in]; applied along the last axis."""

    filter: Filter
    activation: str
    keep_dims: bool


@dataclass(frozen=True)
class Add:
    """Element by element."""

    activation: str


@dataclass(frozen=True)
class Mul:
    """Element by element."""

    activation: str


@dataclass(frozen=True)
class Pool2D:
    """Average or maximum over a window."""

    window: Window
    activation: str


@dataclass(frozen=True)
class Mean:
    """Over height and width."""

    keep_dims: bool


@dataclass(frozen=True)
class Pad:
    """Height and width, by the int8 value `value`."""

    padding: Padding
    value: int


@dataclass(frozen=True)
class Concatenation:
    """Along the last axis."""


@dataclass(frozen=True, eq=False)
class Reshape:
    """Same elements in the same order; with `order` (TRANSPOSE + RESHAPE) output i is input element order[i]."""

    order: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Activation:
    """RELU, RELU6 or RELU_N1_TO_1 on its own."""

    function: str


@dataclass(frozen=True)
class Softmax:
    """Over the last axis."""

    beta: float


@dataclass(frozen=True)
class SelectChannels:
    """Only made by slicing: output channel i is the i-th selected channel of what is read."""

    positions: tuple[int, ...]


@dataclass(frozen=True)
class Transpose:
    """Only while reading: output axis i is input axis permutation[i]."""

    permutation: tuple[int, ...]


@dataclass(frozen=True)
class MeanNchw:
    """Only while reading: mean over the last two axes of [1, c, h, w]."""


Params: TypeAlias = (
    Conv2D
    | DepthwiseConv2D
    | FullyConnected
    | Add
    | Mul
    | Pool2D
    | Mean
    | Pad
    | Concatenation
    | Reshape
    | Activation
    | Softmax
    | SelectChannels
    | Transpose
    | MeanNchw
)
MIXING = (Conv2D, FullyConnected)
"""Ops whose outputs depend on several input channels through weights."""


@dataclass(frozen=True, eq=False)
class Op:
    """One op; `kind` is TFLite's name (CONV_2D, ...)."""

    index: int
    kind: str
    inputs: tuple[str, ...]
    output: str
    params: Params

    @property
    def name(self) -> str:
        """Short and unique, e.g. conv_2d_3."""
        return f"{self.kind.lower()}_{self.index}"


@dataclass(frozen=True, eq=False)
class Graph:
    """Ops in program order. One input."""

    tensors: dict[str, Tensor]
    ops: tuple[Op, ...]
    input: str
    outputs: tuple[str, ...]
    constants: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Tensor -> channel -> its value for every input and pixel: channels that nobody computes."""
    consumers: dict[str, tuple[Op, ...]] = field(init=False)

    def __post_init__(self) -> None:
        consumers: dict[str, list[Op]] = {name: [] for name in self.tensors}
        for op in self.ops:
            for name in dict.fromkeys(op.inputs):
                consumers[name].append(op)
        object.__setattr__(self, "consumers", {k: tuple(v) for k, v in consumers.items()})
