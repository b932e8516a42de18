"""AVERAGE_POOL_2D, MAX_POOL_2D and MEAN with Helium (variants/pool_mve.h)."""

from __future__ import annotations

from disco_firmware.kernel_params import AveragePool2D, MaxPool2D, Mean
from disco_firmware.variants import portable
from disco_firmware.variants.base import Constants, Layer, Variant


class _PoolMve(Variant):
    name = "Helium"
    header = "variants/pool_mve.h"
    instruction_set = "mve"

    def constants(self, layer: Layer) -> Constants:
        """Those of the portable kernel."""
        return portable.constants(layer.params)


class AveragePoolMve(_PoolMve):
    """Eight channels at a time."""

    function = "disco_average_pool2d_mve"
    structure = "disco_pool2d_t"
    params = AveragePool2D

    def fits(self, layer: Layer) -> bool:
        """Windows whose sum fits 16 bits."""
        return _pool(layer).window.kernel_h * _pool(layer).window.kernel_w <= 0xFF

    def instructions(self, layer: Layer) -> int:
        """Of sums and their division."""
        return _pool_instructions(layer, vector=8, last=28)

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """A window, its sums, their division."""
        return 1700


class MaxPoolMve(_PoolMve):
    """Sixteen channels at a time."""

    function = "disco_max_pool2d_mve"
    structure = "disco_pool2d_t"
    params = MaxPool2D

    def fits(self, layer: Layer) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def instructions(self, layer: Layer) -> int:
        """Of comparisons."""
        return _pool_instructions(layer, vector=16, last=14)

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """A window and its maximum."""
        return 1400


class MeanMve(_PoolMve):
    """Four channels at a time."""

    function = "disco_mean_mve"
    structure = "disco_mean_t"
    params = Mean

    def fits(self, layer: Layer) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def instructions(self, layer: Layer) -> int:
        """Of sums, and their requantisation."""
        view = layer.inputs[0]
        return -(-view.channels // 4) * (view.height * view.width * 5 + 40) + 40

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """A loop and what follows."""
        return 1000


def _pool(layer: Layer) -> AveragePool2D | MaxPool2D:
    assert isinstance(layer.params, (AveragePool2D, MaxPool2D))
    return layer.params


def _pool_instructions(layer: Layer, vector: int, last: int) -> int:
    """`last` follows the walk over a window of each vector of channels."""
    window, out = _pool(layer).window, layer.output
    walk = window.kernel_h * (window.kernel_w * 4 + 3)
    return out.height * out.width * (-(-out.channels // vector) * (walk + last) + 60)
