"""Systems as data: how fast a node's link and its processor are, and who says so.

A system is a TOML file with `name`, `bandwidth` (e.g. "37.5MB/s", sent and received together), `compute` (e.g.
"125GOP/s", of one node) and `source`; it may have `value_bytes` (of a value on the wire) and, where links were
measured, a table `[[link]]` for each. Unknown keys are refused.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from disco_planning.units import parse_bandwidth, parse_compute
from disco_targets.errors import DiscoError, UsageError
from disco_targets.records import record
from disco_targets.toml import read_toml

if TYPE_CHECKING:
    from importlib.abc import Traversable


@dataclass(frozen=True)
class MeasuredLink:
    """What was measured of a link, from the node `sender` to the node `receiver`. The model has no use of it."""

    sender: int
    receiver: int
    one_way: str
    """A rate, e.g. "37.5MB/s"."""
    both_ways: str
    """A rate, sent and received bytes together."""
    small_bytes: int
    small_round_trip: str
    """Median of so few bytes there and back, e.g. "85us"."""
    small_round_trip_p95: str
    large_bytes: int
    large_round_trip: str
    """Median of so many bytes there and a small answer."""


@dataclass(frozen=True)
class System:
    """One node's link and processor; all nodes are alike."""

    name: str
    bandwidth_bytes_per_s: float
    """What goes through a node's link, sent and received bytes together."""
    operations_per_s: float
    source: str
    """Where the two figures were published."""
    value_bytes: float | None = None
    """Of one value on the wire, where the system says."""
    links: tuple[MeasuredLink, ...] = ()


@dataclass(frozen=True)
class _File:
    name: str
    bandwidth: str
    compute: str
    source: str
    value_bytes: float | None = None
    link: tuple[MeasuredLink, ...] = ()


def known_systems() -> tuple[str, ...]:
    """Names of all systems that come with the package, sorted."""
    return tuple(sorted(f.name.removesuffix(".toml") for f in _folder().iterdir() if f.name.endswith(".toml")))


def load_system(name: str) -> System:
    """The system called `name`, or the one of a TOML file when `name` ends with `.toml`.

    Raises:
        UsageError: No system has that name (the known ones are listed).
        DiscoError: The file is missing, has unknown or missing keys, or units that do not parse.
    """
    if name.endswith(".toml"):
        return _load(Path(name), name)
    if name not in known_systems():
        close = difflib.get_close_matches(name, known_systems(), 1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(
            f"unknown system {name!r}: {hint}known systems: {', '.join(known_systems())}, or a file NAME.toml"
        )
    return _load(_folder() / f"{name}.toml", f"systems/{name}.toml")


def _load(file: Path | Traversable, where: str) -> System:
    table = read_toml(file, where)
    try:
        data = record(_File, table, where)
    except DiscoError as error:
        raise DiscoError(f"{error} (a system has name, bandwidth, compute and source, all text)") from error
    try:
        bandwidth, compute = parse_bandwidth(data.bandwidth), parse_compute(data.compute)
    except UsageError as error:
        raise DiscoError(f"{where}: {error}") from error
    return System(data.name, bandwidth, compute, data.source, data.value_bytes, data.link)


def _folder() -> Traversable:
    return files("disco_planning") / "systems"
