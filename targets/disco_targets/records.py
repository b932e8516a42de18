"""Dataclasses from plain data (TOML, JSON): keys known, and present where there is no default; values of their type."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, TypeVar

from disco_targets.errors import DiscoError

T = TypeVar("T")


def record(cls: type[T], data: Any, where: str) -> T:
    """An instance of the dataclass `cls` from a table; nested dataclasses, tuples and unions are followed.

    Raises:
        DiscoError: Unknown or missing keys, or a value of another type; `where` says in which file.
    """
    if not isinstance(data, dict):
        raise DiscoError(f"{where}: expected a table, found {data!r}")
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    names = {field.name for field in fields}
    needed = {field.name for field in fields if field.default is dataclasses.MISSING}
    problems = [
        f"{what} keys {', '.join(sorted(keys))}"
        for what, keys in (("unknown", set(data) - names), ("missing", needed - set(data)))
        if keys
    ]
    if problems:
        raise DiscoError(f"{where}: {'; '.join(problems)}")
    return cls(**{name: _value(hints[name], data[name], f"{where}: {name}") for name in names & set(data)})


def _value(hint: Any, data: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        options = typing.get_args(hint)
        if type(data) in options:  # None, text: what needs no look inside
            return data
        return _value(next(option for option in options if option not in (str, type(None))), data, where)
    if origin is tuple:
        if not isinstance(data, list):
            raise DiscoError(f"{where}: expected a list, found {data!r}")
        return tuple(_value(typing.get_args(hint)[0], item, where) for item in data)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return record(hint, data, where)
    if hint is float and type(data) is int:
        return float(data)
    if type(data) is not hint:
        raise DiscoError(f"{where}: expected {hint.__name__}, found {data!r}")
    return data
