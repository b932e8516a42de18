"""How the fixed-point parameters of every kernel follow from scales, zero points and options.

Each function repeats, step by step and in the same floating-point precision, what TFLite computes
when it prepares an op (tflite-runtime 2.14), so that the C kernels equal its reference kernels bit
for bit. A scale is a Python float that holds a float32 value, as it is stored in a .tflite file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from disco_firmware.kernel_params import (
    ActivationRange,
    Add,
    Mean,
    Mul,
    Multiplier,
    Relu,
    Requantisation,
    Softmax,
)
from disco_targets.errors import DiscoError

INT8_MIN = -128
INT8_MAX = 127
INT32_MIN = -(1 << 31)
INT32_MAX = (1 << 31) - 1
ADD_LEFT_SHIFT = 20
"""Both addends are scaled up by 2^20 before they meet."""
SOFTMAX_INTEGER_BITS = 5
"""The exponential reads its argument as Q5.26."""
SOFTMAX_OUTPUT_SCALE = 1.0 / 256.0
SOFTMAX_OUTPUT_ZERO_POINT = -128

_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}


def quantise_multiplier(real: float) -> Multiplier:
    """`real` >= 0 as a 31-bit fraction and a shift (TFLite's QuantizeMultiplier).

    Below about 2^-32 it becomes 0, as in TFLite. DiscoError where it cannot be held (2^30 and
    above, negative, not a number).
    """
    if not 0.0 <= real < math.inf:
        raise _out_of_range(f"a ratio of scales is {real}")
    fixed, shift = _fraction_and_shift(real)
    if shift < -31:
        return Multiplier(0, 0)
    if shift > 30:
        raise _out_of_range(f"a ratio of scales is {real}, not below 2^30")
    return Multiplier(fixed, shift)


def activation_range(activation: str, scale: float, zero_point: int) -> ActivationRange:
    """The int8 range that a fused activation leaves (NONE, RELU, RELU6 or RELU_N1_TO_1).

    TFLite: CalculateActivationRangeQuantized, in float32. DiscoError for another activation.
    """
    if activation not in _BOUNDS:
        supported = ", ".join(_BOUNDS)
        raise DiscoError(f"the activation {activation} is not supported; supported: {supported}")
    low, high = _BOUNDS[activation]
    minimum = INT8_MIN if low is None else max(INT8_MIN, _quantise(low, scale, zero_point))
    maximum = INT8_MAX if high is None else min(INT8_MAX, _quantise(high, scale, zero_point))
    return ActivationRange(minimum, maximum)


def convolution_requantisation(
    input_scale: float,
    weight_scales: Sequence[float],
    output_scale: float,
    output_zero_point: int,
    activation: str,
) -> Requantisation:
    """CONV_2D and DEPTHWISE_CONV_2D, one weight scale per output channel.

    Per-tensor weights repeat theirs. TFLite: PopulateConvolutionQuantizationParams, products and
    quotient in float64.
    """
    pairs = [quantise_multiplier(float(input_scale) * float(scale) / float(output_scale)) for scale in weight_scales]
    return _requantisation(pairs, output_scale, output_zero_point, activation)


def fully_connected_requantisation(
    input_scale: float,
    weight_scales: Sequence[float],
    output_scale: float,
    output_zero_point: int,
    activation: str,
    *,
    per_channel: bool,
) -> Requantisation:
    """FULLY_CONNECTED, one weight scale per output channel (equal ones for per-tensor weights).

    Per-channel weights are scaled as in a convolution. For per-tensor weights TFLite
    (GetQuantizedConvolutionMultipler) multiplies the input and the weight scale in float32, which
    can differ in the last bits.
    """
    if per_channel:
        return convolution_requantisation(input_scale, weight_scales, output_scale, output_zero_point, activation)
    products = [float(np.float32(input_scale) * np.float32(scale)) for scale in weight_scales]
    pairs = [quantise_multiplier(product / float(output_scale)) for product in products]
    return _requantisation(pairs, output_scale, output_zero_point, activation)


def add_parameters(
    input1: tuple[float, int],
    input2: tuple[float, int],
    output: tuple[float, int],
    activation: str,
) -> Add:
    """ADD of two int8 tensors, each given as (scale, zero point).

    DiscoError where TFLite refuses: an output scale so small that the sum would have to be scaled
    up.
    """
    twice_max = 2.0 * max(input1[0], input2[0])
    output_real = twice_max / ((1 << ADD_LEFT_SHIFT) * output[0])
    if output_real >= 1.0:
        raise _out_of_range(f"ADD: the output scale {output[0]} is over 2^19 times smaller than an input scale")
    return Add(
        input1_zero_point=input1[1],
        input2_zero_point=input2[1],
        output_zero_point=output[1],
        input1=quantise_multiplier(input1[0] / twice_max),
        input2=quantise_multiplier(input2[0] / twice_max),
        output=quantise_multiplier(output_real),
        left_shift=ADD_LEFT_SHIFT,
        activation=activation_range(activation, output[0], output[1]),
    )


def mul_parameters(
    input1: tuple[float, int],
    input2: tuple[float, int],
    output: tuple[float, int],
    activation: str,
) -> Mul:
    """MUL of two int8 tensors, each given as (scale, zero point).

    TFLite multiplies and divides the scales in float32.
    """
    ratio = np.float32(input1[0]) * np.float32(input2[0]) / np.float32(output[0])
    return Mul(
        input1_zero_point=input1[1],
        input2_zero_point=input2[1],
        output_zero_point=output[1],
        multiplier=quantise_multiplier(float(ratio)),
        activation=activation_range(activation, output[0], output[1]),
    )


def mean_parameters(input_: tuple[float, int], output: tuple[float, int], pixels: int) -> Mean:
    """MEAN over `pixels` = height * width of a tensor; tensors are given as (scale, zero point).

    TFLite (reference_ops::QuantizedMeanOrSum) divides the quantised ratio of the scales by the
    count in integers, so the quotient is rounded down, after as many bits as the count leaves have
    been shifted in.
    """
    ratio = quantise_multiplier(input_[0] / output[0])
    # At most 31 + shift, so that the final right shift stays within 31.
    gained = min(pixels.bit_length() - 1, 32, 31 + ratio.shift)
    multiplier = Multiplier((ratio.multiplier << gained) // pixels, ratio.shift - gained)
    return Mean(input_[1], output[1], multiplier)


def relu_parameters(activation: str, input_: tuple[float, int], output: tuple[float, int]) -> Relu:
    """RELU, RELU6 or RELU_N1_TO_1 on its own; tensors are given as (scale, zero point).

    TFLite divides the scales in float32.
    """
    ratio = float(np.float32(input_[0]) / np.float32(output[0]))
    return Relu(
        input_zero_point=input_[1],
        output_zero_point=output[1],
        multiplier=quantise_multiplier(ratio),
        activation=activation_range(activation, output[0], output[1]),
    )


def softmax_parameters(input_scale: float, beta: float) -> Softmax:
    """SOFTMAX with output scale 1/256 and zero point -128.

    TFLite: PreprocessSoftmaxScaling and CalculateInputRadius. DiscoError where TFLite
    refuses: beta * input_scale up to 2^-26.
    """
    fraction_bits = 31 - SOFTMAX_INTEGER_BITS
    real = min(float(np.float32(beta)) * float(input_scale) * (1 << fraction_bits), (1 << 31) - 1.0)
    if real <= 1.0:
        raise _out_of_range(f"SOFTMAX: beta * input scale is {beta} * {input_scale}, too small")
    # 2^31 - 1 is the one case that needs shift 31; only a difference of 0 is then within the
    # radius, so that it never shifts.
    fixed, shift = _fraction_and_shift(real)
    largest = ((1 << SOFTMAX_INTEGER_BITS) - 1) * (1 << fraction_bits) / (1 << shift)
    return Softmax(Multiplier(fixed, shift), -math.floor(largest))


def _fraction_and_shift(real: float) -> tuple[int, int]:
    """`real` is fraction * 2^(shift - 31), rounded to 2^30 <= fraction < 2^31; 0 gives (0, 0)."""
    fraction, shift = math.frexp(real)
    # Exact in float64; floor(x + 0.5) rounds halves away from zero as C's round() does.
    fixed = math.floor(fraction * (1 << 31) + 0.5)
    return (fixed // 2, shift + 1) if fixed == 1 << 31 else (fixed, shift)


def _requantisation(
    pairs: Sequence[Multiplier], output_scale: float, output_zero_point: int, activation: str
) -> Requantisation:
    return Requantisation(
        multipliers=tuple(pair.multiplier for pair in pairs),
        shifts=tuple(pair.shift for pair in pairs),
        output_zero_point=output_zero_point,
        activation=activation_range(activation, output_scale, output_zero_point),
    )


def _quantise(value: float, scale: float, zero_point: int) -> int:
    """A real bound as a quantised value, not clamped (float32 quotient, halves away from zero)."""
    quotient = float(np.float32(value) / np.float32(scale))
    steps = int(math.copysign(math.floor(abs(quotient) + 0.5), quotient))
    if not INT32_MIN <= steps <= INT32_MAX:
        raise _out_of_range(f"the scale {scale} is too small for an activation up to {value}")
    return zero_point + steps


def _out_of_range(what: str) -> DiscoError:
    return DiscoError(f"{what}: quantise the model again with sound calibration data")
