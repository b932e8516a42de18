"""A bundle of a network so small that exporting and building it takes a moment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from disco_converter.export import ExportConfig, export
from disco_firmware.bundle import Bundle, load_bundle
from helpers.tflite_models import Op, Tensor, build

_CONV = {"Padding": 0, "StrideW": 1, "StrideH": 1, "DilationWFactor": 1, "DilationHFactor": 1}


def tiny_model(channels: int = 4, outputs: Sequence[int] = (6,), last: str | None = None) -> bytes:
    """Two 3x3 convolutions over 6x5 pixels: tensor 0 [1, 6, 5, 3] to tensors 3 and 6 [1, 6, 5, channels].

    `last` (ADD or MUL) makes tensor 7 of both.
    """
    random = np.random.default_rng(7)

    def weights(inputs: int) -> Tensor:
        data = random.integers(-127, 128, (channels, 3, 3, inputs), np.int8)
        return Tensor(data.shape, (0.005,) * channels, (0,) * channels, 0, data)

    def bias() -> Tensor:
        data = random.integers(-200, 200, channels, np.int32)
        return Tensor((channels,), (0.001,) * channels, (0,) * channels, 0, data)

    tensors = [
        Tensor((1, 6, 5, 3), (0.02,), (-3,)),
        weights(3),
        bias(),
        Tensor((1, 6, 5, channels), (0.1,), (5,)),
        weights(channels),
        bias(),
        Tensor((1, 6, 5, channels), (0.2,), (-1,)),
    ]
    ops = [
        Op("CONV_2D", (0, 1, 2), (3,), "Conv2DOptions", _CONV),
        Op("CONV_2D", (3, 4, 5), (6,), "Conv2DOptions", _CONV),
    ]
    if last is not None:
        tensors.append(Tensor((1, 6, 5, channels), (0.3,), (2,)))
        ops.append(Op(last, (3, 6), (7,), f"{last.capitalize()}Options", version=2))
    return build(tensors, ops, outputs)


def export_tiny(folder: Path, nodes: int = 2, target: str = "posix", channels: int = 4) -> Bundle:
    """Exports the tiny network to `folder`; what its first layer computes is sent, for there to be an exchange."""
    model = folder.parent / f"{folder.name}.tflite"
    model.write_bytes(tiny_model(channels))
    export(ExportConfig(model=model, nodes=nodes, targets=(target,), output=folder, recomputed_macs=0))
    return load_bundle(folder)
