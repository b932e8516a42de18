"""From counts to projected time: the file of boards and links, the graph of a small run, and what is shown of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from disco_firmware.manifest import (
    Exchange,
    HaloWait,
    Manifest,
    ModelInfo,
    NodeOp,
    NodeProgram,
    NodeReceive,
    NodeSend,
    OpInfo,
    Route,
    TensorInfo,
)
from disco_host.projection import Projected, project
from disco_host.projection_file import ProjectionModel, load_projection
from disco_host.projection_graph import GraphBuilder, Schedule
from disco_host.projection_report import add_projection, print_projection
from disco_host.results import NodeResult, OpResult, RunResult
from disco_host.stats import summarise
from disco_planning.replay_graph import Arrival, Part
from disco_targets.errors import DiscoError

NODE = "[[node]]\nclock_hz = 10_000_000\ncycles_per_instruction = 2\ncycles_per_look = 0\ncycles_per_link_byte = 0\n"
LINK = "[[link]]\nbits_per_second = 1_000_000_000_000\n"
ROWS = 4


def _op(name: str, output: str, waits: tuple[HaloWait, ...] = (), *, joined: bool = False) -> NodeOp:
    return NodeOp(
        name, "CONV_2D", output, (0, 1), (1, ROWS, 5, 2), 60, 0, 0, 0, 0, "portable", 0, 0, 0, 1, joined, waits
    )  # fmt: skip


def _program(node: int) -> NodeProgram:
    """conv a, which is sent; conv b of 3x3, which waits for it row by row; an op joined to b."""
    ops = (_op("a", "a"), _op("b", "b", (HaloWait(0, (2, 3, 4, 4)),)), _op("c", "c", joined=True))
    sends, receives = (NodeSend(0, "a", 1 - node, 40, 2),), (NodeReceive(0, 1 - node, 0),)
    return NodeProgram(node, "t", ops, sends, receives, (), (), 0, 0, 0)


MANIFEST = Manifest(
    schema=5,
    tool_version="0",
    bundle_id="ab" * 16,
    model=ModelInfo("net", "0", "0"),
    nodes=2,
    targets=("t", "t"),
    input="x",
    outputs=("c",),
    tensors=(TensorInfo("a", 1, (1, ROWS, 5, 4), 1.0, 0, (0, 0, 1, 1)),),
    ops=(OpInfo(0, "conv_a", "CONV_2D", ("x",), "a", 0, 0, 0, 0, 0),),
    exchanges=(Exchange(0, "a", (Route(0, 1, (0, 1), 40), Route(1, 0, (2, 3), 40))),),
    programs=(_program(0), _program(1)),
)


def _result(counts: tuple[float, ...] = (2000.0, 1600.0, 400.0), unit: str = "instructions") -> RunResult:
    none = summarise([0])
    ops = tuple(OpResult("", "", 0, 0, summarise([count]), none, none, 0) for count in counts)
    nodes = tuple(NodeResult(node, "t", "core", unit, 0, 1, none, none, none, none, ops, None) for node in range(2))
    return RunResult("", "", "emulated", nodes, (), none, 1, 0, 0, True, "outputs", None, None)


def _model(tmp_path: Path, text: str = NODE + LINK, nodes: int = 2) -> ProjectionModel:
    file = tmp_path / "model.toml"
    file.write_text(text)
    return load_projection(file, nodes)


def _project(tmp_path: Path, text: str = NODE + LINK, result: RunResult | None = None) -> Projected:
    return project(MANIFEST, result or _result(), _model(tmp_path, text), "model.toml")


def test_graph_of_a_run(tmp_path: Path) -> None:
    graph = GraphBuilder(MANIFEST, _result(), _model(tmp_path)).graph()
    tasks = graph.nodes[1]
    assert [task.label for task in tasks] == ["a"] * 4 + ["b + c"] * 8 + ["end of the run"]
    assert [task.seconds for task in tasks[:6]] == pytest.approx(
        [1e-4] * 4 + [8e-5, 2e-5]
    )  # counts x 2 / 10 MHz / rows
    assert [task.needs for task in tasks[4:12:2]] == [(Arrival(0, size),) for size in (20, 30, 40, 40)]
    assert all(task.needs == () for task in (*tasks[:4], *tasks[5:12:2]))
    assert (tasks[12].needs, tasks[12].handed_over) == ((Arrival(0, 40),), (1,))
    stream = graph.streams[0]
    assert (stream.sender, stream.receiver, stream.opened_by) == (0, 1, 0)
    assert stream.parts == tuple(Part(10, row) for row in range(ROWS))


def test_what_each_step_counted_is_replayed(tmp_path: Path) -> None:
    recorded = tuple(float(count) for count in range(100, 1300, 100))  # of 12 steps
    result = _result()
    result = replace(result, nodes=tuple(replace(node, steps=recorded) for node in result.nodes))
    graph = GraphBuilder(MANIFEST, result, _model(tmp_path)).graph()
    assert [task.seconds for task in graph.nodes[0][:-1]] == pytest.approx([count * 2e-7 for count in recorded])
    evenly = "an op's count is spread evenly over its rows"
    assert evenly in _project(tmp_path).projection.assumptions
    assert evenly not in _project(tmp_path, result=result).projection.assumptions


def test_joined_ops_are_one_turn() -> None:
    schedule = Schedule(MANIFEST.programs[0].ops, {0})
    assert [(step.op, step.number) for step in schedule.steps[4:8]] == [(1, 0), (2, 0), (1, 1), (2, 1)]
    assert (schedule.first_task(2), schedule.task_after(1), schedule.first_task(0)) == (4, 12, 0)
    assert [schedule.looks(step) for step in schedule.steps] == [2, 1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1]


def test_links_that_take_no_time_leave_the_computation(tmp_path: Path) -> None:
    projection = _project(tmp_path).projection
    assert projection.latency_ms == pytest.approx(0.8, abs=1e-5)
    assert projection.exposed_communication_ms == pytest.approx(0.0, abs=1e-5)
    assert [node.compute_ms for node in projection.nodes] == pytest.approx([0.8, 0.8])


def test_a_slow_answer_is_exposed(tmp_path: Path) -> None:
    # Leave to send arrives after 1 ms, when all of a is final; its only frame 1 ms later; then b and c take 0.4 ms.
    projection = _project(tmp_path, NODE + LINK + "latency_us = 1000\n").projection
    assert projection.latency_ms == pytest.approx(2.4, abs=1e-5)
    assert projection.without_communication_ms == pytest.approx(0.8, abs=1e-5)
    assert projection.exposed_share == pytest.approx(1.6 / 2.4, abs=1e-4)
    assert [node.waiting_ms for node in projection.nodes] == pytest.approx([1.6, 1.6], abs=1e-5)
    path = [step.label for step in projection.critical_path]
    assert path == ["credit", "exchange 0: conv_a", "b + c"]


def test_bytes_on_the_line_are_those_of_the_protocol(tmp_path: Path) -> None:
    projection = _project(tmp_path, NODE + LINK + "latency_us = 1000\n").projection
    # Leave to send (19 bytes); 40 bytes in a frame (17 beside them), which acknowledges the other's leave; an
    # acknowledgement (13) of the other's 40 bytes.
    assert [(link.frames, link.wire_bytes) for link in projection.links] == [(3, 19 + 57 + 13)] * 2


def test_protocol_work_is_time(tmp_path: Path) -> None:
    text = NODE.replace("look = 0", "look = 100").replace("link_byte = 0", "link_byte = 10")
    projection = _project(tmp_path, text + LINK).projection
    cycles = 9 * 100 + 10 * (40 + 40) * (253 / 236)  # looks: leave to send, then one after each of 4 + 4 steps
    assert [node.protocol_ms for node in projection.nodes] == pytest.approx([cycles / 1e4] * 2)
    # All that an instant link leaves exposed is protocol work; kernels alone are the reference.
    assert projection.without_communication_ms == pytest.approx(0.8)
    assert projection.exposed_waiting_ms == pytest.approx(0.0, abs=1e-5)
    assert projection.exposed_protocol_ms == pytest.approx(cycles / 1e4)
    assert projection.exposed_communication_ms == pytest.approx(cycles / 1e4, abs=1e-5)


def test_cheaper_protocol_work_exposes_more_waiting(tmp_path: Path) -> None:
    busy = NODE.replace("look = 0", "look = 100").replace("link_byte = 0", "link_byte = 10")
    cheap, dear = (_project(tmp_path, node + LINK + "latency_us = 100\n").projection for node in (NODE, busy))
    assert cheap.exposed_protocol_ms == 0.0
    assert cheap.exposed_waiting_ms >= dear.exposed_waiting_ms
    for projection in (cheap, dear):
        parts = projection.exposed_waiting_ms + projection.exposed_protocol_ms
        assert projection.exposed_communication_ms == pytest.approx(parts)


def test_estimated_cycles_need_no_cycles_per_instruction(tmp_path: Path) -> None:
    text = NODE.replace("cycles_per_instruction = 2\n", "")
    projection = _project(tmp_path, text + LINK, _result(unit="cycles-estimate")).projection
    assert projection.latency_ms == pytest.approx(0.4, abs=1e-5)
    assert "cycles estimated at 10 MHz" in projection.assumptions[0]
    with pytest.raises(DiscoError, match="node 0 counted instructions: give it cycles_per_instruction"):
        _project(tmp_path, text + LINK)


def test_measured_time_is_not_projected(tmp_path: Path) -> None:
    with pytest.raises(DiscoError, match="node 0 measured time"):
        _project(tmp_path, result=_result(unit="ns"))


def test_every_figure_shown_says_projected(tmp_path: Path) -> None:
    projected = _project(tmp_path, NODE + LINK + "latency_us = 1000\n")
    console = Console(width=150, record=True, file=(tmp_path / "out").open("w"))
    print_projection(projected.projection, console)
    text = console.export_text()
    assert "Nodes, projected" in text
    assert "Links, projected" in text
    assert "Critical path, projected " in text
    assert "Projected latency 2.40 ms; exposed communication 1.60 ms, 66.7 % of it: 1.60 ms waiting" in text
    assert "instructions counted x 2 cycles at 10 MHz" in text
    data = json.loads(json.dumps(projected.projection.to_json()))
    assert data["label"] == "projected"
    assert data["links"][0]["from"] == 0
    assert data["assumptions"]
    trace: dict[str, Any] = {"traceEvents": [{"ph": "X", "pid": 7}], "metadata": {}}
    add_projection(trace, 2, projected)
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"]
    assert len(names) == 4
    assert all(name.startswith("projected: ") for name in names)
    assert all(event["args"]["projected"] for event in trace["traceEvents"][1:] if event["ph"] == "X")
    assert min(event["pid"] for event in trace["traceEvents"][1:]) == 8


def test_one_table_is_for_all(tmp_path: Path) -> None:
    model = _model(tmp_path, nodes=3)
    assert len(model.nodes) == 3
    assert [link.link.ends for link in model.links] == [(0, 1), (0, 2), (1, 2)]
    assert _model(tmp_path, NODE, nodes=1).links == ()


def test_a_table_for_each(tmp_path: Path) -> None:
    slow = NODE.replace("10_000_000", "5_000_000")
    link = "[[link]]\nbetween = [1, 0]\nbaud = 1_000_000\nlatency_us = 5\nframe_us = 2\nduplex = 'half'\n"
    model = _model(tmp_path, NODE + slow + link)
    assert [node.clock_hz for node in model.nodes] == [10e6, 5e6]
    line = model.links[0].link
    assert (line.ends, line.bytes_per_second, line.full_duplex) == ((0, 1), 1e5, False)
    assert [line.latency_s, line.frame_s] == pytest.approx([5e-6, 2e-6])
    assert "1,000,000 baud (10 bits a byte), half duplex" in model.links[0].text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node = 3", r"no \[\[node\]\] tables"),
        (NODE, r"no \[\[link\]\] tables"),
        ("a = [", "cannot be read as TOML"),
        (NODE + LINK + "[board]\n", "unknown key 'board'"),
        (NODE + "speed = 3\n" + LINK, "node 0: unknown key 'speed'"),
        (NODE.replace("clock_hz = 10_000_000", "clock_hz = 168") + LINK, "clock_hz is 168, .* is the unit right"),
        (NODE.replace("clock_hz = 10_000_000", "") + LINK, "clock_hz is missing"),
        (NODE.replace("10_000_000", "'fast'") + LINK, "clock_hz is 'fast', it must be a number"),
        (NODE.replace("10_000_000", "true") + LINK, "clock_hz is True, it must be a number"),
        (NODE.replace("10_000_000", "nan") + LINK, "clock_hz is nan"),
        (NODE * 3 + LINK, r"3 \[\[node\]\] tables, the bundle 2 nodes"),
        (NODE + LINK + "baud = 9600\n", "either baud .* or bits_per_second"),
        (NODE + "[[link]]\n", "either baud .* or bits_per_second"),
        (NODE + "[[link]]\nbaud = 3\n", "baud is 3, it must be from 300"),
        (NODE + LINK + "latency_us = -1\n", "latency_us is -1"),
        (NODE + LINK + "duplex = 'both'\n", 'duplex is \'both\', it must be "full" or "half"'),
        (NODE + LINK + "between = [0, 2]\n", r"between is \[0, 2\]"),
        (NODE + LINK + "between = 'ab'\n", "between is 'ab'"),
        (NODE + LINK + "speed = 3\n", "unknown key 'speed'"),
        (NODE + (LINK + "between = [0, 1]\n") * 2, "a second link between nodes 0 and 1"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DiscoError, match=words):
        _model(tmp_path, text)


def test_every_pair_has_a_link(tmp_path: Path) -> None:
    with pytest.raises(DiscoError, match=r"no \[\[link\]\] between nodes 0 and 2"):
        _model(tmp_path, NODE + LINK + "between = [0, 1]\n", nodes=3)
    with pytest.raises(DiscoError, match="does not exist"):
        load_projection(tmp_path / "none.toml", 2)


def test_examples_are_sound(repository: Path) -> None:
    files = sorted((repository / "examples" / "clusters").glob("*.toml"))
    rates = {file.stem: load_projection(file, 2).links[0].link.bytes_per_second for file in files}
    assert rates == {
        "m4-168mhz-spi-10mbit": 1.25e6,
        "m4-168mhz-uart-10mbaud": 1e6,
        "m4-168mhz-uart-1mbaud": 1e5,
        "m4-168mhz-uart-3mbaud": 3e5,
    }


def test_a_node_without_a_route_still_ends(tmp_path: Path) -> None:
    alone = replace(
        MANIFEST,
        exchanges=(),
        programs=tuple(replace(p, sends=(), receives=(), ops=p.ops[:1]) for p in MANIFEST.programs),
    )
    projection = project(alone, _result((2000.0,)), _model(tmp_path), "f").projection
    assert projection.latency_ms == pytest.approx(0.4)
    assert [link.frames for link in projection.links] == [0, 0]
