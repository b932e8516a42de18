"""The TFLite engine: nodes as threads, wired by socket pairs, against the whole model in the same kernels."""

from __future__ import annotations

import json
import resource
import threading
import time

import numpy as np
import pytest

from disco_firmware.bundle import Bundle, load_bundle
from disco_firmware.protocol import Status
from disco_firmware.reference import MODES, REFERENCE, XNNPACK
from disco_host.capture import InferenceCapture
from disco_host.check import Checker
from disco_host.golden import Golden
from disco_host.measure import node_results
from disco_host.node.channels import ChannelCopy
from disco_host.node.peers import ReportedError
from disco_host.node.program import NodeSlice, StagedProgram, slice_of
from disco_host.node.state import Doing
from disco_host.session import NodeFacts, Session
from disco_targets.errors import DiscoError
from helpers.stream_nodes import engine_nodes
from helpers.tiny_bundle import export_tiny
from pair.conftest import BundleMaker


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return export_tiny(tmp_path_factory.mktemp("engine") / "tiny", 2, "linux")


def _run(
    bundle: Bundle, mode: str, inferences: int, *, tensors: bool
) -> tuple[Checker, list[InferenceCapture], tuple[NodeFacts, ...]]:
    manifest = bundle.manifest
    shape = manifest.tensor(manifest.input).shape
    samples = np.random.default_rng(3).integers(-128, 128, (inferences, *shape[1:]), np.int8)
    checker = Checker(manifest, Golden(bundle, keep_tensors=True, mode=mode), tensors=tensors)
    captures = []
    with engine_nodes(bundle, mode) as (lines, nodes), Session(manifest, lines, 5) as session:
        facts = session.greet()
        assert {(fact.board, fact.unit) for fact in facts} == {("linux", "ns")}
        session.connect()
        for number, sample in enumerate(samples, start=1):
            captures.append(session.infer(number, number, sample, checksums=tensors))
            checker.judge(captures[-1], sample)
    assert [node.failure for node in nodes] == [None] * manifest.nodes
    assert all(node.state.activity.doing is Doing.IDLE for node in nodes)
    return checker, captures, facts


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_every_op_equals_the_whole_model_in_the_same_kernels(make_bundle: BundleMaker, nodes: int, mode: str) -> None:
    bundle = load_bundle(make_bundle(nodes, "linux"))
    for tensors in (True, False):
        checker, captures, facts = _run(bundle, mode, 5, tensors=tensors)
        assert (checker.mismatches, checker.first) == (0, None)
    for node in captures[-1].nodes:
        program = bundle.manifest.programs[node.node]
        assert len(node.stages) == len(program.stages)
        for stage in node.stages:
            parts = stage.prepare + stage.wait + stage.scatter + stage.compute + stage.gather + stage.send
            assert 0 < stage.compute <= parts <= stage.end - stage.start
        assert node.start <= node.stages[0].start <= node.stages[-1].end <= node.end
        assert sum(op.compute for op in node.ops) == sum(stage.compute for stage in node.stages)
        assert [route.payload_bytes for route in node.routes] == [send.bytes for send in program.sends]
        result = node_results(bundle.manifest, facts, captures)[node.node]
        assert [stage.ops for stage in result.stages] == [
            tuple(program.ops[op].name for op in stage.ops) for stage in program.stages
        ]
        assert result.stages[0].compute.max == max(capture.nodes[node.node].stages[0].compute for capture in captures)


def test_the_other_kernels_are_told_apart(make_bundle: BundleMaker) -> None:
    bundle = load_bundle(make_bundle(2, "linux"))
    manifest = bundle.manifest
    sample = np.random.default_rng(3).integers(-128, 128, manifest.tensor(manifest.input).shape[1:], np.int8)
    checker = Checker(manifest, Golden(bundle, keep_tensors=True, mode=REFERENCE), tensors=True)
    with engine_nodes(bundle, XNNPACK) as (lines, _), Session(manifest, lines, 5) as session:
        session.greet()
        session.connect()
        checker.judge(session.infer(1, 0, sample, checksums=True), sample)
    assert checker.mismatches == 1


