"""What all commands share: one clear error and an exit code, an orderly end, files written whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from disco_targets.errors import DiscoError, exit_code
from disco_targets.interrupts import interruptible


def run_command(name: str, action: Callable[[Console], int]) -> int:
    """Calls `action` with the console for errors and progress (standard error) and returns its exit code.

    A DiscoError or an interrupt (Ctrl-C, SIGTERM, SIGHUP) becomes one line and the code of errors.exit_code.
    """
    errors = Console(stderr=True)
    try:
        with interruptible():
            return action(errors)
    except (DiscoError, KeyboardInterrupt) as error:
        text = f"{name}: {str(error) or 'interrupted'}"
        errors.print(text, markup=False, highlight=False, soft_wrap=True)
        return exit_code(error)


def check_writable(path: Path | None) -> None:
    """DiscoError when a report could not go there, before the work is done that it reports."""
    if path is not None and (not path.parent.is_dir() or path.is_dir()):
        raise DiscoError(f"{path} cannot be written: name a file in an existing folder")


def write_json(path: Path | None, document: dict[str, Any], indent: int | None = 1) -> None:
    """Writes `document` whole or not at all; does nothing without a path.

    Raises:
        DiscoError: It cannot be written.
    """
    if path is None:
        return
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(json.dumps(document, indent=indent) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise DiscoError(f"{path} cannot be written: {error.strerror}") from error
