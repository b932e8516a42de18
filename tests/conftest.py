"""What all tests share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


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
