"""Text that others wrote, before it is shown."""

from __future__ import annotations

from typing import Any


def printable(text: str) -> str:
    """The text with what a terminal would obey (control characters, line ends, writing directions) as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def printable_json(value: Any) -> Any:
    """A document of JSON with all text in it as `printable` gives it."""
    if isinstance(value, dict):
        return {printable(key): printable_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [printable_json(item) for item in value]
    return printable(value) if isinstance(value, str) else value
