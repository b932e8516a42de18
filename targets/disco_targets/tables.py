"""Tables that a person reads: names fold where a table is too wide, figures are never cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

FILE_WIDTH = 120
"""Columns of text in a file or pipe."""


def report_console() -> Console:
    """For reports on standard output: as wide as the terminal, or `FILE_WIDTH` where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, FILE_WIDTH))


def report_table(title: str | None, texts: Iterable[str], numbers: Iterable[str], **options: Any) -> Table:
    """An empty table: columns of `texts`, then of `numbers` (to the right); `options` are rich's."""
    table = Table(title=title, title_justify="left", **options)
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table
