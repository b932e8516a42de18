"""AVERAGE_POOL_2D, MAX_POOL_2D and MEAN on cores with the DSP extension."""

from __future__ import annotations

from disco_firmware.kernel_params import AveragePool2D, MaxPool2D, Mean
from disco_firmware.variants import portable
from disco_firmware.variants.base import Constants, Layer, Variant

GROUP = 4
"""Channels computed together."""
_LARGEST_SUM = 256
"""DISCO_POOL_LARGEST_SUM."""


class _PoolDsp(Variant):
    header = "variants/pool_dsp.h"
    structure = "disco_pool2d_t"
    instruction_set = "dsp"

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """The clipping of windows and one group."""
        return 2200

    def constants(self, layer: Layer) -> Constants:
        """Those of the portable kernel."""
        return portable.constants(layer.params)


class AveragePoolDsp(_PoolDsp):
    """Sums in pairs of int16."""

    name = "sums of int16"
    function = "disco_average_pool2d_dsp"
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
    params = MaxPool2D

    def fits(self, layer: Layer) -> bool:
        """Any window."""
        return layer.output.channels >= GROUP

    def instructions(self, layer: Layer) -> int:
        """Per group of channels the pixels, and two clamps."""
        assert isinstance(layer.params, MaxPool2D)
        return _instructions(layer, layer.params.window.kernel_h * layer.params.window.kernel_w, 16)


class MeanDsp(_PoolDsp):
    """Sums in pairs of int16, of up to 256 pixels each."""

    name = "sums of int16"
    function = "disco_mean_dsp"
    structure = "disco_mean_t"
    params = Mean

    def fits(self, layer: Layer) -> bool:
        """Any number of pixels."""
        return layer.output.channels >= GROUP

    def instructions(self, layer: Layer) -> int:
        """Per group of channels the pixels, and the requantisation of four."""
        return _instructions(layer, layer.inputs[0].height * layer.inputs[0].width, 100)

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """One group."""
        return 1000


def _instructions(layer: Layer, pixels: int, around: int) -> int:
    groups = -(-layer.output.channels // GROUP)
    windows = layer.output.height * layer.output.width
    return windows * (groups * (pixels * 15 // 4 + around) + 20)
