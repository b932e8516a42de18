"""Quantities as people write them: 37.5MB/s, 300Mbit/s, 125GOP/s, 35ms."""

from __future__ import annotations

import math
import re

from disco_targets.errors import UsageError

_PREFIXES = {
    "": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30
}  # fmt: skip
_BANDWIDTHS = {"B/s": 1.0, "bit/s": 0.125, "bps": 0.125}
_RATES = dict.fromkeys(("OP/s", "OPS", "FLOP/s", "FLOPS"), 1.0)
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)\s*(.*?)\s*")


def parse_bandwidth(text: str) -> float:
    """Bytes per second from e.g. "37.5MB/s", "300Mbit/s", "1Gbps" (prefixes k, M, G, T, Ki, Mi, Gi).

    Raises:
        UsageError: Not a positive number with such a unit.
    """
    units = {prefix + unit: factor * size for prefix, factor in _PREFIXES.items() for unit, size in _BANDWIDTHS.items()}
    return _parse(text, units, "bandwidth", "37.5MB/s or 300Mbit/s")


def parse_compute(text: str) -> float:
    """Operations per second from e.g. "125GOP/s", "472GFLOPS"; a multiply-accumulate is two operations.

    Raises:
        UsageError: Not a positive number with such a unit.
    """
    units = {prefix + unit: factor for prefix, factor in _PREFIXES.items() for unit in _RATES if "i" not in prefix}
    return _parse(text, units, "compute rate", "125GOP/s or 472GFLOP/s")


def parse_time(text: str) -> float:
    """Seconds from e.g. "35ms", "0.24s", "500us".

    Raises:
        UsageError: Not a positive number with such a unit.
    """
    return _parse(text, _TIMES, "time", "35ms or 0.24s")


def format_time(seconds: float) -> str:
    """Four significant digits in the unit that suits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-6:.4g} µs"


def format_rate(value: float, unit: str) -> str:
    """A rate with its prefix: 37.5e6 and "B/s" give "37.5 MB/s"."""
    for prefix in ("T", "G", "M", "k"):
        if value >= _PREFIXES[prefix]:
            return f"{value / _PREFIXES[prefix]:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def _parse(text: str, units: dict[str, float], what: str, example: str) -> float:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UsageError(f"{what} {text!r} is not a positive number with a unit: write it like {example}")
    number, unit = match.groups()
    if unit not in units:
        problem = f"has the unknown unit {unit!r}" if unit else "has no unit"
        raise UsageError(f"{what} {text!r} {problem}: write it like {example}")
    value = float(number) * units[unit]
    if not 0 < value < math.inf:
        raise UsageError(f"{what} {text!r} is not above zero and finite: write it like {example}")
    return value
