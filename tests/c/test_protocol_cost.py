"""What the protocol costs an emulated Cortex-M4, and that the example projections assume just that."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from disco_host.config import CYCLES_ESTIMATE, INSTRUCTIONS
from disco_host.projection_file import load_projection
from helpers.c_build import tool

TOLERANCE = 0.05
"""Another compiler's code."""


@pytest.fixture
def measured(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """protocol_cost.py, by what is counted."""
    for name in ("arm-none-eabi-gcc", "qemu-system-arm", "gcc"):
        tool(name)
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    return lambda count: importlib.import_module("protocol_cost").protocol_cost(count, tmp_path)


def test_instructions_of_a_look_and_of_a_byte(measured: Any) -> None:
    cost = measured(INSTRUCTIONS)
    assert 70 < cost.look < 137 * (1 + TOLERANCE)
    assert set(cost.link_byte) == {"one", "two", "all"}
    assert all(4 < each < 11.8 * (1 + TOLERANCE) for each in cost.link_byte.values())


def test_projections_assume_what_is_measured(measured: Any, repository: Path) -> None:
    cost = measured(CYCLES_ESTIMATE)
    for file in sorted((repository / "examples" / "clusters").glob("m4-*.toml")):
        node = load_projection(file, 1).nodes[0]
        assert node.cycles_per_look == pytest.approx(cost.look, rel=TOLERANCE)
        assert node.cycles_per_link_byte == pytest.approx(max(cost.link_byte.values()), rel=TOLERANCE)
