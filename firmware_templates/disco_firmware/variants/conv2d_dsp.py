"""CONV_2D on cores with the DSP extension: runtime/src/variants/conv2d_dsp.h."""

from __future__ import annotations

from dataclasses import asdict
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from disco_firmware.kernel_params import Conv2D
from disco_firmware.variants.base import (
    ConstantArray,
    Constants,
    Layer,
    Reference,
    Variant,
    first_row,
    output_fields,
    padded,
)
from disco_firmware.variants.conv2d_dsp_cost import PAIR, estimate_code_bytes, predict_instructions
from disco_firmware.variants.conv2d_dsp_plan import Plan, plan_layer
from disco_firmware.variants.conv2d_scaling import Scaling, choose_scaling


def _pair_order(count: int) -> list[int]:
    """Where the values of a run lie in the pairs that SXTB16 makes of them."""
    order = [base + offset for base in range(0, count - 3, 4) for offset in (0, 2, 1, 3)]
    return order + list(range(len(order), count))


class Conv2DDsp(Variant):
    """Two pixels and four output channels at a time. int16 weights are the faster ones, int8 weights the smaller."""

    header: ClassVar[str] = "variants/conv2d_dsp.h"
    function: ClassVar[str] = "disco_conv2d_dsp"
    structure: ClassVar[str] = "disco_conv2d_dsp_t"
    instruction_set: ClassVar[str] = "dsp"
    params: ClassVar[type] = Conv2D
    instructions_per_mac: ClassVar[float | None] = PAIR / (2 * 2 * 4)
    weight_bytes: ClassVar[int]

    def fits(self, layer: Layer) -> bool:
        """Any convolution of one input."""
        return isinstance(layer.params, Conv2D) and len(layer.inputs) == 1

    def constants(self, layer: Layer) -> Constants:
        """Weights in the order of the inner loop, and four numbers per output channel."""
        params = _conv2d(layer)
        plan = self._plan(layer)
        scaling = self._scaling(layer)
        weights = _pairs(params.weights, plan)
        if self.weight_bytes == 2:
            scales = padded(1 << np.array(scaling.weight_scales), 0, 4).reshape(-1, 1, 1, 4, 1)
            packed = (weights * scales).astype(np.int16)
        else:
            # Of two channels the first values of a pair, then the second ones.
            packed = weights.reshape(-1, 2, 2).transpose(0, 2, 1).astype(np.int8)
        bits = 8 * self.weight_bytes
        arrays = (
            ConstantArray("weights", f"int{bits}_t", packed.reshape(-1), f"weights, int{bits}"),
            ConstantArray("channels", "int32_t", _by_fours(scaling), "biases; multipliers, offsets, shifts"),
        )
        requantise = params.requantise
        fields: dict[str, object] = {
            "window": asdict(params.window),
            "weights": Reference("weights"),
            "channels": Reference("channels"),
            "input_zero_point": params.input_zero_point,
            **output_fields(requantise.output_zero_point, requantise.activation),
            "weight_bytes": self.weight_bytes,
            "form": scaling.form,
            "shift": scaling.shift,
            "pixel_scale": scaling.pixel_scale,
            "patches": int(plan.patches),
            "rows_together": plan.rows_together,
        }
        return Constants(arrays, fields)

    def scratch_bytes(self, layer: Layer) -> int:
        """The ring, the widened weights of four output channels, a kernel row."""
        plan = self._plan(layer)
        widened = plan.block_words if self.weight_bytes == 1 else 0
        return 4 * (widened + plan.ring_words) + plan.gathered_bytes

    def row_step(self, layer: Layer) -> int:
        """Rows per turn."""
        return self._plan(layer).rows_together

    def first_unread(self, layer: Layer, begin: int, end: int) -> int:  # noqa: ARG002
        """A turn begins by reading all it needs; the ring keeps what the next one needs of that."""
        window = _conv2d(layer).window
        if self._plan(layer).patches:
            return first_row(window, end)
        return first_row(window, end - 1) + (window.kernel_h - 1) * window.dilation_h + 1

    def instructions(self, layer: Layer) -> int:
        """Within 3 % on the networks it was fitted to."""
        return predict_instructions(layer, self._plan(layer), self._scaling(layer), self.weight_bytes)

    def code_bytes(self, layer: Layer) -> int:
        """Upper bound."""
        return estimate_code_bytes(layer, self._plan(layer), self._scaling(layer), self.weight_bytes)

    def _plan(self, layer: Layer) -> Plan:
        return plan_layer(layer, self.weight_bytes)

    def _scaling(self, layer: Layer) -> Scaling:
        return choose_scaling(_conv2d(layer), scales_weights=self.weight_bytes == 2)


class Conv2DDspInt16(Conv2DDsp):
    """int16 weights."""

    name: ClassVar[str] = "direct, int16 weights"
    weight_bytes: ClassVar[int] = 2


class Conv2DDspInt8(Conv2DDsp):
    """int8 weights, widened once per turn."""

    name: ClassVar[str] = "direct, int8 weights"
    weight_bytes: ClassVar[int] = 1


def _conv2d(layer: Layer) -> Conv2D:
    assert isinstance(layer.params, Conv2D)
    return layer.params


def _pairs(weights: npt.NDArray[np.int8], plan: Plan) -> npt.NDArray[np.int32]:
    """[block, kernel row, pair, channel of four, value of the pair]."""
    filters, kernel_h, kernel_w, channels = weights.shape
    rows = weights.astype(np.int32)
    rows = rows.reshape(filters, kernel_h, 1, kernel_w * channels) if plan.patches else rows
    rows = padded(rows, 3, 4)
    count = plan.row_values // rows.shape[2]
    real = kernel_w * channels if plan.patches else channels
    order = _pair_order(real) if real % 4 != 3 else _pair_order(real + 1)
    order += list(range(len(order), count))
    rows = rows[..., order].reshape(filters, kernel_h, plan.row_values // 2, 2)
    rows = padded(rows, 0, 4)
    blocks = rows.reshape(-1, 4, kernel_h, plan.row_values // 2, 2)
    return np.ascontiguousarray(blocks.transpose(0, 2, 3, 1, 4))


def _by_fours(scaling: Scaling) -> npt.NDArray[np.int32]:
    """For every four channels the biases, then multiplier, offset and, unless it is common, shift of each."""
    blocks = padded(scaling.channels, 0, 4).reshape(-1, 4, 4)
    rest = blocks[:, :, 1 : 3 if scaling.shift > 0 else 4]
    values: npt.NDArray[np.int32] = np.concatenate([blocks[:, :, 0], rest.reshape(len(blocks), -1)], axis=1).reshape(-1)
    return values
