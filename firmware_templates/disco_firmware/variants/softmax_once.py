"""SOFTMAX on any core."""

from __future__ import annotations

from disco_firmware.kernel_params import Softmax
from disco_firmware.variants import portable
from disco_firmware.variants.base import Constants, Layer, Variant


class SoftmaxOnce(Variant):
    """Each exponential computed once and kept in scratch."""

    name = "exponentials kept"
    header = "variants/softmax_once.h"
    function = "disco_softmax_once"
    structure = "disco_softmax_t"
    instruction_set = "base"
    params = Softmax

    def fits(self, layer: Layer) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def constants(self, layer: Layer) -> Constants:
        """disco_softmax_t."""
        return portable.constants(layer.params)

    def scratch_bytes(self, layer: Layer) -> int:
        """One exponential per channel."""
        return 4 * layer.output.channels

    def instructions(self, layer: Layer) -> int:
        """What an exponential takes depends on the values."""
        pixels = layer.output.height * layer.output.width
        return pixels * (190 + 86 * layer.output.channels)

    def code_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """The series, the reciprocal and the loops."""
        return 2300
