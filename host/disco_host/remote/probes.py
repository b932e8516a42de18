"""What the links between Linux nodes can do, measured by their agents; and that as a system for `disco-latency`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from itertools import permutations
from typing import TYPE_CHECKING

from disco_host.node.messages import Address, Probe, Probed
from disco_planning.units import format_rate, format_time
from disco_targets.command import write_text
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from disco_host.remote.watch import Watch
    from disco_host.results import RunResult


@dataclass(frozen=True)
class ProbedLink:
    """One direction of a link, as the node `caller` measured it."""

    caller: int
    listener: int
    figures: Probed


def probe_links(watch: Watch, addresses: Mapping[int, str]) -> tuple[ProbedLink, ...]:
    """Measures the link from every Linux node to every other, one after the other.

    Args:
        watch: Over their agents.
        addresses: Where each one's agent listens.

    Raises:
        DiscoError: A node fails, or cannot reach another one.
    """
    return tuple(
        ProbedLink(caller, listener, watch.request(caller, Probe(Address(listener, addresses[listener])), Probed))
        for caller, listener in permutations(sorted(addresses), 2)
    )


def operations_per_s(result: RunResult) -> float:
    """What the slowest node computes while it computes, two operations per multiply-accumulate."""
    rates = [
        2e9 * sum(op.macs_executed for op in node.ops) / node.compute.median
        for node in result.nodes
        if node.unit == "ns" and node.compute.median
    ]
    return min(rates, default=0.0)


def write_system(path: Path, result: RunResult, links: tuple[ProbedLink, ...]) -> None:
    """Writes the system file: the slowest link, sent and received bytes together, the slowest node, and every link.

    Raises:
        DiscoError: Nothing was computed, or the file cannot be written.
    """
    compute = operations_per_s(result)
    if not compute:
        raise DiscoError("the Linux nodes of this run computed nothing: a system needs their compute rate")
    bandwidth = min(link.figures.both_ways_bytes_per_s for link in links)
    text = (
        f'name = "{len(result.nodes)} Linux nodes, probed"\n'
        f'bandwidth = "{_rate(bandwidth)}"\n'
        f'compute = "{compute / 1e6:.6g}MOP/s"\n'
        "value_bytes = 1\n"
        f'source = """\nMeasured by disco-run --probe-links of disco-edge {version("disco-edge")} with bundle '
        f"{result.bundle_id}:\nbandwidth of the slowest link, both ways at once; compute of the slowest node, waiting "
        'left out."""\n' + "".join(_table(link) for link in links)
    )
    write_text(path, text)


def _table(link: ProbedLink) -> str:
    """`disco_planning.systems.MeasuredLink` in TOML."""
    figures = link.figures
    return (
        "\n[[link]]\n"
        f"sender = {link.caller}\n"
        f"receiver = {link.listener}\n"
        f'one_way = "{_rate(figures.one_way_bytes_per_s)}"\n'
        f'both_ways = "{_rate(figures.both_ways_bytes_per_s)}"\n'
        f"small_bytes = {figures.small_bytes}\n"
        f'small_round_trip = "{_microseconds(figures.round_trip_s)}"\n'
        f'small_round_trip_p95 = "{_microseconds(figures.round_trip_p95_s)}"\n'
        f"large_bytes = {figures.large_bytes}\n"
        f'large_round_trip = "{_microseconds(figures.large_round_trip_s)}"\n'
    )


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.6g}MB/s"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.6g}us"


def describe(link: ProbedLink) -> str:
    """One link in one line."""
    figures = link.figures
    return (
        f"{link.caller} - {link.listener}: {figures.small_bytes} bytes there and back in "
        f"{format_time(figures.round_trip_s)} (p95 {format_time(figures.round_trip_p95_s)}), "
        f"{figures.large_bytes} bytes and an answer in {format_time(figures.large_round_trip_s)}; "
        f"{format_rate(figures.one_way_bytes_per_s, 'B/s')} one way, "
        f"{format_rate(figures.both_ways_bytes_per_s, 'B/s')} both ways together"
    )
