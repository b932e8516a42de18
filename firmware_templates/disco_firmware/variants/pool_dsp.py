"""AVERAGE_POOL_2D, MAX_POOL_2D and MEAN on cores with the DSP extension."""

from __future__ import annotations

from dataclasses import asdict

from disco_firmware.kernel_params import AveragePool2D, MaxPool2D, Mean
from disco_firmware.variants.base import Constants, Layer, Variant

GROUP = 4
"""Channels computed together."""
_LARGEST_SUM = 256
"""DISCO_POOL_LARGEST_SUM."""


class _PoolDsp(Variant):
    header = "variants/pool_dsp.h"
    instruction_set = "dsp"

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """The clipping of windows and one group."""
        return 500

    def constants(self, layer: Layer) -> Constants:
        """Window and activation."""
        params = layer.params
        assert isinstance(params, AveragePool2D | MaxPool2D)
        limits = params.activation
        return Constants(
            (),
            {
                "window": asdict(params.window),
                "activation_min": limits.minimum,
                "activation_max": limits.maximum,
            },
        )


class AveragePoolDsp(_PoolDsp):
    """Sums in pairs of int16."""

    name = "sums of int16"
    function = "disco_average_pool2d_dsp"
    structure = "disco_pool2d_dsp_t"
    params = AveragePool2D

    def fits(self, layer: Layer) -> bool:
        """Windows whose sums fit."""
        assert isinstance(layer.params, AveragePool2D)
        window = layer.params.window
        return layer.output.channels >= GROUP and window.kernel_h * window.kernel_w <= _LARGEST_SUM

    def instructions(self, layer: Layer) -> int:
        """Per group of channels the pixels, and the mean of four."""
        assert isinstance(layer.params, AveragePool2D)
        return _instructions(layer, layer.params.window.kernel_h * layer.params.window.kernel_w, 75)


class MaxPoolDsp(_PoolDsp):
    """Four maxima at a time."""

    name = "four at a time"
    function = "disco_max_pool2d_dsp"
    structure = "disco_pool2d_dsp_t"
    params = MaxPool2D

    def fits(self, layer: Layer) -> bool:
        """Any window."""
        return layer.output.channels >= GROUP

    def instructions(self, layer: Layer) -> int:
        """Per group of channels the pixels, and two clamps."""
        assert isinstance(layer.params, MaxPool2D)
        return _instructions(layer, layer.params.window.kernel_h * layer.params.window.kernel_w, 16)


class MeanDsp(Variant):
    """Sums in pairs of int16, of up to 256 pixels each."""

    name = "sums of int16"
    header = "variants/pool_dsp.h"
    function = "disco_mean_dsp"
    structure = "disco_mean_dsp_t"
    instruction_set = "dsp"
    params = Mean

    def fits(self, layer: Layer) -> bool:
        """Any number of pixels."""
        return layer.output.channels >= GROUP

    def constants(self, layer: Layer) -> Constants:
        """disco_mean_t."""
        assert isinstance(layer.params, Mean)
        values = layer.params.values
        return Constants(
            (),
            {
                "input_zero_point": values.input_zero_point,
                "output_zero_point": values.output_zero_point,
                "multiplier": values.multiplier.multiplier,
                "shift": values.multiplier.shift,
            },
        )

    def instructions(self, layer: Layer) -> int:
        """Per group of channels the pixels, and the requantisation of four."""
        return _instructions(layer, layer.inputs[0].height * layer.inputs[0].width, 100)

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """One group."""
        return 400


def _instructions(layer: Layer, pixels: int, around: int) -> int:
    groups = -(-layer.output.channels // GROUP)
    windows = layer.output.height * layer.output.width
    return windows * (groups * (pixels * 15 // 4 + around) + 20)
