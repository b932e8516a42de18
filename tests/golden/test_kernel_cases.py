"""The C kernels on stored cases: needs no TFLite, pins what earlier versions gave."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers import c_build
from helpers.kernel_driver import DRIVER_SOURCES, run_driver

STORED = np.load(Path(__file__).with_name("kernel_cases.npz"))
NAMES = sorted({key.split(".")[0] for key in STORED.files})


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test program, sanitized."""
    output = tmp_path_factory.mktemp("driver") / "kernel_driver"
    return c_build.compile_c("gcc", DRIVER_SOURCES, output, ("-O1", *c_build.SANITIZERS))


@pytest.mark.parametrize("name", NAMES)
def test_stored_cases(driver: Path, name: str, tmp_path: Path) -> None:
    outputs = run_driver([str(driver)], STORED[f"{name}.cases"].tobytes(), tmp_path)
    assert outputs == STORED[f"{name}.outputs"].tobytes()
