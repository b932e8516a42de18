"""What all commands share: one clear error and an exit code, an orderly end, files written whole."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from disco_targets.errors import DiscoError, exit_code
from disco_targets.interrupts import interruptible


def run_command(name: str, action: Callable[[Console], int]) -> int:
    """Calls `action` with the console for errors and progress (standard error) and returns its exit code.

    A DiscoError, a refusal of the system (no permission, no space) or an interrupt (Ctrl-C, SIGTERM, SIGHUP) becomes
    one line and the code of errors.exit_code.
    """
    errors = Console(stderr=True)
    try:
        with interruptible():
            return _answering_for_the_system(action, errors)
    except (DiscoError, KeyboardInterrupt) as error:
        text = f"{name}: {str(error) or 'interrupted'}"
        errors.print(text, markup=False, highlight=False, soft_wrap=True)
        return exit_code(error)


def _answering_for_the_system(action: Callable[[Console], int], errors: Console) -> int:
    try:
        return action(errors)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise DiscoError(
            f"{name}{error.strerror or error}: check the path, your permissions and the space that is left"
        ) from error
    except MemoryError as error:
        raise DiscoError("the memory of this PC does not suffice: use a smaller model or fewer inputs") from error


def check_writable(path: Path | None) -> None:
    """DiscoError when a report could not go there, before the work is done that it reports."""
    if path is None:
        return
    # Replacing a device such as /dev/null would take it away from everyone.
    replaceable = path.is_file() or not path.exists()
    if not replaceable or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise DiscoError(f"{path} cannot be written: name a file in an existing folder that you may write to")


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
        raise DiscoError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
