"""Tables are read by people: names may fold, figures may not."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from disco_targets.tables import FILE_WIDTH, report_console, report_table


def test_a_narrow_table_folds_names_and_keeps_figures_whole() -> None:
    table = report_table("Title", ("layer",), ("first", "second"))
    table.add_row("a.very.long.name.of.a.layer.in.a.deep.network", "1,234,567", "0.9900")
    console = Console(file=io.StringIO(), width=40)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "1,234,567" in text
    assert "0.9900" in text
    assert "…" not in text


def test_a_file_gets_wide_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert not report_console().is_terminal
    assert report_console().width == FILE_WIDTH
