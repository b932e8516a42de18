"""The parameters of the kernels of disco/kernels.h as numbers: what the converter makes of an op, what a variant packs.

Layouts and meaning are those of the C structures of the same names; how the numbers follow from scales and zero points
is in quantisation.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int8Array: TypeAlias = npt.NDArray[np.int8]
Int32Array: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True)
class View:
    """Pixels of a tensor as a kernel sees them (disco_input_t, disco_output_t without the data)."""

    height: int
    width: int
    channels: int
    """Leading channels of each pixel that are read or written."""
    stride: int
    """Bytes from one pixel to the next."""


@dataclass(frozen=True)
class Window:
    """disco_window_t."""

    kernel_h: int
    kernel_w: int
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1
    pad_top: int = 0
    pad_left: int = 0


@dataclass(frozen=True)
class Multiplier:
    """The real number multiplier * 2^(shift - 31)."""

    multiplier: int
    """Q31, from 0 to 2^31 - 1."""
    shift: int
    """-31 to 30; positive is left."""


@dataclass(frozen=True)
class ActivationRange:
    """What a fused activation clamps int8 outputs to."""

    minimum: int
    maximum: int


@dataclass(frozen=True)
class Requantisation:
    """disco_requantise_t: accumulator to int8, one multiplier per output channel."""

    multipliers: tuple[int, ...]
    shifts: tuple[int, ...]
    output_zero_point: int
    activation: ActivationRange


@dataclass(frozen=True, eq=False)
class Conv2D:
    """disco_conv2d_t. weights [out, kernel_h, kernel_w, in], bias [out]."""

    window: Window
    weights: Int8Array
    bias: Int32Array | None
    input_zero_point: int
    requantise: Requantisation


@dataclass(frozen=True, eq=False)
class DepthwiseConv2D:
    """disco_depthwise_conv2d_t. weights [kernel_h, kernel_w, out], bias [out]."""

    window: Window
    weights: Int8Array
    bias: Int32Array | None
    depth_multiplier: int
    input_zero_point: int
    requantise: Requantisation


@dataclass(frozen=True, eq=False)
class FullyConnected:
    """disco_fully_connected_t. weights [out, in], bias [out]."""

    weights: Int8Array
    bias: Int32Array | None
    input_zero_point: int
    requantise: Requantisation


@dataclass(frozen=True)
class Add:
    """disco_add_t."""

    input1_zero_point: int
    input2_zero_point: int
    output_zero_point: int
    input1: Multiplier
    input2: Multiplier
    output: Multiplier
    left_shift: int
    activation: ActivationRange


@dataclass(frozen=True)
class Mul:
    """disco_mul_t."""

    input1_zero_point: int
    input2_zero_point: int
    output_zero_point: int
    multiplier: Multiplier
    activation: ActivationRange


@dataclass(frozen=True)
class Mean:
    """disco_mean_t."""

    input_zero_point: int
    output_zero_point: int
    multiplier: Multiplier
    """Scales the sum over the pixels, not their mean."""


@dataclass(frozen=True)
class Relu:
    """disco_relu_t."""

    input_zero_point: int
    output_zero_point: int
    multiplier: Multiplier
    activation: ActivationRange


@dataclass(frozen=True)
class Softmax:
    """disco_softmax_t."""

    multiplier: Multiplier
    diff_min: int


@dataclass(frozen=True)
class AveragePool2D:
    """disco_pool2d_t."""

    window: Window
    activation: ActivationRange


@dataclass(frozen=True)
class MaxPool2D:
    """disco_pool2d_t."""

    window: Window
    activation: ActivationRange


@dataclass(frozen=True)
class Pad:
    """disco_pad_t."""

    pad_top: int
    pad_left: int
    value: int


@dataclass(frozen=True)
class Concatenation:
    """An array of disco_copy_channels_t, one for each input."""

    first_channels: tuple[int, ...]


@dataclass(frozen=True)
class SelectChannels:
    """disco_select_channels_t."""

    index: tuple[int, ...]


@dataclass(frozen=True)
class Reshape:
    """No parameters; whole tensor."""


KernelParams: TypeAlias = (
    Conv2D
    | DepthwiseConv2D
    | FullyConnected
    | Add
    | Mul
    | AveragePool2D
    | MaxPool2D
    | Mean
    | Relu
    | Softmax
    | Pad
    | Concatenation
    | SelectChannels
    | Reshape
)
