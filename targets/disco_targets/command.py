"""What all commands share: one clear error and an exit code, an orderly end, files written whole."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from disco_targets.disk import full_disk, is_full, writing_to
from disco_targets.errors import EXIT_FAILED, DiscoError, UsageError, exit_code
from disco_targets.interrupts import interruptible


def command_parser(name: str, description: str, examples: str) -> argparse.ArgumentParser:
    """A parser with `--version`, whose help ends with `examples` as they stand."""
    parser = argparse.ArgumentParser(
        prog=name,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{name} {version('disco-edge')}")
    return parser


def run_command(name: str, action: Callable[[Console], int]) -> int:
    """Calls `action` with the console for errors and progress (standard error) and returns its exit code.

    A DiscoError or an interrupt (Ctrl-C, SIGTERM, SIGHUP) becomes one line and the code of errors.exit_code. So does
    what the operating system refuses (a full disk, a name too long, no descriptors or memory left): no bug of ours.
    """
    _prepare_streams()
    errors = Console(stderr=True)
    try:
        with interruptible():
            return action(errors)
    except (DiscoError, KeyboardInterrupt) as error:
        say(errors, f"{name}: {str(error) or 'interrupted'}")
        return exit_code(error)
    except OSError as error:
        about = f"{error.filename}: " if error.filename is not None else ""
        full = full_disk(error, advice="free some space where this command writes its output and files")
        say(errors, f"{name}: {full if is_full(error) else f'{about}{error.strerror or error}'}")
        return EXIT_FAILED
    except MemoryError:
        say(errors, f"{name}: this PC's memory does not suffice: run fewer or smaller inputs")
        return EXIT_FAILED


def say(console: Console, text: str) -> None:
    """Prints a line as it is: nothing in it is markup, and it is not wrapped."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _prepare_streams() -> None:
    """No descriptor of ours becomes 0, 1 or 2, which a child's own streams would replace; no character is too much."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= 2:  # it was closed when we were started
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def check_writable(path: Path | None) -> None:
    """DiscoError when a report could not go there, before the work is done that it reports."""
    if path is None:
        return
    if not path.parent.is_dir() or (path.exists() and not path.is_file()):  # a device would be replaced by a file
        raise DiscoError(f"{path} cannot be written: name a file in an existing folder")
    partial = _partial(path)
    try:
        partial.touch()
        partial.unlink()
    except OSError as error:
        raise DiscoError(f"{path} cannot be written: {error.strerror}") from error


def check_reports(files: Mapping[str, Path | None]) -> None:
    """`check_writable` for all files that options name (by option), and UsageError where two are the same file."""
    taken: dict[Path, str] = {}
    for option, file in files.items():
        check_writable(file)
        if file is not None and (other := taken.setdefault(file.resolve(), option)) != option:
            raise UsageError(f"{other} and {option} name the same file: give each its own")


def write_json(path: Path | None, document: dict[str, Any], indent: int | None = 1) -> None:
    """Writes `document` whole or not at all; does nothing without a path.

    Raises:
        DiscoError: It cannot be written.
    """
    if path is not None:
        write_text(path, json.dumps(document, indent=indent) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all; raises as `write_json`."""
    partial = _partial(path)
    try:
        with writing_to(path.parent):
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
    except OSError as error:
        raise DiscoError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    """Beside `path`, and of this process alone."""
    return path.with_name(f".{path.name}.{os.getpid()}.partial")
