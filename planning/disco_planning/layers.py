"""Layer tables: what the latency model and the planner know of a network.

One row for each convolution and linear layer, in the order of execution. As CSV, a table has the columns of `COLUMNS`,
in any order, and may start with comment lines (`#`). Those of `OPTIONAL` may be left out, and `src` may be called
`source tensor` and hold names.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS = (
    "name", "in_ch", "out_ch", "kernel", "stride", "in_h", "in_w", "groups", "macs", "out_h", "out_w", "dilation", "src"
)  # fmt: skip
OPTIONAL = ("out_h", "out_w", "dilation")
"""Without them the output has the size of the input over the stride, rounded up, and dilation is 1."""
SOURCE = "source tensor"
_PAIRS = ("kernel", "stride", "dilation")


@dataclass(frozen=True)
class Layer:
    """A convolution, or a linear layer: kernel 1, its tokens (1 when it reads a vector) along `in_h`."""

    name: str
    in_ch: int
    out_ch: int
    kernel: tuple[int, int]
    """Height, width."""
    stride: tuple[int, int]
    in_h: int
    in_w: int
    groups: int
    macs: int
    """Multiply-accumulates of one inference."""
    out_h: int
    out_w: int
    dilation: tuple[int, int]
    src: int
    """Which tensor it reads: layers with the same number read the same one."""

    @property
    def input_values(self) -> int:
        """How many values its input tensor has."""
        return self.in_ch * self.in_h * self.in_w


def as_row(layer: Layer) -> dict[str, str | int]:
    """The columns of a layer; a pair of equal numbers is one number, another is "HxW"."""
    row: dict[str, str | int] = {}
    for column in COLUMNS:
        value = getattr(layer, column)
        if isinstance(value, tuple):
            row[column] = value[0] if value[0] == value[1] else f"{value[0]}x{value[1]}"
        else:
            row[column] = value
    return row


def write_table(layers: Iterable[Layer], comment: str = "") -> str:
    """The CSV text of a table, `comment` above it."""
    text = io.StringIO()
    for line in comment.splitlines():
        text.write(f"# {line}\n")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for layer in layers:
        writer.writerow(as_row(layer))
    return text.getvalue()


def read_table(text: str, where: str) -> tuple[Layer, ...]:
    """The table of a CSV text; `where` names it in messages.

    Raises:
        DiscoError: A column is missing or unknown, a value is no positive whole number, or two layers share a name.
    """
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if not line.startswith("#")]
    reader = csv.DictReader((line for _, line in lines), restkey="", strict=True)
    try:
        names = ["src" if name == SOURCE else name for name in reader.fieldnames or ()]
        if len(set(names)) != len(names) or not set(COLUMNS) - set(OPTIONAL) <= set(names) <= set(COLUMNS):
            raise DiscoError(
                f"{where} is not a layer table: it needs the columns {','.join(COLUMNS)} ({', '.join(OPTIONAL)} may be "
                f"left out, src may be called '{SOURCE}')"
            )
        tensors: dict[str, int] | None = {} if SOURCE in (reader.fieldnames or ()) else None
        reader.fieldnames = names
        layers = tuple(_layer(row, tensors, f"{where}, line {lines[reader.line_num - 1][0]}") for row in reader)
    except csv.Error as error:
        raise DiscoError(f"{where} is not a CSV file ({error})") from error
    if not layers:
        raise DiscoError(f"{where} has no layers")
    return unique_names(layers, where)


def unique_names(layers: tuple[Layer, ...], where: str) -> tuple[Layer, ...]:
    """The same layers; DiscoError when two of them share a name."""
    seen: set[str] = set()
    for layer in layers:
        if layer.name in seen:
            raise DiscoError(f"{where}: two layers are called {layer.name!r}: give each its own name")
        seen.add(layer.name)
    return layers


def _layer(row: dict[str, str], tensors: dict[str, int] | None, where: str) -> Layer:
    """A row; `tensors` numbers the names of source tensors, where they have names."""
    if None in row.values() or "" in row:
        raise DiscoError(f"{where}: expected {len(set(row) - {''})} values")
    values: dict[str, Any] = {"name": row["name"], "dilation": (1, 1)}
    if tensors is not None:
        row["src"] = str(tensors.setdefault(row["src"], len(tensors)))
    for column in (column for column in COLUMNS[1:] if column in row):
        parse = _pair if column in _PAIRS else _number
        values[column] = parse(row[column], column, where, 0 if column == "src" else 1)
    for size, stride in zip(("h", "w"), values["stride"], strict=True):
        values.setdefault(f"out_{size}", -(-values[f"in_{size}"] // stride))
    layer = Layer(**values)
    if not layer.name:
        raise DiscoError(f"{where}: the layer has no name")
    if layer.in_ch % layer.groups or layer.out_ch % layer.groups:
        raise DiscoError(f"{where}: {layer.groups} groups do not divide {layer.in_ch} and {layer.out_ch} channels")
    return layer


def _pair(text: str, column: str, where: str, least: int) -> tuple[int, int]:
    first, _, second = text.partition("x")
    return _number(first, column, where, least), _number(second or first, column, where, least)


def _number(text: str, column: str, where: str, least: int) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) >= least):
        raise DiscoError(f"{where}: {column} is {text!r}, not a whole number of at least {least}")
    return int(text)
