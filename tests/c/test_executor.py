"""Nodes run their shares together, and every op equals the whole network computed in numpy."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

from helpers import c_build
from helpers.rig_build import build_library, build_mesh
from helpers.rig_line import Node, Result, connect_all, run_all, start_mesh
from helpers.rig_model import STEPS
from helpers.rig_network import HEIGHT, OPS, Int8, Network, random_input


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtime with sanitizers."""
    return build_library(tmp_path_factory.getbasetemp() / "runtime")


def differences(network: Network, x: Int8, results: list[Result]) -> list[str]:
    """What differs from the whole network: (node, op) by checksum, and outputs by value."""
    whole = network.whole(x)
    found = []
    for node, result in enumerate(results):
        for op, record in enumerate(result.ops):
            expected = zlib.crc32(np.ascontiguousarray(network.own(op, node, whole[op])).tobytes())
            if record.checksum != expected:
                found.append(f"node {node}: {OPS[op]}")
        if not np.array_equal(result.outputs[0], network.own(5, node, whole[5]).reshape(-1)):
            found.append(f"node {node}: output y")
    if not np.array_equal(results[0].outputs[1], whole[6].reshape(-1)):
        found.append("node 0: output z")
    return found


def check_runs(network: Network, nodes: list[Node], inferences: range) -> list[list[Result]]:
    """Runs on distinct inputs; every one must be exact."""
    everything = []
    for inference in inferences:
        x = random_input(inference)
        results = run_all(nodes, inference, x)
        assert differences(network, x, results) == []
        everything.append(results)
    return everything


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_equals_the_whole_network(count: int, tmp_path: Path, library: Path) -> None:
    network = Network(count)
    whole = network.whole(random_input(1))
    assert all(np.unique(value).size > min(value.size, 20) / 2 for value in whole)
    with start_mesh(build_mesh(network, tmp_path, library)) as nodes:
        connect_all(nodes, session=7)
        everything = check_runs(network, nodes, range(1, 9))
    for results in everything:
        for result in results:
            assert result.done.start <= result.ops[0].start
            assert result.ops[-1].end <= result.done.end


def test_steps_are_recorded_as_far_as_there_is_room(tmp_path: Path, library: Path) -> None:
    network = Network(2)
    with start_mesh(build_mesh(network, tmp_path, library)) as nodes:
        connect_all(nodes, session=7)
        for results in check_runs(network, nodes, range(1, 4)):
            for result in results:
                assert len(result.steps) == STEPS
                ticks = [step.compute for step in result.steps]
                assert sum(ticks[:HEIGHT]) == result.ops[0].compute  # a step for each row


@pytest.mark.parametrize("count", [1, 2, 3])
def test_joined_ops_equal_the_whole_network(count: int, tmp_path: Path, library: Path) -> None:
    with start_mesh(build_mesh(Network(count), tmp_path, library, joined=True)) as nodes:
        connect_all(nodes, session=7)
        for results in check_runs(Network(count), nodes, range(1, 6)):
            for result in results:
                one, two = result.ops[1:3]
                assert (one.start, one.end) == (two.start, two.end)
                total = sum(record.compute + record.wait + record.send for record in (one, two))
                assert one.end - one.start >= total
                assert two.compute > 0


@pytest.mark.parametrize("slow", [(0, 400), (400, 0)])
def test_fast_node_does_not_overrun_slow_one(slow: tuple[int, int], tmp_path: Path, library: Path) -> None:
    network = Network(2)
    with start_mesh(build_mesh(network, tmp_path, library), slow) as nodes:
        connect_all(nodes, session=3)
        check_runs(network, nodes, range(1, 6))


def test_opening_too_early_is_seen(tmp_path: Path, library: Path) -> None:
    """Without the order that credit keeps, s overwrites the halo of a: the check can fail."""
    network = Network(2)
    programs = build_mesh(network, tmp_path, library, open_ops=(0, 0, 0, 0))
    with start_mesh(programs, (0, 2000)) as nodes:
        connect_all(nodes, session=3)
        x = random_input(5)
        found = differences(network, x, run_all(nodes, 1, x))
    assert "node 1: conv b" in found
    assert "node 0: output z" in found


def test_damaged_bytes_between_the_nodes(tmp_path: Path, library: Path) -> None:
    network = Network(2)
    with start_mesh(build_mesh(network, tmp_path, library), damage_one_in=400) as nodes:
        connect_all(nodes, session=3)
        last = check_runs(network, nodes, range(1, 11))[-1]
    assert all(result.routes[0].retransmitted > 0 for result in last)


def test_stamps_and_routes_add_up(tmp_path: Path, library: Path) -> None:
    network = Network(2)
    with start_mesh(build_mesh(network, tmp_path, library)) as nodes:
        connect_all(nodes, session=3)
        x = random_input(1)
        results = run_all(nodes, 1, x)
    whole = network.whole(x)
    for node, result in enumerate(results):
        assert len(result.ops) == (7 if node == 0 else 6)
        for record in result.ops:
            assert record.end - record.start >= record.compute + record.wait + record.send
            assert record.compute > 0
        exchanges = range(4) if node == 1 else range(3)
        expected = [len(network.stream(e, node, 1 - node, whole)) for e in exchanges]
        assert [route.payload_bytes for route in result.routes] == expected
        for route in result.routes:
            assert result.done.start < route.first_queued <= route.last_packed < result.done.end
            assert route.payload_bytes / 228 <= route.frames <= route.payload_bytes
            assert route.retransmitted == 0


def test_checksums_only_when_asked(tmp_path: Path, library: Path) -> None:
    network = Network(1)
    with start_mesh(build_mesh(network, tmp_path, library)) as (node,):
        connect_all([node], session=3)
        node.ask_run(1, random_input(1), flags=0)
        assert [record.checksum for record in node.result().ops] == [0] * 7


def test_new_session_in_the_middle_of_a_run(tmp_path: Path, library: Path) -> None:
    """A host that starts over while the nodes compute finds them ready again."""
    network = Network(2)
    with start_mesh(build_mesh(network, tmp_path, library), (1000, 1000)) as nodes:
        connect_all(nodes, session=3)
        for node in nodes:
            node.ask_run(1, random_input(1))
        connect_all(nodes, session=4)
        check_runs(network, nodes, range(1, 3))


@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_compiles_without_warnings(compiler: str, tmp_path: Path) -> None:
    flags = ["-O2", "-c", *(c_build.CORTEX_M["m4"] if compiler.startswith("arm") else ())]
    for source in c_build.RUNTIME_SOURCES:
        c_build.compile_c(compiler, [source], tmp_path / f"{source.stem}.o", flags)
