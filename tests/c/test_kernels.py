"""The C kernels equal TFLite's reference kernels bit for bit, and touch nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers import c_build
from helpers.kernel_cases import GENERATORS, random_cases
from helpers.kernel_driver import DRIVER_SOURCES, Case, assert_equal, run_driver

CASES_PER_KERNEL = 300
BUILDS = {
    "gcc -O2": ("gcc", ("-O2",)),
    "gcc sanitized": ("gcc", ("-O1", *c_build.SANITIZERS)),
    "clang -O3": ("clang", ("-O3",)),
}


@pytest.fixture(scope="session")
def cases_of() -> dict[str, list[Case]]:
    """Filled by the tests, so that every build runs the same cases."""
    return {}


@pytest.fixture(scope="session", params=BUILDS)
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test program in each build."""
    compiler, flags = BUILDS[request.param]
    output = tmp_path_factory.mktemp("driver") / "kernel_driver"
    return c_build.compile_c(compiler, DRIVER_SOURCES, output, flags)


@pytest.mark.parametrize("name", GENERATORS)
def test_equals_the_reference(
    driver: Path, name: str, cases_of: dict[str, list[Case]], tmp_path: Path
) -> None:
    if name not in cases_of:
        cases_of[name] = random_cases(name, CASES_PER_KERNEL, seed=len(name))
    cases = cases_of[name]
    assert_equal(cases, run_driver(driver, cases, tmp_path))
    # A test of constants would prove little.
    assert sum(np.unique(case.expected).size > 1 for case in cases) > CASES_PER_KERNEL / 3
