"""All variants, and those that can compute a layer."""

from __future__ import annotations

from disco_firmware.variants.add_mve import AddMve
from disco_firmware.variants.add_products import AddProducts
from disco_firmware.variants.add_table import AddTable
from disco_firmware.variants.base import Layer, Variant
from disco_firmware.variants.conv2d_dsp import Conv2DDspInt8, Conv2DDspInt16
from disco_firmware.variants.conv2d_mve import Conv2DMve
from disco_firmware.variants.conv2d_winograd import WinogradF2, WinogradF4, WinogradF4Unpacking
from disco_firmware.variants.conv2d_winograd_s2 import WinogradStride2
from disco_firmware.variants.depthwise_any_dsp import DepthwiseAnyDsp
from disco_firmware.variants.depthwise_dsp import Depthwise3x3Dsp
from disco_firmware.variants.depthwise_mve import DepthwiseMve
from disco_firmware.variants.fully_connected_dsp import FullyConnectedDsp
from disco_firmware.variants.fully_connected_mve import FullyConnectedMve
from disco_firmware.variants.mul_dsp import MulDsp
from disco_firmware.variants.pool_dsp import AveragePoolDsp, MaxPoolDsp, MeanDsp
from disco_firmware.variants.pool_mve import AveragePoolMve, MaxPoolMve, MeanMve
from disco_firmware.variants.relu_table import ReluTable
from disco_firmware.variants.softmax_once import SoftmaxOnce
from disco_targets.board import INSTRUCTION_SETS

VARIANTS: tuple[Variant, ...] = (
    Depthwise3x3Dsp(),
    DepthwiseAnyDsp(),
    FullyConnectedDsp(),
    AddProducts(),
    AddTable(),
    MulDsp(),
    AveragePoolDsp(),
    MaxPoolDsp(),
    MeanDsp(),
    ReluTable(),
    SoftmaxOnce(),
    AddMve(),
    Conv2DDspInt8(),
    Conv2DDspInt16(),
    WinogradF2(),
    WinogradF4(),
    WinogradF4Unpacking(),
    WinogradStride2(),
    Conv2DMve(),
    DepthwiseMve(),
    FullyConnectedMve(),
    AveragePoolMve(),
    MaxPoolMve(),
    MeanMve(),
)


def candidates(layer: Layer, instruction_set: str) -> tuple[Variant, ...]:
    """The variants that compute `layer` exactly on a core with this instruction set."""
    have = INSTRUCTION_SETS.index(instruction_set)
    return tuple(
        variant
        for variant in VARIANTS
        if INSTRUCTION_SETS.index(variant.instruction_set) <= have
        and isinstance(layer.params, variant.params)
        and variant.fits(layer)
    )
