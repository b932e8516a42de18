"""The targets of the firmware benchmark: which figures are held against which limit."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def targets(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    return importlib.import_module("firmware_targets")


def _row(model: str, instructions: int, nodes: int = 1, board: str = "qemu-mps2-an386", **more: Any) -> dict[str, Any]:
    row = {"model": model, "board": board, "optimize": "balanced", "nodes": nodes, "instructions": instructions}
    return {**row, "instructions_with_protocol": None, "projections": [], **more}


def _projection(exposed: float, cluster: str = "m4-168mhz-uart-3mbaud") -> dict[str, Any]:
    return {"cluster": cluster, "latency_ms_projected": 20.0, "exposed_ms_projected": exposed}


def test_a_network_that_takes_too_many_instructions_is_missed(targets: Any) -> None:
    rows = [_row("kws", 3_600_000), _row("kws", 3_600_001), _row("kws", 9_000_000, board="qemu-mps2-an500")]
    assert [target.met for target in targets.targets_of(rows)] == [True, False]


def test_two_boards_are_held_against_one_with_and_without_protocol(targets: Any) -> None:
    rows = [_row("resnet8_dense", 1000), _row("resnet8_disco90", 390, 2, instructions_with_protocol=410)]
    found = targets.targets_of(rows)
    assert [(target.figure, target.met) for target in found] == [(0.39, True), (0.41, False)]
    assert "**missed**" in targets.target_table(found)[-1]
    assert targets.targets_of(rows[1:]) == []


def test_exposed_communication_is_that_of_one_cluster(targets: Any) -> None:
    projections = [_projection(0.9), _projection(1.1), _projection(9.0, "m4-168mhz-uart-1mbaud")]
    found = targets.targets_of([_row("resnet8_disco90", 390, 2, projections=projections)])
    assert [target.met for target in found] == [True, False]
