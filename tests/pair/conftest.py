"""Bundles of the example network, quantised once per session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from disco_converter.quantise import quantise_onnx
from helpers.bundles import EXAMPLE, export_example

BundleMaker = Callable[[int, str], Path]


@pytest.fixture(scope="session")
def disco90() -> bytes:
    """The example's DISCO 90 % network, int8."""
    calibration = np.load(EXAMPLE / "calibration.npy")
    return quantise_onnx(EXAMPLE / "models" / "resnet8_disco90.onnx", calibration)


@pytest.fixture(scope="session")
def make_bundle(disco90: bytes, tmp_path_factory: pytest.TempPathFactory) -> BundleMaker:
    """Exports the example for (nodes, target); the same bundle again for the same request."""
    made: dict[tuple[int, str], Path] = {}

    def make(nodes: int, target: str) -> Path:
        if (nodes, target) not in made:
            folder = tmp_path_factory.mktemp("bundles") / f"{target}-{nodes}"
            export_example(folder, reference=disco90, nodes=nodes, target=target)
            made[nodes, target] = folder
        return made[nodes, target]

    return make
