"""All variants, and those that can compute a layer."""

from __future__ import annotations

from disco_firmware.variants.base import Layer, Variant
from disco_targets.board import INSTRUCTION_SETS

VARIANTS: tuple[Variant, ...] = ()


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
