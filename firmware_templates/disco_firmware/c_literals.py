"""C identifiers and literals for the generated sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

LINE_WIDTH = 120

_RESERVED = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "_Bool",
        "_Complex",
        "_Imaginary",
        "asm",
        "bool",
        "true",
        "false",
        "NULL",
        "main",
    ]
)


def identifier(text: str) -> str:
    """A C identifier that resembles `text`; never a reserved word, never starting with a digit or an underscore."""
    name = re.sub(r"[^0-9A-Za-z]+", "_", text).strip("_") or "unnamed"
    if name[0].isdigit() or name in _RESERVED:
        name = f"x_{name}"
    return name


def comment(text: str) -> str:
    """`text` made safe inside a /* */ comment, on one line."""
    plain = "".join(c if c.isprintable() and ord(c) < 128 else "?" for c in text)
    return plain.replace("*/", "* /").replace("/*", "/ *")


def integer(value: int) -> str:
    """A decimal literal of type int or unsigned int; the most negative int has no literal of its own."""
    if not -(2**31) <= value < 2**32:
        raise ValueError(f"{value} is not a 32-bit integer")
    if value >= 2**31:
        return f"{value}u"
    return "(-2147483647 - 1)" if value == -(2**31) else str(value)


def element(value: object) -> str:
    """A literal, or the initialiser of a structure or an inner array given as a sequence."""
    if isinstance(value, (tuple, list)):
        return "{" + ", ".join(element(part) for part in value) + "}"
    return integer(value) if isinstance(value, int) else element(np.asarray(value).tolist())


def array_body(values: Iterable[object], indent: str = "    ") -> str:
    """Comma-separated elements, wrapped to LINE_WIDTH."""
    lines: list[str] = []
    line = indent
    for value in values:
        item = f"{element(value)}, "
        if len(line) + len(item.rstrip()) > LINE_WIDTH:
            lines.append(line.rstrip())
            line = indent
        line += item
    lines.append(line.rstrip())
    return "\n".join(lines)


def initialiser(fields: Mapping[str, object]) -> str:
    """A designated initialiser on one line; a nested mapping becomes a nested initialiser, an int a literal."""
    parts = (f".{name} = {_field(value)}" for name, value in fields.items())
    return "{" + ", ".join(parts) + "}"


def _field(value: object) -> str:
    if isinstance(value, Mapping):
        return initialiser(value)
    return integer(value) if isinstance(value, int) else str(value)
