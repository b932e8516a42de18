"""The file behind `disco-run --project`: boards and links as numbers, to turn counts into time.

[[node]]                       # one for all nodes, or one each in their order
clock_hz = 168_000_000
cycles_per_instruction = 1.6   # where the run counts instructions; not used where it counts cycles
cycles_per_look = 250          # a look at the links, after each step of rows
cycles_per_link_byte = 17      # of a frame sent or received: packing, COBS, CRC-32

[[link]]                       # one for all pairs, or one each with e.g. between = [0, 1]
baud = 3_000_000               # 10 bits a byte; or bits_per_second, 8 bits a byte
latency_us = 0.0
frame_us = 0.0                 # the line is taken so much longer by every frame
duplex = "full"                # or "half": both directions share the line
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from disco_planning.replay_graph import Link
from disco_targets.errors import DiscoError
from disco_targets.toml import check_keys, read_toml

if TYPE_CHECKING:
    from pathlib import Path

BITS_PER_UART_BYTE = 10
"""Start bit, eight data bits, stop bit."""
_DUPLEX = ("full", "half")
_LIMITS: dict[str, tuple[float, float]] = {
    "clock_hz": (1e4, 1e11),
    "cycles_per_instruction": (0.05, 100.0),
    "cycles_per_look": (0.0, 1e7),
    "cycles_per_link_byte": (0.0, 1e5),
    "baud": (300.0, 1e9),
    "bits_per_second": (300.0, 1e12),
    "latency_us": (0.0, 1e7),
    "frame_us": (0.0, 1e7),
}
"""Between these a value is taken for one of its unit: a clock of 168 is in MHz and refused."""
_NODE_KEYS = {"clock_hz", "cycles_per_instruction", "cycles_per_look", "cycles_per_link_byte"}
_LINK_KEYS = {"between", "baud", "bits_per_second", "latency_us", "frame_us", "duplex"}


@dataclass(frozen=True)
class NodeModel:
    """A board as numbers."""

    clock_hz: float
    cycles_per_instruction: float | None
    """None: only runs that count cycles can be projected."""
    cycles_per_look: float
    cycles_per_link_byte: float


@dataclass(frozen=True)
class LinkModel:
    """A line as numbers."""

    link: Link
    text: str
    """As an assumption is printed."""


@dataclass(frozen=True)
class ProjectionModel:
    """All boards and links of a projection."""

    nodes: tuple[NodeModel, ...]
    links: tuple[LinkModel, ...]

    def without_protocol_work(self) -> ProjectionModel:
        """The same boards, if something else looked at their links, packed and unpacked."""
        nodes = tuple(replace(node, cycles_per_look=0.0, cycles_per_link_byte=0.0) for node in self.nodes)
        return replace(self, nodes=nodes)


def load_projection(path: Path, nodes: int) -> ProjectionModel:
    """Reads the file for a bundle of `nodes` nodes.

    Raises:
        DiscoError: Missing or not TOML, unknown or missing keys, a number that cannot be one of its unit, boards or
            links that are not those of the bundle.
    """
    if not path.is_file():
        raise DiscoError(f"projection file {path} does not exist: give a .toml file with [[node]] and [[link]] tables")
    document = read_toml(path, f"projection file {path}")
    check_keys(document, {"node", "link"}, str(path))
    tables = _tables(document, "node", path)
    if len(tables) not in (1, nodes):
        raise DiscoError(
            f"{path} has {len(tables)} [[node]] tables, the bundle {nodes} nodes: write one for all or one for each"
        )
    boards = [_node(table, f"{path}: node {index}") for index, table in enumerate(tables)]
    links = _links(_tables(document, "link", path) if nodes > 1 else [], nodes, path)
    return ProjectionModel(tuple(boards * nodes if len(boards) == 1 else boards), links)


def _tables(document: dict[str, Any], key: str, path: Path) -> list[dict[str, Any]]:
    tables = document.get(key)
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise DiscoError(f"{path}: no [[{key}]] tables; write one for all {key}s or one for each")
    return tables


def _number(table: dict[str, Any], key: str, where: str, default: float | None = None) -> float:
    value = table.get(key, default)
    if value is None:
        raise DiscoError(f"{where}: {key} is missing")
    least, most = _LIMITS[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise DiscoError(f"{where}: {key} is {value!r}, it must be a number")
    if not least <= value <= most:
        raise DiscoError(f"{where}: {key} is {value:g}, it must be from {least:g} to {most:g}; is the unit right?")
    return float(value)


def _node(table: dict[str, Any], where: str) -> NodeModel:
    check_keys(table, _NODE_KEYS, where)
    key = "cycles_per_instruction"
    return NodeModel(
        clock_hz=_number(table, "clock_hz", where),
        cycles_per_instruction=_number(table, key, where) if key in table else None,
        cycles_per_look=_number(table, "cycles_per_look", where),
        cycles_per_link_byte=_number(table, "cycles_per_link_byte", where),
    )


def _links(tables: list[dict[str, Any]], nodes: int, path: Path) -> tuple[LinkModel, ...]:
    pairs = list(itertools.combinations(range(nodes), 2))
    if len(tables) == 1 and "between" not in tables[0]:
        return tuple(_link(tables[0], pair, f"{path}: link") for pair in pairs)
    links = {}
    for index, table in enumerate(tables):
        where = f"{path}: link {index}"
        pair = _pair(table.get("between"), nodes, where)
        if pair in links:
            raise DiscoError(f"{where}: a second link between nodes {pair[0]} and {pair[1]}")
        links[pair] = _link(table, pair, where)
    missing = [pair for pair in pairs if pair not in links]
    if missing:
        raise DiscoError(f"{path}: no [[link]] between nodes {missing[0][0]} and {missing[0][1]}; every pair has one")
    return tuple(links[pair] for pair in pairs)


def _pair(value: Any, nodes: int, where: str) -> tuple[int, int]:
    numbers = isinstance(value, list) and len(value) == 2 and all(type(node) is int for node in value)
    if not numbers or not 0 <= min(value) < max(value) < nodes:
        raise DiscoError(f"{where}: between is {value!r}; write the numbers of two nodes, e.g. between = [0, 1]")
    return min(value), max(value)


def _link(table: dict[str, Any], ends: tuple[int, int], where: str) -> LinkModel:
    check_keys(table, _LINK_KEYS, where)
    if ("baud" in table) == ("bits_per_second" in table):
        raise DiscoError(f"{where}: write either baud (10 bits a byte) or bits_per_second (8 bits a byte)")
    key, bits = ("baud", BITS_PER_UART_BYTE) if "baud" in table else ("bits_per_second", 8)
    rate = _number(table, key, where)
    latency, frame = (_number(table, name, where, 0.0) for name in ("latency_us", "frame_us"))
    duplex = table.get("duplex", "full")
    if duplex not in _DUPLEX:
        raise DiscoError(f'{where}: duplex is {duplex!r}, it must be "full" or "half"')
    unit = "baud" if key == "baud" else "bit/s"
    text = f"{rate:,.0f} {unit} ({bits} bits a byte), {duplex} duplex, latency {latency:g} us, {frame:g} us per frame"
    return LinkModel(Link(ends, rate / bits, latency * 1e-6, frame * 1e-6, duplex == "full"), text)
