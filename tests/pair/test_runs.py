"""Whole runs: export, build, boot, infer, compare."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from disco_converter.export import ExportConfig, export
from disco_firmware.manifest import steps_of
from disco_firmware.project import STACK_BYTES
from disco_host.config import CYCLES_ESTIMATE, RunConfig
from disco_host.lines import direct_line
from disco_host.run import RunOutcome, run
from disco_host.trace import chrome_trace
from disco_planning.shares import PLAN_KEY
from helpers.bundles import EXAMPLE, export_example
from helpers.fault_proxy import FaultProxy
from helpers.tiny_bundle import export_tiny, tiny_model

from .conftest import BundleMaker

pytestmark = pytest.mark.timeout(900)  # emulated lines are slow where other work takes the cores

INPUTS = EXAMPLE / "test_images.npy"
LABELS = EXAMPLE / "test_labels.npy"


def _run(bundle: Path, boards: str, inputs: int, **more: object) -> RunOutcome:
    folder = Path(tempfile.mkdtemp(dir=bundle.parent))
    images, labels = folder / "images.npy", folder / "labels.npy"
    np.save(images, np.load(INPUTS)[:inputs])
    np.save(labels, np.load(LABELS)[:inputs])
    config = RunConfig(bundle=bundle, boards=boards, inputs=images, labels=labels, **more)  # type: ignore[arg-type]
    return run(config)


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_posix_nodes_compute_every_tensor_bit_exactly(make_bundle: BundleMaker, nodes: int) -> None:
    outcome = _run(make_bundle(nodes, "posix"), "posix", 20, check_tensors=True, sanitize=nodes == 2)
    assert outcome.result.inferences == 20
    assert outcome.result.mismatches == 0
    assert len(outcome.result.nodes) == nodes
    assert outcome.result.accuracy is not None
    assert outcome.result.accuracy > 0.6


def test_boards_with_the_unequal_shares_of_the_plan(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs onnx (disco-edge[convert])")
    model = onnx.load(str(EXAMPLE / "models" / "resnet8_dense.onnx"))
    del model.metadata_props[:]
    model.metadata_props.add(key=PLAN_KEY, value=json.dumps({"nodes": 2, "shares": [0.75, 0.25]}))
    onnx.save(model, str(tmp_path / "planned.onnx"))
    config = ExportConfig(
        model=tmp_path / "planned.onnx",
        nodes=2,
        targets=("posix",),
        output=tmp_path / "bundle",
        calibration=EXAMPLE / "calibration.npy",
    )
    programs = export(config).bundle.manifest.programs
    first, second = (sum(op.macs_executed for op in program.ops) for program in programs)
    assert 2.7 < first / second < 3.3
    outcome = _run(tmp_path / "bundle", "posix", 5, check_tensors=True)
    assert (outcome.result.inferences, outcome.result.mismatches) == (5, 0)


def test_two_emulated_m4_boards_agree_with_the_golden_200_times(make_bundle: BundleMaker) -> None:
    result = _run(make_bundle(2, "qemu-mps2-an386"), "emulated", 200).result
    assert (result.inferences, result.mismatches) == (200, 0)
    assert {node.unit for node in result.nodes} == {"instructions"}
    assert all(link.bytes > 0 and link.retransmissions == 0 for link in result.links)


@pytest.mark.parametrize(
    "target",
    ["qemu-mps2-an385", "qemu-mps2-an385-armv6m", "qemu-mps2-an500", "qemu-mps2-an505", "qemu-mps3-an547"],
)
def test_other_cores_agree_with_the_golden(make_bundle: BundleMaker, target: str) -> None:
    result = _run(make_bundle(2, target), "emulated", 20).result
    assert (result.inferences, result.mismatches) == (20, 0)


def test_instruction_counts_repeat(make_bundle: BundleMaker) -> None:
    bundle = make_bundle(2, "qemu-mps2-an386")
    first, second = (_run(bundle, "emulated", 1, repeat=5).result for _ in range(2))
    for one, two in zip(first.nodes, second.nodes, strict=True):
        difference = abs(one.compute.median - two.compute.median)
        assert difference <= 1e-4 * one.compute.median  # +-0.01 %


def test_the_steps_of_an_op_add_up_to_it(make_bundle: BundleMaker) -> None:
    outcome = _run(make_bundle(2, "qemu-mps2-an386"), "emulated", 1)
    capture = outcome.captures[-1]
    for program, node in zip(outcome.bundle.manifest.programs, capture.nodes, strict=True):
        sums = [0] * len(program.ops)
        for step, count in zip(steps_of(program.ops), node.steps, strict=True):
            sums[step.op] += count
        assert sums == [op.compute for op in node.ops]
        assert len(node.steps) > 2 * len(sums)


def test_the_stack_of_a_board_is_measured(make_bundle: BundleMaker) -> None:
    boards = _run(make_bundle(2, "qemu-mps2-an386"), "emulated", 2).result
    for node in boards.nodes:
        assert node.memory is not None
        assert 200 < node.memory.stack_used_bytes < node.memory.stack_bytes == STACK_BYTES
        assert node.memory.ram_bytes > node.memory.stack_used_bytes + 10_000
    posix = _run(make_bundle(2, "posix"), "posix", 2).result
    assert [node.memory for node in posix.nodes] == [None, None]


# Cycles per instruction and op: one at least on the M4, which issues one at a time; half at least on the M7, which
# issues two, but no two loads together (the table of an ADD).
@pytest.mark.parametrize(("target", "least", "most"), [("qemu-mps2-an386", 1.0, 2.0), ("qemu-mps2-an500", 0.5, 1.4)])
def test_cycle_estimates_repeat_and_are_plausible(
    make_bundle: BundleMaker, target: str, least: float, most: float
) -> None:
    bundle = make_bundle(2, target)
    counted = _run(bundle, "emulated", 1, repeat=2).result
    first, second = (_run(bundle, "emulated", 1, repeat=3, count=CYCLES_ESTIMATE).result for _ in range(2))
    assert first.bit_exact
    for one, two, instructions in zip(first.nodes, second.nodes, counted.nodes, strict=True):
        assert (one.unit, instructions.unit) == ("cycles-estimate", "instructions")
        assert abs(one.compute.median - two.compute.median) <= 1e-5 * one.compute.median  # +-0.001 %
        for op, op_instructions in zip(one.ops, instructions.ops, strict=True):
            assert least <= op.compute.median / op_instructions.compute.median <= most, op.name


def test_more_nodes_than_boards_have_lines(tmp_path: Path) -> None:
    export_tiny(tmp_path / "bundle", nodes=10, channels=11)
    result = run(RunConfig(bundle=tmp_path / "bundle", boards="posix", check_tensors=True)).result
    assert result.bit_exact
    assert len(result.nodes) == 10


@pytest.mark.parametrize("boards", ["emulated", "posix"])
def test_a_line_that_loses_bytes_costs_retransmissions_and_no_mismatch(make_bundle: BundleMaker, boards: str) -> None:
    proxy = FaultProxy(rate=0.001, seed=1)
    try:
        result = _run(make_bundle(2, "qemu-mps2-an386"), boards, 50, peer_line=proxy.line).result
    finally:
        proxy.close()
    assert proxy.faults > 50
    assert (result.inferences, result.mismatches) == (50, 0)
    assert sum(link.retransmissions for link in result.links) > 0


def test_a_changed_weight_is_seen(disco90: bytes, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    export_example(bundle, reference=disco90, nodes=2, target="posix")
    _patch(bundle / "node1" / "disco_model.c", "conv_2d_2_weights[")
    _forget_hashes(bundle)
    result = _run(bundle, "posix", 3, check_tensors=True).result
    assert not result.bit_exact
    assert result.first_difference is not None
    assert (result.first_difference.op, result.first_difference.op_node) == ("conv_2d_2", 1)


def test_a_flipped_received_channel_is_seen(disco90: bytes, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    export_example(bundle, reference=disco90, nodes=2, target="posix")
    source = bundle / "firmware" / "runtime" / "src" / "exchange_receive.c"
    text = source.read_text()
    assert text.count("disco_stream_scatter(") == 1
    source.write_text(
        text.replace(
            "disco_stream_scatter(", "((uint8_t *)(uintptr_t)payload)[length - 1] ^= 0x40;\n    disco_stream_scatter("
        )
    )
    _forget_hashes(bundle)
    assert not _run(bundle, "posix", 3).result.bit_exact


def test_trace_and_json_hold_what_they_promise(make_bundle: BundleMaker) -> None:
    outcome = _run(make_bundle(2, "posix"), "posix", 5)
    data = json.loads(json.dumps(outcome.result.to_json()))
    assert {"bundle_id", "nodes", "links", "host_round_trip_ms", "inferences", "mismatches", "bit_exact"} <= set(data)
    assert set(data["nodes"][0]["total"]) == {"median", "p95", "p99", "min", "max", "standard_deviation"}
    trace = chrome_trace(outcome.bundle.manifest, outcome.result, outcome.last)
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"]
    assert len(names) == 4  # two nodes, two directions
    assert all(event["dur"] >= 0 for event in trace["traceEvents"] if event["ph"] == "X")


def _patch(source: Path, array: str) -> None:
    """Changes the first value of a constant array."""
    text = source.read_text()
    start = text.index("{", text.index(array)) + 1
    end = text.index(",", start)
    value = int(text[start:end])
    source.write_text(f"{text[:start]}\n    {value - 30 if value > 0 else value + 30}{text[end:]}")


def _forget_hashes(bundle: Path) -> None:
    """Writes the manifest anew, as if the exporter itself had erred."""
    from disco_firmware.bundle import MANIFEST_NAME, write_manifest
    from disco_firmware.manifest import Manifest

    document = json.loads((bundle / MANIFEST_NAME).read_text())
    del document["files"], document["manifest_sha256"]
    (bundle / MANIFEST_NAME).unlink()
    shutil.rmtree(bundle / "build", ignore_errors=True)
    write_manifest(bundle, Manifest.from_json(document))


def test_lines_are_socket_pairs() -> None:
    one, two = direct_line(0, 1)
    with one, two:
        one.sendall(b"x")
        assert two.recv(1) == b"x"
    assert np.load(LABELS).size >= 200


def test_an_output_of_which_a_node_has_nothing(tmp_path: Path) -> None:
    """The input as an output too: node 0 speaks for all, the others send no channel of it."""
    (tmp_path / "tiny.tflite").write_bytes(tiny_model(outputs=(6, 0)))
    export(ExportConfig(tmp_path / "tiny.tflite", 2, ("posix",), tmp_path / "bundle"))
    config = RunConfig(bundle=tmp_path / "bundle", boards="posix", check_tensors=True)
    assert run(config).result.bit_exact


@pytest.mark.parametrize(
    ("last", "target"),
    [
        ("ADD", "qemu-mps2-an386"),
        ("MUL", "qemu-mps2-an386"),
        ("MUL", "posix"),
        ("ADD", "linux"),
        ("ADD", "qemu-mps3-an547"),
    ],
)
def test_two_convolutions_element_by_element(tmp_path: Path, last: str, target: str) -> None:
    """The second convolution reads what each node recomputes of the first, the ADD or MUL only its own channels."""
    (tmp_path / "tiny.tflite").write_bytes(tiny_model(8, (7,), last))
    bundle = export(ExportConfig(tmp_path / "tiny.tflite", 2, (target,), tmp_path / "bundle")).bundle
    assert bundle.manifest.exchanges == ()
    boards = target if target in ("posix", "linux") else "emulated"
    assert run(RunConfig(bundle=bundle.path, boards=boards, check_tensors=True)).result.bit_exact
