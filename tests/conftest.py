"""What all tests share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
MAY_LACK = ("no MLPerf Tiny models", "no atheris", "no systemd-analyze")
"""What even a machine that `make test` has set up need not have."""


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_models() -> Path:
    """The folder of the four MLPerf Tiny int8 models, which are not part of the repository.

    They lie beside the checkout, or where DISCO_SHARED_MODELS points to.
    """
    default = REPOSITORY.parent / "shared" / "models" / "mlperf_tiny"
    folder = Path(os.environ.get("DISCO_SHARED_MODELS", default))
    if not any(folder.glob("*.tflite")):
        pytest.skip(f"no MLPerf Tiny models in {folder}; set DISCO_SHARED_MODELS to their folder")
    return folder


@pytest.fixture(autouse=True)
def _usual_recursion_limit() -> None:
    """PyTorch's tracing raises the limit for the whole process; Python's JSON parser then overflows the stack."""
    sys.setrecursionlimit(1000)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where CI runs, an install step that got lost is no reason to test less."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if "CI" not in os.environ or terminal is None:
        return
    reasons = {report.longrepr[2] for report in terminal.stats.get("skipped", []) if isinstance(report.longrepr, tuple)}
    lost = sorted(reason for reason in reasons if not any(known in reason for known in MAY_LACK))
    if lost:
        terminal.write_line("")
        terminal.write_line(f"Tests were skipped that CI has to run: {'; '.join(lost)}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
