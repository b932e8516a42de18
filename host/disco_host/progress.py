"""A progress bar on a terminal; nothing where nobody looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

if TYPE_CHECKING:
    from rich.console import Console


class Bar:
    """Shows the step and the inferences of a run; a context manager."""

    def __init__(self, console: Console) -> None:
        """Draws on `console` if that is a terminal."""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task("", total=None)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._progress.stop()

    def step(self, text: str) -> None:
        """A new step begins."""
        self._progress.update(self._task, description=text)

    def inference(self, done: int, total: int) -> None:
        """`done` of `total` inferences are over."""
        self._progress.update(self._task, completed=done, total=total)