@pytest.mark.parametrize(("cut", "deadline", "status"), [(True, 5, Status.ERR_LINE), (False, 0.3, Status.ERR_TIMEOUT)])
def test_a_peer_that_is_gone_or_silent_is_named_with_exchange_and_bytes(
    tiny: Bundle, cut: bool, deadline: float, status: Status
) -> None:
    sample = np.zeros((6, 5, 3), np.int8)
    with engine_nodes(tiny, REFERENCE) as (lines, nodes), Session(tiny.manifest, lines, deadline) as session:
        session.greet()
        session.connect()
        session.infer(1, 0, sample, checksums=False)
        lines[1].transport.write = len  # type: ignore[assignment, method-assign] - the host's words to node 1 are lost
        if cut:
            threading.Timer(0.3, nodes[1].cut_peers).start()
        start = time.monotonic()
        with pytest.raises(DiscoError, match=r"node 0 .*exchange 0 of tensor3, with node 1, 60 bytes missing"):
            session.infer(2, 0, sample, checksums=False)
        assert time.monotonic() - start < 2
    assert isinstance(nodes[0].failure, ReportedError)
    assert (nodes[0].failure.report.status, nodes[0].failure.report.peer) == (status, 1)


def test_a_peer_that_is_lost_between_runs_is_named(tiny: Bundle) -> None:
    with engine_nodes(tiny, REFERENCE) as (lines, nodes), Session(tiny.manifest, lines, 5) as session:
        session.greet()
        session.connect()
        nodes[1].cut_peers()
        with pytest.raises(DiscoError, match="the line to its peer broke"):
            session.infer(1, 0, np.zeros((6, 5, 3), np.int8), checksums=False)


def test_memory_does_not_grow(tiny: Bundle) -> None:
    sample = np.zeros((6, 5, 3), np.int8)
    with engine_nodes(tiny, XNNPACK) as (lines, _), Session(tiny.manifest, lines, 5) as session:
        session.greet()
        session.connect()
        for number in range(1, 3001):
            session.infer(number, 0, sample, checksums=False)
            if number == 1000:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512  # KiB


def test_a_slice_that_does_not_fit_its_bundle_is_refused(tiny: Bundle) -> None:
    whole = slice_of(tiny, 0)
    with pytest.raises(DiscoError, match="has 1 stages, its bundle lists 2"):
        StagedProgram(NodeSlice(whole.manifest, 0, whole.stages[:1]))
    with pytest.raises(DiscoError, match="TFLite does not run stage 0 of node 0"):
        StagedProgram(NodeSlice(whole.manifest, 0, (b"no model", whole.stages[1])))


def test_stages_are_listed_in_the_bundle(tiny: Bundle) -> None:
    program = json.loads((tiny.path / "bundle.json").read_text())["programs"][0]
    assert [stage["file"] for stage in program["stages"]] == [f"node0/stages/stage0{n}.tflite" for n in (0, 1)]
    assert all((tiny.path / stage["file"]).is_file() for stage in program["stages"])
    assert program["stages"][1]["inputs"][0]["halo"] == [{"exchange": 0, "sender": 1, "channels": 2}]


@pytest.mark.parametrize("pixels", [1, 400])
@pytest.mark.parametrize("channels", [[0, 1, 2, 5], [3], [7, 6, 0, 1], list(range(8))])
def test_channels_are_picked_in_their_order(pixels: int, channels: list[int]) -> None:
    source = np.random.default_rng(0).integers(-128, 128, (pixels, 8), np.int8)
    target = np.full((pixels, len(channels)), 99, np.int8)
    ChannelCopy(pixels, channels)(source, target)
    np.testing.assert_array_equal(target, source[:, channels])
