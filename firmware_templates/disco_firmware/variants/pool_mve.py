"""AVERAGE_POOL_2D, MAX_POOL_2D and MEAN with Helium (variants/pool_mve.h)."""

from __future__ import annotations

from disco_firmware.kernel_params import AveragePool2D, MaxPool2D, Mean
from disco_firmware.variants.base import Constants, Layer, Variant
from disco_firmware.variants.mve import window_fields


class AveragePoolMve(Variant):
    """Eight channels at a time."""

    name = "Helium"
    header = "variants/pool_mve.h"
    function = "disco_average_pool2d_mve"
    structure = "disco_pool2d_t"
    instruction_set = "mve"
    params = AveragePool2D

    def fits(self, layer: Layer) -> bool:
        """Windows whose sum fits 16 bits."""
        return _pool(layer).window.kernel_h * _pool(layer).window.kernel_w <= 0xFF

    def constants(self, layer: Layer) -> Constants:
        """No arrays."""
        return _pool_constants(layer)

    def instructions(self, layer: Layer) -> int:
        """Of sums and their division."""
        return _pool_instructions(layer, vector=8, last=28)

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """A window, its sums, their division."""
        return 1400


class MaxPoolMve(Variant):
    """Sixteen channels at a time."""

    name = "Helium"
    header = "variants/pool_mve.h"
    function = "disco_max_pool2d_mve"
    structure = "disco_pool2d_t"
    instruction_set = "mve"
    params = MaxPool2D

    def fits(self, layer: Layer) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def constants(self, layer: Layer) -> Constants:
        """No arrays."""
        return _pool_constants(layer)

    def instructions(self, layer: Layer) -> int:
        """Of comparisons."""
        return _pool_instructions(layer, vector=16, last=14)

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """A window and its maximum."""
        return 400


class MeanMve(Variant):
    """Four channels at a time."""

    name = "Helium"
    header = "variants/pool_mve.h"
    function = "disco_mean_mve"
    structure = "disco_mean_t"
    instruction_set = "mve"
    params = Mean

    def fits(self, layer: Layer) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def constants(self, layer: Layer) -> Constants:
        """No arrays."""
        assert isinstance(layer.params, Mean)
        p = layer.params.values
        return Constants(
            (),
            {
                "input_zero_point": p.input_zero_point,
                "output_zero_point": p.output_zero_point,
                "multiplier": p.multiplier.multiplier,
                "shift": p.multiplier.shift,
            },
        )

    def instructions(self, layer: Layer) -> int:
        """Of sums, and their requantisation."""
        view = layer.inputs[0]
        return -(-view.channels // 4) * (view.height * view.width * 5 + 40) + 40

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """A loop and what follows."""
        return 300


def _pool(layer: Layer) -> AveragePool2D | MaxPool2D:
    assert isinstance(layer.params, (AveragePool2D, MaxPool2D))
    return layer.params


def _pool_constants(layer: Layer) -> Constants:
    op = _pool(layer)
    limits = {"activation_min": op.activation.minimum, "activation_max": op.activation.maximum}
    return Constants((), {"window": window_fields(op.window), **limits})


def _pool_instructions(layer: Layer, vector: int, last: int) -> int:
    """`last` follows the walk over a window of each vector of channels."""
    window, out = _pool(layer).window, layer.output
    walk = window.kernel_h * (window.kernel_w * 4 + 3)
    return out.height * out.width * (-(-out.channels // vector) * (walk + last) + 60)
