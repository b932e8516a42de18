"""How many instructions variants/conv2d_winograd.h takes, and how large its code becomes."""

from __future__ import annotations

from dataclasses import dataclass

from disco_firmware.kernel_params import Conv2D, View
from disco_firmware.variants.base import Layer

LINE, TWO_LINES, SIGNED, ANY = range(4)
"""DISCO_WINOGRAD_LINE and so on: how what the outputs' transform leaves is requantised."""
QUAD, PAIR = 10, 6
"""Instructions of the inner loop for an element of two tiles and two outputs: four channels, and two that are left."""


@dataclass(frozen=True)
class Tiling:
    """How many tiles of outputs are computed together."""

    rows: int
    columns: int
    """Even; the tiles of a row go in twos."""


@dataclass(frozen=True)
class _Costs:
    """Instructions, fitted."""

    column: float
    """Two channels of a column of inputs."""
    row: float
    """Two channels of a row of a tile."""
    tile: float
    """First half of the outputs' transform; the second half goes by columns."""
    output_column: float


@dataclass(frozen=True)
class _Code:
    """Bytes of code: upper bounds over hundreds of random layers."""

    least: int
    tail: int
    few: int
    cut: int
    any_shift: int


_COSTS = {4: _Costs(32, 26.7, 110, 17), 2: _Costs(20, 14.2, 28, 11)}
_CODE = {4: _Code(5300, 700, 1300, 3400, 2100), 2: _Code(3700, 900, 2000, 900, 900)}


def predict_instructions(layer: Layer, tile_side: int, tiling: Tiling, rounding: int, transformed: bool) -> int:
    """Fitted on an emulated M4 to 40 layers of 1 to 64 channels: within 5 %, mostly 2 %."""
    assert isinstance(layer.params, Conv2D)
    op, output, cost, pairs_in = layer.params, layer.output, _COSTS[tile_side], pairs_of(layer.inputs[0])
    rows, tiles = -(-output.height // tile_side), -(-output.width // tile_side)
    groups, pairs = -(-tiles // tiling.columns), -(-output.channels // 2)
    inputs = rows * (tile_side * tiles + 2 * groups) * cost.column * pairs_in
    inputs += rows * tiles * (tile_side + 2) * pairs_in * cost.row
    # The last group of a row may end with half of a block of two tiles.
    blocks = rows * pairs * (tiles // tiling.columns * tiling.columns // 2 + -(-(tiles % tiling.columns) // 2))
    element = QUAD * (pairs_in // 2) + PAIR * (pairs_in % 2) + (2 if pairs_in <= 8 else 5)
    products = blocks * ((tile_side + 2) ** 2 * element + 40)
    pixel = {LINE: 3, TWO_LINES: 5, SIGNED: 9.7, ANY: 25}[rounding] + (4.7 if _clamps(op) else 0)
    tile = cost.tile + (0 if transformed else 45)
    outputs = 2 * pairs * rows * (tiles * tile + output.width * cost.output_column)
    outputs += output.channels * output.height * output.width * pixel
    weights = 0 if transformed else -(-rows // tiling.rows) * groups * pairs * pairs_in * 2 * 173
    return round(inputs + products + outputs + weights)


def estimate_code_bytes(layer: Layer, tile_side: int, rounding: int, transformed: bool) -> int:
    """More where the compiler repeats things: few channels, cut tiles, channels that fill no word, any shift."""
    output, channels = layer.output, layer.inputs[0].channels
    code = _CODE[tile_side]
    cut = output.height % tile_side > 0 or output.width % tile_side > 0
    bytes_more = code.tail * (channels % 4 > 0) + code.few * (channels <= 16) + code.cut * cut
    bytes_more += code.any_shift * (rounding == ANY)
    return code.least + bytes_more + (0 if transformed else 2900)


def pairs_of(view: View) -> int:
    """Of channels; the last one may be alone."""
    return -(-view.channels // 2)


def _clamps(op: Conv2D) -> bool:
    activation = op.requantise.activation
    return (activation.minimum, activation.maximum) != (-128, 127)
