"""The firmware benchmark's rows and pages."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

M4, M55 = "qemu-mps2-an386", "qemu-mps3-an547"


@pytest.fixture
def bench(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    return importlib.import_module("firmware")


def _row(bench: Any, model: str, optimize: str, nodes: int, instructions: int, latency: float | None) -> Any:
    layer = bench.LayerRow("conv_2d_0", "CONV_2D", "direct", 1000, instructions - 5, 0.5)
    pool = bench.LayerRow("max_pool_2d_1", "MAX_POOL_2D", "portable", 0, 5, None)
    cluster = "m4-uart" if nodes > 1 else None
    projections = () if latency is None else (bench.Projected(cluster, latency, latency / 4, latency / 5),)
    more = instructions + 100 if nodes > 1 else None
    row = bench.Row(
        model, M4, optimize, nodes, 0.0, instructions, more, 1000, 2000, 9, 8, 7, True, projections, (layer, pool)
    )
    return bench.asdict(row)


def test_rows_are_chosen_and_take_the_place_of_old_ones(bench: Any) -> None:
    options = argparse.Namespace(only=["ic", "kws"], board=[M4, M55], optimize=["speed"], nodes=None)
    wanted = [case for case in bench.cases() if bench.is_wanted(case, options)]
    assert [(case.model.name, case.board) for case in wanted] == [("ic", M4), ("ic", M55), ("kws", M4), ("kws", M55)]
    rows: list[Any] = []
    for model, optimize, count in (("kws", "size", 1), ("ic", "speed", 2), ("ic", "size", 3), ("kws", "size", 4)):
        rows = bench.merged(rows, _row(bench, model, optimize, 1, count, None))
    assert [(row["model"], row["instructions"]) for row in rows] == [("ic", 3), ("ic", 2), ("kws", 4)]


def test_rows_counted_with_other_tools_are_not_kept(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "firmware.json"
    monkeypatch.setattr(bench, "versions", lambda: {"gcc": "12"})
    assert bench.kept_rows(file) == []
    rows = [_row(bench, "ic", "size", 1, 3, None)]
    file.write_text(bench.as_json({"versions": bench.versions(), "rows": rows}))
    assert [row["instructions"] for row in bench.kept_rows(file)] == [3]
    monkeypatch.setattr(bench, "versions", lambda: {"gcc": "13"})
    with pytest.raises(SystemExit, match="run the whole benchmark"):
        bench.kept_rows(file)


def test_pages(bench: Any) -> None:
    rows = [_row(bench, "ic", "size", 1, 2005, None), _row(bench, "ic", "speed", 1, 1005, None)]
    rows += [_row(bench, "resnet8_dense", "size", 1, 3000, 60.0), _row(bench, "resnet8_dense", "size", 2, 1500, 40.0)]
    rows += [_row(bench, "resnet8_disco90", mode, 2, 1400, None) for mode in ("size", "speed")]
    document = {"versions": {"gcc": "12"}, "rows": rows}
    text = bench.page(document, "layers.md")
    assert f"| ic | {M4} | size | 1 | 0% | 2,005 | - | 29.87 M | 2.00 | 1,000 | 2,000 | 7 | 9 | 8 | yes |" in text
    assert "| resnet8_dense | 0% | size | one | 60.00 | 1.00 | - | - | - |" in text
    assert "| resnet8_dense | 0% | size | two, m4-uart | 40.00 | 1.50 | 25.0% | 20.0% | 5.0% |" in text
    layers = bench.layer_page(document, "networks.md")
    assert "| conv_2d_0 | 1,000 | 2.134 M | direct | 2,000 | 2.00 (0.50) | direct | 1,000 | 1.00 (0.50) |" in layers
    assert "| max_pool_2d_1 | - | - | portable | 5 | - | portable | 5 | - |" in layers
    assert "| all | 1,000 | 29.87 M |  | 2,005 | 2.00 |  | 1,005 | 1.00 |" in layers
    assert f"## resnet8_disco90, {M4}, node 0 of 2" in layers
    assert "resnet8_dense" not in layers  # one mode: nothing to compare
