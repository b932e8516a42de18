"""Statistics, tables, JSON and timeline of a run."""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from disco_firmware.build import FirmwareImage
from disco_firmware.manifest import (
    Manifest,
    ModelInfo,
    NodeOp,
    NodeOutput,
    NodeProgram,
    NodeReceive,
    NodeSend,
    NodeStage,
    OpInfo,
    TensorInfo,
)
from disco_firmware.protocol import OpRecord, RouteRecord, StageRecord
from disco_host.capture import InferenceCapture, NodeCapture
from disco_host.measure import link_results, node_results
from disco_host.report import describe, print_report
from disco_host.results import Difference, Memory, RunResult
from disco_host.run import schedule
from disco_host.session import NodeFacts
from disco_host.stats import Summary, summarise
from disco_host.trace import chrome_trace


def test_summary_takes_nearest_rank() -> None:
    assert summarise([3]) == Summary(3, 3, 3, 3, 3, 0)
    assert summarise([4, 2, 4, 2]) == Summary(3, 4, 4, 2, 4, 1)
    assert summarise(list(range(1, 101))) == Summary(50.5, 95, 99, 1, 100, pytest.approx(28.866, abs=1e-3))
    assert summarise(list(range(1, 22))).p95 == 20
    with pytest.raises(ValueError, match="no samples"):
        summarise([])


@pytest.mark.parametrize(("inputs", "repeat", "warmup"), [(3, 2, 0), (3, 2, 2), (2, 3, 5), (5, 1, 1)])
def test_neighbouring_inferences_differ(inputs: int, repeat: int, warmup: int) -> None:
    order = schedule(inputs, repeat, warmup)
    assert len(order) == warmup + inputs * repeat
    assert order[warmup:] == list(range(inputs)) * repeat
    assert all(a != b for a, b in itertools.pairwise(order))


def test_one_input_can_only_repeat() -> None:
    assert schedule(1, 3, 1) == [0, 0, 0, 0]


def _node_op(name: str, kind: str, output: str, channels: tuple[int, ...], macs: int, sent: int) -> NodeOp:
    return NodeOp(
        name=name,
        kind=kind,
        output=output,
        channels=channels,
        output_shape=(1, 2, 2, len(channels)),
        output_bytes=4 * len(channels),
        macs_executed=macs,
        channels_received=1,
        channels_sent=2,
        bytes_sent=sent,
        kernel="portable",
        constant_bytes=10,
        scratch_bytes=0,
        instructions_predicted=100,
        row_step=2,
        joined=False,
        waits=(),
    )


def _program(node: int, channels: tuple[int, ...]) -> NodeProgram:
    return NodeProgram(
        node=node,
        target="posix",
        ops=(
            _node_op("conv", "CONV_2D", "c", channels, 40, 8),
            _node_op("gather[0]", "SELECT_CHANNELS", "s", channels, 0, 0),
        ),
        sends=(NodeSend(0, "c", 1 - node, 8, 1),) if node == 0 else (),
        receives=(NodeReceive(0, 0, 0),) if node == 1 else (),
        outputs=(NodeOutput("c", channels),),
        stages=(),
        arena_bytes=100,
        arena_bound_bytes=100,
        constant_bytes=10,
    )


MANIFEST = Manifest(
    schema=5,
    tool_version="0",
    bundle_id="ab" * 16,
    model=ModelInfo("net", "0", "0"),
    nodes=2,
    targets=("posix", "posix"),
    input="x",
    outputs=("c",),
    tensors=(TensorInfo("c", 1, (1, 2, 2, 3), 1.0, 0, (0, 0, 1)),),
    ops=(OpInfo(0, "conv", "CONV_2D", ("x",), "c", 300, 0, 0, 0, 0),),
    exchanges=(),
    programs=(_program(0, (0, 1)), _program(1, (2,))),
)


def _capture(number: int) -> InferenceCapture:
    ops = (
        OpRecord(1000, 1100, 50 + number, 30, 10, 0),
        OpRecord(1100, 1150, 40, 0, 0, 0),
    )
    routes = (RouteRecord(1020, 1090, 8, 1, 5 * number),)
    return InferenceCapture(
        inference=number,
        input_index=0,
        round_trip_s=0.001 * number,
        nodes=(
            NodeCapture(0, 1000, 1150 + number, (b"",), ops, routes, 400 + number),
            NodeCapture(
                1, 7000, 7300, (b"",), tuple(replace(op, start=op.start + 6000, end=op.end + 6000) for op in ops), ()
            ),
        ),
    )


def _facts(unit: str, stack_bytes: int = 0) -> tuple[NodeFacts, ...]:
    rate = {"ns": 1_000_000_000, "cycles": 25_000_000}.get(unit, 0)
    return tuple(NodeFacts(node, "posix", "host", unit, rate, 0, 1, 0, stack_bytes) for node in range(2))


