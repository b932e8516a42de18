"""Text that others wrote, before it is shown."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with what a terminal would obey (control characters, line ends, writing directions) as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
