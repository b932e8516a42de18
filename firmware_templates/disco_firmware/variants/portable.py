"""The portable kernels (runtime/src/kernel_*.c): how their structures are filled, and what they cost.

They compute every op on every core and are not specialised: one copy of each serves all ops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from disco_firmware import kernel_params as k
from disco_firmware.variants.base import ConstantArray, Constants, Layer, Reference, output_fields

NAME = "portable"
ARMV6M = 1.8
"""Instructions of Armv6-M for each of Armv7-M: it has neither multiply-accumulate nor long products, and most of its
instructions know eight registers only."""


@dataclass(frozen=True)
class PortableKernel:
    """One portable kernel."""

    kind: str
    """Of disco_op_kind_t."""
    structure: str | None
    """Type of its parameters; None where it takes none."""


_KERNELS: Mapping[type, PortableKernel] = {
    k.Conv2D: PortableKernel("DISCO_OP_CONV_2D", "disco_conv2d_t"),
    k.DepthwiseConv2D: PortableKernel("DISCO_OP_DEPTHWISE_CONV_2D", "disco_depthwise_conv2d_t"),
    k.FullyConnected: PortableKernel("DISCO_OP_FULLY_CONNECTED", "disco_fully_connected_t"),
    k.Add: PortableKernel("DISCO_OP_ADD", "disco_add_t"),
    k.Mul: PortableKernel("DISCO_OP_MUL", "disco_mul_t"),
    k.AveragePool2D: PortableKernel("DISCO_OP_AVERAGE_POOL_2D", "disco_pool2d_t"),
    k.MaxPool2D: PortableKernel("DISCO_OP_MAX_POOL_2D", "disco_pool2d_t"),
    k.Mean: PortableKernel("DISCO_OP_MEAN", "disco_mean_t"),
    k.Relu: PortableKernel("DISCO_OP_RELU", "disco_relu_t"),
    k.Softmax: PortableKernel("DISCO_OP_SOFTMAX", "disco_softmax_t"),
    k.Pad: PortableKernel("DISCO_OP_PAD", "disco_pad_t"),
    k.Concatenation: PortableKernel("DISCO_OP_CONCATENATION", "disco_copy_channels_t"),
    k.SelectChannels: PortableKernel("DISCO_OP_SELECT_CHANNELS", "disco_select_channels_t"),
    k.Reshape: PortableKernel("DISCO_OP_RESHAPE", None),
}


def kernel(params: k.KernelParams) -> PortableKernel:
    """The portable kernel of an op."""
    return _KERNELS[type(params)]


def constants(params: k.KernelParams) -> Constants:
    """Arrays and fields of its structure (for a concatenation: fields of the inputs in turn, under their number)."""
    builder = _BUILDERS.get(type(params))
    return Constants((), _fields(params)) if builder is None else builder(params)


def window_of(params: k.KernelParams) -> k.Window | None:
    """The window of an op that has one."""
    return params.window if isinstance(params, _WINDOWED) else None


def instructions(layer: Layer, instruction_set: str = "base") -> int:
    """Predicted count: per multiply-accumulate and per output, measured on whole networks, on an emulated Cortex-M3.

    Armv6-M takes ARMV6M times as many.
    """
    return round(_on_armv7m(layer) * (ARMV6M if instruction_set == "armv6m" else 1))


def _on_armv7m(layer: Layer) -> float:
    params, output = layer.params, layer.output
    elements = output.height * output.width * output.channels
    if isinstance(params, (k.Conv2D, k.FullyConnected)):
        return elements * (3 * float(params.weights[0].size) + 75)
    if isinstance(params, k.DepthwiseConv2D):
        return elements * (5.5 * params.window.kernel_h * params.window.kernel_w + 65)
    if isinstance(params, (k.AveragePool2D, k.MaxPool2D)):
        return elements * (8 * params.window.kernel_h * params.window.kernel_w + 40)
    if isinstance(params, k.Mean):
        return elements * (8 * layer.inputs[0].height * layer.inputs[0].width + 60)
    return elements * _PER_ELEMENT.get(type(params), 10)


_WINDOWED = (k.Conv2D, k.DepthwiseConv2D, k.AveragePool2D, k.MaxPool2D)
_PER_ELEMENT: Mapping[type, int] = {k.Add: 70, k.Mul: 50, k.Relu: 40, k.Softmax: 400}


def _fields(params: k.KernelParams) -> dict[str, object]:
    """Of a structure without arrays: a multiplier and a clamp are two fields each."""
    result: dict[str, object] = {}
    for field in fields(params):
        value = getattr(params, field.name)
        if isinstance(value, k.Multiplier):
            prefix = "" if field.name == "multiplier" else f"{field.name}_"
            result |= {f"{prefix}multiplier": value.multiplier, f"{prefix}shift": value.shift}
        elif isinstance(value, k.ActivationRange):
            result |= {"activation_min": value.minimum, "activation_max": value.maximum}
        else:
            result[field.name] = asdict(value) if isinstance(value, k.Window) else value
    return result


def _requantise(values: k.Requantisation) -> tuple[tuple[ConstantArray, ...], dict[str, object]]:
    arrays = (
        ConstantArray("multiplier", "int32_t", np.array(values.multipliers, np.int32), "requantisation, Q31"),
        ConstantArray("shift", "int8_t", np.array(values.shifts, np.int8), "requantisation, left shift", 1),
    )
    return arrays, {
        "multiplier": Reference("multiplier"),
        "shift": Reference("shift"),
        **output_fields(values.output_zero_point, values.activation),
    }


def _weighted(params: k.Conv2D | k.DepthwiseConv2D | k.FullyConnected, layout: str) -> Constants:
    shape = list(params.weights.shape)
    arrays = [ConstantArray("weights", "int8_t", params.weights, f"weights {layout} {shape}", 1)]
    if params.bias is not None:
        arrays.append(ConstantArray("bias", "int32_t", params.bias, "bias"))
    requantise_arrays, requantise = _requantise(params.requantise)
    return Constants(
        (*arrays, *requantise_arrays),
        {
            "weights": Reference("weights"),
            "bias": None if params.bias is None else Reference("bias"),
            "input_zero_point": params.input_zero_point,
            "requantise": requantise,
        },
    )


def _conv2d(params: k.Conv2D) -> Constants:
    weighted = _weighted(params, "[out][h][w][in]")
    return Constants(weighted.arrays, {"window": asdict(params.window), **weighted.fields})


def _depthwise(params: k.DepthwiseConv2D) -> Constants:
    weighted = _weighted(params, "[h][w][out]")
    own = {"window": asdict(params.window), "depth_multiplier": params.depth_multiplier}
    return Constants(weighted.arrays, {**own, **weighted.fields})


def _fully_connected(params: k.FullyConnected) -> Constants:
    return _weighted(params, "[out][in]")


def _concatenation(params: k.Concatenation) -> Constants:
    return Constants((), {str(i): {"first_channel": first} for i, first in enumerate(params.first_channels)})


def _select_channels(params: k.SelectChannels) -> Constants:
    index = ConstantArray("index", "uint16_t", np.array(params.index, np.uint16), "positions read", 2)
    return Constants((index,), {"index": Reference("index")})


_BUILDERS: Mapping[type, Callable[[Any], Constants]] = {
    k.Conv2D: _conv2d,
    k.DepthwiseConv2D: _depthwise,
    k.FullyConnected: _fully_connected,
    k.Concatenation: _concatenation,
    k.SelectChannels: _select_channels,
}
