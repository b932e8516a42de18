"""Probing a link, and the system file that comes of it."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from disco_host.node import probe
from disco_host.node.messages import Probed
from disco_host.remote.clocks import node_clock, sample
from disco_host.remote.probes import ProbedLink, operations_per_s, write_system
from disco_planning.systems import load_system
from disco_planning.units import parse_bandwidth, parse_time
from disco_targets.errors import DiscoError

FIGURES = Probed(64, 100e-6, 150e-6, 262144, 9e-3, 30e6, 37.5e6)


def _result(*computed: float) -> Any:
    """Nodes that took so many ns for 1000 multiply-accumulates."""
    ops = (SimpleNamespace(macs_executed=400), SimpleNamespace(macs_executed=600))
    nodes = [SimpleNamespace(unit="ns", ops=ops, compute=SimpleNamespace(median=ns)) for ns in computed]
    return SimpleNamespace(nodes=nodes, bundle_id="0" * 32)


def test_a_link_is_measured() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: probe.answer(server.accept()[0]), daemon=True).start()
        with socket.create_connection(server.getsockname()) as line:
            figures = probe.measure(line)
    assert (figures.small_bytes, figures.large_bytes) == (probe.SMALL_BYTES, probe.LARGE_BYTES)
    assert 0 < figures.round_trip_s <= figures.round_trip_p95_s
    assert figures.large_round_trip_s > 0
    assert figures.one_way_bytes_per_s > 0
    assert figures.both_ways_bytes_per_s > 0


def test_a_link_that_breaks_is_told() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(DiscoError, match="the link broke while it was probed"):
        probe.measure(ours)


@pytest.mark.parametrize("request_", [b"\7" + bytes(8), b"\0" + b"\xff" * 8, b"\0\0"])
def test_odd_requests_end_a_probe(request_: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(request_)
        ours.shutdown(socket.SHUT_WR)
        probe.answer(theirs)
        assert ours.recv(10) == b""


def test_the_system_is_that_of_the_slowest_link_and_node(tmp_path: Path) -> None:
    links = (ProbedLink(0, 1, FIGURES), ProbedLink(0, 2, replace(FIGURES, both_ways_bytes_per_s=12.5e6)))
    write_system(tmp_path / "system.toml", _result(500.0, 1000.0), links)
    system = load_system(str(tmp_path / "system.toml"))
    assert system.bandwidth_bytes_per_s == 12.5e6
    assert system.operations_per_s == operations_per_s(_result(1000.0)) == 2e9  # 2000 operations in 1 us
    assert system.value_bytes == 1
    assert [(link.sender, link.receiver) for link in system.links] == [(0, 1), (0, 2)]
    assert parse_bandwidth(system.links[1].both_ways) == 12.5e6
    assert parse_time(system.links[0].small_round_trip) == pytest.approx(FIGURES.round_trip_s)
    with pytest.raises(DiscoError, match="a system needs their compute rate"):
        write_system(tmp_path / "none.toml", _result(), links)


def test_clocks_are_bounded_by_their_round_trips() -> None:
    """A node's clock 1 s ahead that gains 100 ppm, read over ways of unequal length."""

    def read(now: int, there: int, back: int) -> Any:
        at = now + there
        return sample(now, round(at * 1.0001) + 1_000_000_000, at + back)

    before = [read(0, 9_000, 1_000), read(20_000, 1_000, 2_000)]
    after = [read(10_000_000_000, 2_000, 1_000), read(10_000_100_000, 5_000, 50_000)]
    clock = node_clock(3, before, after)
    assert (clock.node, clock.error_ns) == (3, 1_500)  # half of the shortest round trips
    assert clock.drift_ppm == pytest.approx(100, abs=0.2)
    for now in (0, 5_000_000_000, 10_000_000_000):
        assert abs(clock.to_host(now * 1.0001 + 1_000_000_000) - now) <= clock.error_ns + 1