def _result(unit: str = "ns", difference: Difference | None = None) -> RunResult:
    captures = [_capture(number) for number in (2, 3, 4)]
    return RunResult(
        bundle_id=MANIFEST.bundle_id,
        model="net",
        boards="posix",
        nodes=node_results(MANIFEST, _facts(unit), captures),
        links=link_results(MANIFEST, captures, _capture(1)),
        host_round_trip_ms=summarise([capture.round_trip_s * 1000 for capture in captures]),
        inferences=3,
        warmup=1,
        mismatches=1 if difference else 0,
        bit_exact=difference is None,
        checked="outputs",
        first_difference=difference,
        accuracy=2 / 3,
    )


def test_figures_of_a_node() -> None:
    node = _result().nodes[0]
    assert node.compute == Summary(93, 94, 94, 92, 94, pytest.approx((2 / 3) ** 0.5))
    assert node.wait == Summary(30, 30, 30, 30, 30, 0)
    assert node.total == Summary(153, 154, 154, 152, 154, pytest.approx((2 / 3) ** 0.5))
    assert [(op.name, op.compute.median, op.bytes_sent) for op in node.ops] == [("conv", 53, 8), ("gather[0]", 40, 0)]
    assert [op.macs_dense for op in node.ops] == [200, 0]  # 2 of 3 channels; gathers are not in the model
    assert [op.macs_dense for op in _result().nodes[1].ops] == [100, 0]


def test_links_count_measured_inferences_only() -> None:
    there, back = _result().links
    assert (there.sender, there.receiver, there.bytes, there.frames, there.retransmissions) == (0, 1, 24, 3, 15)
    assert (back.sender, back.receiver, back.bytes, back.frames, back.retransmissions) == (1, 0, 0, 0, 0)


def test_json_has_the_promised_keys() -> None:
    data = json.loads(json.dumps(_result().to_json()))
    promised = {"bundle_id", "nodes", "links", "host_round_trip_ms", "inferences", "mismatches", "bit_exact"}
    assert promised <= set(data)
    summary = {"median", "p95", "p99", "min", "max", "standard_deviation"}
    node = data["nodes"][0]
    assert {"node", "board", "unit", "total", "compute", "wait", "ops"} <= set(node)
    assert all(set(node[key]) == summary for key in ("total", "compute", "wait"))
    op = {"name", "kind", "macs_dense", "macs_executed", "compute", "wait", "bytes_sent"}
    assert op <= set(node["ops"][0])
    assert set(data["links"][0]) == {"from", "to", "bytes", "frames", "retransmissions"}
    assert set(data["host_round_trip_ms"]) == summary


