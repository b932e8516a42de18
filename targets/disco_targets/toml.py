"""TOML files as tables."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disco_targets.errors import DiscoError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from importlib.abc import Traversable


def read_toml(file: Path | Traversable, where: str) -> dict[str, Any]:
    """The top table of a file; `where` names it in messages.

    Raises:
        DiscoError: It cannot be read, or is no TOML.
    """
    try:
        table: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DiscoError(f"{where} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DiscoError(f"{where} cannot be read as TOML: {error}") from error
    return table


def check_keys(table: Collection[str], known: Collection[str], where: str) -> None:
    """DiscoError where a table has a key that is not known."""
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise DiscoError(f"{where}: unknown key {unknown[0]!r}; known: {', '.join(sorted(known))}")
