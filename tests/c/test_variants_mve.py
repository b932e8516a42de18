"""The Helium kernels equal TFLite's reference kernels bit for bit and touch nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from helpers import variant_mve
from helpers.kernel_cases import random_cases
from helpers.kernel_driver import assert_equal, run_driver

CASES = int(os.environ.get("DISCO_VARIANT_CASES", "200"))
GENERATORS = (
    *("conv2d", "padded_conv2d", "depthwise_conv2d", "fully_connected", "add"),
    *("average_pool2d", "max_pool2d", "mean"),
)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """The command that runs the test program."""
    return variant_mve.build_driver(tmp_path_factory.mktemp("variant_mve") / "driver.elf")


@pytest.mark.parametrize("name", GENERATORS)
def test_equals_the_reference(driver: Sequence[str], name: str, tmp_path: Path) -> None:
    cases = variant_mve.fitting(random_cases(name, CASES, seed=100 + len(name)))
    assert len(cases) > CASES / 3
    assert_equal(cases, run_driver(driver, variant_mve.pack(cases), tmp_path))
    assert sum(np.unique(case.expected).size > 1 for case in cases) > len(cases) / 3