def _printed(result: RunResult) -> str:
    console = Console(file=io.StringIO(), width=140)
    print_report(result, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_report_of_a_good_run() -> None:
    text = _printed(_result())
    assert "gather[0]" in text  # no markup
    assert "medians in ns" in text
    assert "Accuracy: 66.67 %" in text
    assert "Bit-exact" in text
    assert "4 inferences" in text
    assert "NOT" not in text
    text = _printed(replace(_result(), kernels="xnnpack"))
    assert "equals that of the whole model in XNNPACK on this PC" in " ".join(text.split())


@pytest.mark.parametrize("together", [True, False])
def test_ops_of_a_stage_are_not_measured_one_by_one(together: bool) -> None:
    """The stage's time stands above them; a stage of one op is that op."""
    places = [(0, 1)] if together else [(0,), (1,)]
    stages = tuple(NodeStage("", (), (), ops, ()) for ops in places)
    manifest = replace(MANIFEST, programs=tuple(replace(p, stages=stages) for p in MANIFEST.programs))
    whole, none = OpRecord(1000, 1150, 94, 30, 12, 0), OpRecord(1000, 1000, 0, 0, 0, 0)
    capture = _capture(4)
    if together:
        capture = replace(capture, nodes=tuple(replace(node, ops=(whole, none)) for node in capture.nodes))
    records = [StageRecord(1000, 1150, 0, op.wait, 0, op.compute, 0, 0) for op in capture.nodes[0].ops][: len(places)]
    capture = replace(capture, nodes=tuple(replace(node, stages=tuple(records)) for node in capture.nodes))
    result = replace(_result(), nodes=node_results(manifest, _facts("ns"), [capture]))
    rows = [line.split("│")[1:-1] for line in _printed(result).splitlines() if "conv" in line or "stage 0" in line]
    shown = [[cell.strip() for cell in row] for row in rows[: len(rows) // 2]]
    slices = [event for event in chrome_trace(manifest, result, capture)["traceEvents"] if event["ph"] == "X"]
    first = next(event for event in slices if event["pid"] == 0)
    data = json.loads(json.dumps(result.to_json()))["nodes"][0]
    if together:
        assert shown == [["stage 0", "", "94", "100.0 %", "30", ""], ["conv", "40", "-", "-", "-", "8"]]
        assert [data["ops"][op][part] for op in (0, 1) for part in ("compute", "wait", "send")] == [None] * 6
        assert (first["name"], first["dur"]) == ("CONV_2D conv + SELECT_CHANNELS gather[0]", 0.15)
        assert [event["name"] for event in slices if "ticks" in event["args"]][:3] == ["wait", "compute", "send"]
    else:
        assert shown == [["conv", "40", "54", "57.4 %", "30", "8"]]
        assert data["ops"][0]["compute"]["median"] == 54
        assert first["name"] == "CONV_2D conv"
    assert [stage["compute"]["median"] for stage in data["stages"]] == ([94] if together else [54, 40])


@pytest.mark.parametrize("unit", ["instructions", "cycles-estimate"])
def test_counts_are_never_time(unit: str) -> None:
    text = _printed(_result(unit))
    assert f"medians in {unit}" in text
    assert "no time" in text
    times = [line for line in text.splitlines() if " ms" in line or " us" in line or " ns" in line]
    assert len(times) == 1
    assert "this PC's clock" in times[0]


@pytest.mark.parametrize(("kept", "note"), [(8192, "404 of 8,192"), (404, "404 of 404: it may have overflowed")])
def test_memory_includes_the_stack_that_was_in_use(kept: int, note: str) -> None:
    image = FirmwareImage(Path("node.elf"), 1000, 20, 300)
    captures = [_capture(number) for number in (2, 3, 4)]
    nodes = node_results(MANIFEST, _facts("instructions", kept), captures, (image, image))
    assert nodes[0].memory == Memory(1020, 724, 404, kept)
    text = _printed(replace(_result(), nodes=nodes))
    assert "Memory in bytes" in text
    assert note in text
    assert "Memory" not in _printed(_result())
    processes = node_results(MANIFEST, _facts("ns"), captures, (image, image))
    assert [node.memory for node in processes] == [None, None]


DIFFERENCE = Difference(2, 0, 0, 1, (0, 1, 0, 2), 17, -4, 3, 4, None, None)


def test_report_of_a_bad_run() -> None:
    text = " ".join(_printed(_result(difference=DIFFERENCE)).split())
    assert "NOT bit-exact: 1 of 4 inferences differ" in text
    assert "inference 2 (input 0), output 0 [0, 1, 0, 2] from node 1: expected 17, got -4; 3 of 4 values differ" in text


def test_description_names_the_first_op() -> None:
    named = describe(replace(DIFFERENCE, op="conv", op_node=1))
    assert named.endswith("the first op that differs is conv on node 1")
    inner = describe(replace(DIFFERENCE, output=-1, op="conv", op_node=0))
    assert "outputs agree" in inner
    assert inner.endswith("conv on node 0")


@pytest.mark.parametrize(
    ("unit", "scale"), [("ns", 1e-3), ("cycles", 0.04), ("instructions", 1.0), ("cycles-estimate", 1.0)]
)
def test_trace_has_a_track_per_node_and_per_link(unit: str, scale: float) -> None:
    trace = chrome_trace(MANIFEST, _result(unit), _capture(2), _capture(3))
    events = json.loads(json.dumps(trace))["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert sorted(names.values())[0].startswith("link 0 to 1")
    assert len(names) == 4
    slices = [event for event in events if event["ph"] == "X"]
    assert {event["pid"] for event in slices} <= set(names)
    first = next(event for event in slices if event["pid"] == 1)
    assert first["ts"] == 0  # node 1's clock says 7000
    assert first["dur"] == pytest.approx(100 * scale)
    exchange = next(event for event in slices if event["name"] == "exchange 0: conv")
    assert exchange["ts"] == pytest.approx(20 * scale)
    assert exchange["dur"] == pytest.approx(70 * scale)
    assert exchange["args"]["bytes"] == 8
    assert ("COUNTS" in trace["metadata"]["axis"]) == (scale == 1.0)
    assert trace["metadata"]["units"] == {"node 0": unit, "node 1": unit}


def test_trace_nests_parts_and_parts_inferences() -> None:
    events = chrome_trace(MANIFEST, _result(), _capture(2), _capture(3))["traceEvents"]
    node = [event for event in events if event["ph"] == "X" and event["pid"] == 0]
    ops = [event for event in node if "inference" in event["args"]]
    parts = [event for event in node if "ticks" in event["args"]]
    assert [event["name"] for event in parts[:3]] == ["wait", "compute", "send"]
    for part in parts:
        inside = [
            op
            for op in ops
            if op["ts"] <= part["ts"] + 1e-9 and part["ts"] + part["dur"] <= op["ts"] + op["dur"] + 1e-9
        ]
        assert len(inside) == 1
    second = [op for op in ops if op["args"]["inference"] == 3]
    assert second[0]["ts"] > max(op["ts"] + op["dur"] for op in ops if op["args"]["inference"] == 2)
