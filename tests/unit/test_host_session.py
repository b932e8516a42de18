"""What the host makes of nodes that behave and of nodes that do not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from disco_firmware.bundle import Bundle
from disco_firmware.framing import WIRE_OVERHEAD_BYTES
from disco_host.boards import NodeLine
from disco_host.capture import InferenceCapture
from disco_host.check import Checker
from disco_host.failures import NodeError
from disco_host.golden import Golden
from disco_host.measure import link_results
from disco_host.processes import ChildProcess
from disco_host.session import Session
from disco_host.transport import from_socket
from disco_targets.errors import DiscoError
from helpers.fake_node import FakeNode
from helpers.tiny_bundle import export_tiny

DEADLINE_S = 0.6
PATIENT_S = 20.0


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return export_tiny(tmp_path_factory.mktemp("tiny") / "bundle")


@contextmanager
def _session(
    nodes: list[FakeNode],
    bundle: Bundle,
    deadline_s: float = PATIENT_S,
    processes: Mapping[int, ChildProcess] = MappingProxyType({}),
) -> Iterator[Session]:
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(node.close)
        lines = [
            NodeLine(k, "posix", from_socket(f"fake {k}", n.host_end), processes.get(k), "look at it")
            for k, n in enumerate(nodes)
        ]
        yield stack.enter_context(Session(bundle.manifest, lines, deadline_s))


def _infer(session: Session, bundle: Bundle, count: int = 3) -> list[InferenceCapture]:
    session.greet()
    session.connect()
    samples = np.load(bundle.vector_inputs)
    return [session.infer(i + 1, i, samples[i], checksums=True) for i in range(count)]


def _judged(captures: list[InferenceCapture], bundle: Bundle, *, tensors: bool) -> Checker:
    checker = Checker(bundle.manifest, Golden(bundle, keep_tensors=tensors), tensors=tensors)
    samples = np.load(bundle.vector_inputs)
    for capture in captures:
        checker.judge(capture, samples[capture.input_index])
    return checker


def _pair(bundle: Bundle, fault: str = "", /, **lies: object) -> list[FakeNode]:
    return [FakeNode(bundle, 0), FakeNode(bundle, 1, fault, **lies)]


def test_a_whole_conversation(bundle: Bundle) -> None:
    nodes = _pair(bundle)
    with _session(nodes, bundle) as session:
        captures = _infer(session, bundle)
    assert [node.inferences for node in nodes] == [3, 3]
    checker = _judged(captures, bundle, tensors=True)
    assert (checker.mismatches, checker.first) == (0, None)
    assert captures[1].nodes[1].ops[1].compute == 501
    assert captures[2].nodes[0].end == 5300
    assert all(capture.round_trip_s > 0 for capture in captures)


def test_links_are_counted_from_the_last_warm_up_on(bundle: Bundle) -> None:
    with _session(_pair(bundle), bundle) as session:
        captures = _infer(session, bundle)
    exchange = bundle.manifest.exchanges[0]
    expected = sum(route.bytes for e in bundle.manifest.exchanges for route in e.routes if route.sender == 0)
    there, back = link_results(bundle.manifest, captures[1:], captures[0])
    assert (there.sender, there.receiver, back.sender, back.receiver) == (0, 1, 1, 0)
    assert there.bytes == 2 * expected
    assert there.frames == 2 * 2 * sum(send.receiver == 1 for send in bundle.manifest.programs[0].sends)
    assert there.retransmissions == 6  # 9 so far, 3 of them in the warm-up
    assert exchange.routes


def test_facts_come_from_welcome(bundle: Bundle) -> None:
    with _session(_pair(bundle), bundle) as session:
        facts = session.greet()
    assert [(f.node, f.board, f.unit, f.ticks_per_second) for f in facts] == [
        (0, "posix", "ns", 1_000_000_000),
        (1, "posix", "ns", 1_000_000_000),
    ]


@pytest.mark.parametrize(
    ("fault", "lies", "words"),
    [
        ("silent", {}, "does not answer: WELCOME was awaited for 0.6 s; look at it"),
        ("garbage", {}, "answers garbage: WELCOME was awaited for 0.6 s, .* the first 48 65 6c"),
        ("short welcome", {}, "malformed message, Welcome of .* bytes"),
        ("", {"version": 9}, "protocol version 9, this program speaks 4"),
        ("", {"bundle_id": bytes(16)}, "runs bundle 0{32}, this one is"),
        ("", {"node": 0}, "answers as node 0: swap the ports"),
        ("", {"node_count": 3}, "was built for 3 nodes, the bundle has 2"),
        ("", {"model_abi": 77}, "has model ABI 77"),
        ("", {"board": "other-board"}, "says it is board 'other-board', expected 'posix'"),
        ("", {"endianness": 0}, "not little-endian"),
        ("", {"unit": 9}, "counts in unit 9"),
        ("", {"link_count": 1}, "has 1 lines, 2 are needed"),
        ("", {"max_payload": 16}, "payloads of 16 bytes only"),
        ("", {"resolution_ticks": 0}, "does not count instructions: start QEMU with -icount"),
    ],
)
def test_a_node_that_does_not_fit_is_named(bundle: Bundle, fault: str, lies: dict[str, object], words: str) -> None:
    with (
        _session(_pair(bundle, fault, **lies), bundle, DEADLINE_S) as session,
        pytest.raises(DiscoError, match=f"^node 1 \\(fake 1\\) .*{words}"),
    ):
        session.greet()


def test_hello_is_repeated_only_to_nodes_that_have_not_answered(bundle: Bundle) -> None:
    nodes = _pair(bundle, "silent")
    with _session(nodes, bundle, DEADLINE_S) as session, pytest.raises(NodeError) as caught:
        session.greet()
    assert caught.value.node == 1
    assert nodes[0].hellos == 1
    assert nodes[1].bytes_taken > 2 * WIRE_OVERHEAD_BYTES


def test_a_peer_that_is_missing_is_blamed(bundle: Bundle) -> None:
    with _session(_pair(bundle, "no peer"), bundle) as session:
        session.greet()
        words = r"^node 0 keeps another one waiting: node 1 .* reports.*a deadline passed, with node 0, after .* 2\.5 s"
        with pytest.raises(NodeError, match=words) as caught:
            session.connect()
    assert caught.value.node == 0


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("dies", "the line to node 1 .* broke while DONE of inference 1 was awaited"),
        ("hangs", r"node 1 .* went silent: DONE of inference 1 was awaited for 2\.\d s"),
        (
            "reports an error",
            r"in op 1 \(CONV_2D .*\), in exchange 0 of .*, with node 0, 30 bytes missing, after waiting 1\.5 s",
        ),
        ("unexpected", "node 1 .* sent CONNECTED while DONE of inference 1 was awaited"),
        ("wrong inference", "node 1 sent DONE of inference 2 in inference 1"),
        ("truncated output", "node 1 sent DONE with .* bytes of output 0 instead of"),
        ("no routes", "node 1 sent DONE with 0 route records instead of 1"),
    ],
)
def test_a_node_that_fails_in_the_middle_is_named(bundle: Bundle, fault: str, words: str) -> None:
    with _session(_pair(bundle, fault), bundle, DEADLINE_S) as session, pytest.raises(DiscoError, match=words):
        _infer(session, bundle)


def test_a_board_whose_process_is_halted_is_named(bundle: Bundle, tmp_path: Path) -> None:
    nodes = _pair(bundle, "hangs")
    child = ChildProcess(["sleep", "60"], tmp_path / "log")
    with _session(nodes, bundle, processes={1: child}) as session:
        os.kill(child.pid, signal.SIGSTOP)
        with pytest.raises(NodeError, match=r"node 1 \(fake 1\) hangs: its process was halted, while .* was awaited"):
            _infer(session, bundle)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()


def test_a_wrong_value_is_found_and_placed(bundle: Bundle) -> None:
    with _session(_pair(bundle, "flipped output"), bundle) as session:
        captures = _infer(session, bundle, 2)
    checker = _judged(captures, bundle, tensors=False)
    first = checker.first
    assert checker.mismatches == 2
    assert first is not None
    channels = bundle.manifest.programs[1].outputs[0].channels
    pixel, channel = divmod(3, len(channels))
    assert (first.inference, first.output, first.node, first.differing) == (1, 0, 1, 1)
    assert first.position == (0, 0, pixel, channels[channel])
    assert first.expected ^ first.got in (1, -1)


def test_a_wrong_tensor_is_found_where_outputs_agree(bundle: Bundle) -> None:
    with _session(_pair(bundle, "flipped tensor"), bundle) as session:
        captures = _infer(session, bundle, 1)
    assert _judged(captures, bundle, tensors=False).mismatches == 0
    checker = _judged(captures, bundle, tensors=True)
    assert checker.first is not None
    assert (checker.mismatches, checker.first.output) == (1, -1)
    assert (checker.first.op, checker.first.op_node) == (bundle.manifest.programs[1].ops[0].name, 1)


def test_self_check_of_the_golden(bundle: Bundle, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors"
    vectors.mkdir()
    np.save(vectors / "inputs.npy", np.load(bundle.vector_inputs))
    np.save(vectors / "outputs0.npy", np.load(bundle.vector_outputs(0)) ^ np.int8(1))
    (tmp_path / "reference.tflite").write_bytes(bundle.reference.read_bytes())
    with pytest.raises(DiscoError, match="answer differently"):
        Golden(Bundle(tmp_path, bundle.manifest))
