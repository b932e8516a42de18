"""Where buffers lie: no buffer spoils another, what may share a place does, and little memory is wasted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disco_converter import graph as g
from disco_converter.firmware import Origin, firmware_of
from disco_converter.in_place import with_shared_places
from disco_converter.lowering import lower
from disco_converter.memory import LEAD_OPS, plan_memory
from disco_converter.order import partition_in_order
from disco_converter.overlap import overlap_of
from disco_converter.partition import partition
from disco_converter.placement import ALIGNMENT, Life, Overlap, block_bytes, needed_bytes, place
from disco_converter.tflite_reader import read_tflite
from disco_firmware import kernel_params as k
from disco_firmware.kernel_params import ActivationRange
from disco_firmware.variants.base import Layer
from disco_targets.board import load_board


def _assert_apart(
    lives: Sequence[Life], offsets: Mapping[str, int], overlaps: Mapping[tuple[str, str], Overlap]
) -> None:
    for one in lives:
        for two in lives:
            start, other = offsets[one.name], offsets[two.name]
            apart = start + one.size <= other or other + two.size <= start
            overlap = overlaps.get((one.name, two.name))
            nearer = overlap is not None and (start + overlap.distance <= other or start + overlap.least == other)
            mirrored = (two.name, one.name) in overlaps
            assert one is two or not one.meets(two) or apart or nearer or mirrored, (one, two)


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_no_buffer_spoils_another(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lives, overlaps = [], {}
    for op in range(int(rng.integers(1, 12))):
        size = int(rng.integers(1, 400))
        lives.append(Life(f"{op}", size, op, op + int(rng.integers(1, 4))))
        before = next((life for life in lives if life.last_op == op), None)
        if before is not None and before.first_op < op and rng.random() < 0.7:
            distance = int(rng.integers(0, size + 1))
            exactly = distance // 2 // ALIGNMENT * ALIGNMENT
            overlaps[f"{op}", before.name] = Overlap(distance, exactly if exactly < distance else None)
    offsets = place(lives, overlaps)
    _assert_apart(lives, offsets, overlaps)
    assert needed_bytes(lives, overlaps) <= block_bytes(lives, offsets)


def test_an_output_lies_so_many_bytes_before_its_input() -> None:
    lives = [Life("in", 160, 0, 1), Life("out", 96, 1, 2), Life("other", 32, 0, 2)]
    assert needed_bytes(lives, {}) == 288
    for overlap, bound in ((Overlap(48), 240), (Overlap(48, 16), 208)):
        offsets = place(lives, {("out", "in"): overlap})
        assert offsets["in"] - offsets["out"] == overlap.least
        assert block_bytes(lives, offsets) == needed_bytes(lives, {("out", "in"): overlap}) == bound


def _pool(height: int, kernel: int, stride: int, pad: int, channels: int = 1) -> Layer:
    outputs = (height + 2 * pad - kernel) // stride + 1
    window = k.Window(kernel, 1, stride_h=stride, pad_top=pad)
    view = k.View(height, 10, channels, channels)
    return Layer(k.MaxPool2D(window, ActivationRange(-128, 127)), (view,), k.View(outputs, 10, channels, channels))


def test_how_near_rows_may_lie() -> None:
    # Row y is written when rows y - 1 and below are still to be read: two rows of 10 bytes.
    assert overlap_of(_pool(8, 3, 1, 1), None) == Overlap(20)
    assert overlap_of(_pool(8, 2, 2, 0), None) == Overlap(10)
    assert overlap_of(_pool(2, 1, 1, 0), None) == Overlap(10)
    assert overlap_of(_pool(1, 1, 1, 0), None) is None  # the whole output


def _graph() -> g.Graph:
    """x -> a, b; a + b -> c -> RELU d -> e."""
    names = {"x": 3, "a": 4, "b": 4, "c": 4, "d": 4, "e": 4}
    tensors = {name: g.Tensor(name, 0, (1, 6, 5, channels), 0.5, 0) for name, channels in names.items()}

    def conv(index: int, source: str, output: str) -> g.Op:
        weights = np.ones((4, 1, 1, names[source]), np.int8)
        filter_ = g.Filter(weights, np.ones(4, np.float32), True, np.zeros(4, np.int32))
        return g.Op(index, "CONV_2D", (source,), output, g.Conv2D(g.Window((1, 1), (1, 1)), filter_, "NONE"))

    ops = (
        conv(0, "x", "a"),
        conv(1, "x", "b"),
        g.Op(2, "ADD", ("a", "b"), "c", g.Add("NONE")),
        g.Op(3, "RELU", ("c",), "d", g.Activation("RELU")),
        conv(4, "d", "e"),
    )
    return g.Graph(tensors, ops, "x", ("e",))


@pytest.mark.parametrize("nodes", [1, 2])
def test_what_works_value_by_value_does_so_in_place(nodes: int) -> None:
    cut = with_shared_places(partition(_graph(), nodes, recomputed_macs=0))
    for slice_ in cut.slices:
        assert slice_.in_place == {"b": "c", "c": "d"}  # b and not a, which is there for longer
        halo = 4 - 4 // nodes  # of d: all channels of the other node
        assert [slice_.buffers[name].stride for name in "abcd"] == [4 // nodes, *[4 // nodes + halo] * 3]
        places = plan_memory(cut, slice_).placements
        assert places["b"] == places["c"] == places["d"] != places["a"]
        relu = lower(cut, slice_)[3].layer
        assert relu.inputs[0] == relu.output == k.View(6, 5, 4 // nodes, 4)


def test_what_is_needed_later_or_sent_is_not_overwritten() -> None:
    graph = _graph()
    ops = (*graph.ops, g.Op(5, "ADD", ("d", "b"), "f", g.Add("NONE")))
    tensors = {**graph.tensors, "f": g.Tensor("f", 0, (1, 6, 5, 4), 0.5, 0)}
    longer = g.Graph(tensors, ops, "x", ("c", "e", "f"))
    alone, one_of_two = (
        with_shared_places(partition(longer, nodes, recomputed_macs=0)).slices[0].in_place for nodes in (1, 2)
    )
    assert alone == {"a": "c", "d": "f"}  # b is read again, c an output
    assert one_of_two == {"a": "c", "b": "f"}  # e waits for the other node's part of d


def _separable(channels: Sequence[int]) -> g.Graph:
    """x -> p0 -> d1 -> p1 -> d2 ...: what a depthwise convolution d gives is exchanged, what it reads is not."""
    tensors = {"x": g.Tensor("x", 0, (1, 6, 5, 3), 0.5, 0)}
    ops: list[g.Op] = []

    def add(kind: str, name: str, shape: tuple[int, ...], outputs: int) -> None:
        filter_ = g.Filter(np.ones(shape, np.int8), np.ones(outputs, np.float32), True, np.zeros(outputs, np.int32))
        window = g.Window((1, 1), (1, 1))
        depthwise = kind == "DEPTHWISE_CONV_2D"
        params = g.DepthwiseConv2D(window, filter_, 1, "NONE") if depthwise else g.Conv2D(window, filter_, "NONE")
        ops.append(g.Op(len(ops), kind, (ops[-1].output if ops else "x",), name, params))
        tensors[name] = g.Tensor(name, 0, (1, 6, 5, outputs), 0.5, 0)

    for block, (inputs, outputs) in enumerate(pairwise((3, *channels))):
        add("CONV_2D", f"p{block}", (outputs, 1, 1, inputs), outputs)
        add("DEPTHWISE_CONV_2D", f"d{block}", (1, 1, 1, outputs), outputs)
    add("CONV_2D", "y", (channels[-1], 1, 1, channels[-1]), channels[-1])
    return g.Graph(tensors, tuple(ops), "x", ("y",))


def test_peers_may_send_as_soon_as_a_place_is_free_and_no_sooner() -> None:
    """What a node has sent out of that place has until the last moment to leave."""
    early = 0
    for seed in range(20):
        channels = [int(count) for count in np.random.default_rng(seed).integers(4, 40, 6)]
        cut = partition(_separable(channels), 2, recomputed_macs=0)
        sent = [exchange.tensor for exchange in cut.exchanges]
        for slice_ in cut.slices:
            plan = plan_memory(cut, slice_)
            lives = {name: Life(name, at.size, at.first_op, at.last_op) for name, at in plan.placements.items()}
            offsets = {name: at.offset for name, at in plan.placements.items()}
            _assert_apart(list(lives.values()), offsets, {})
            opened = [plan.opened[tensor] for tensor in sent]
            assert opened == sorted(opened)
            for tensor, op in zip(sent, opened, strict=True):
                latest = [sliced.output for sliced in slice_.ops].index(tensor) - LEAD_OPS
                assert lives[tensor].first_op <= op <= latest
                if op < latest:
                    early += 1
                    begin, end = offsets[tensor], offsets[tensor] + lives[tensor].size
                    inside = [
                        name for name in offsets if offsets[name] < end and begin < offsets[name] + lives[name].size
                    ]
                    assert not any(lives[name].last_op < op for name in inside if name in sent)
    assert early > 10


@pytest.mark.parametrize("optimize", ["size", "balanced"])
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("name", ["ad_autoencoder", "ic_resnet8", "kws_dscnn", "vww_mobilenet025"])
def test_real_networks_take_little_more_than_the_least(
    shared_models: Path, name: str, nodes: int, optimize: str
) -> None:
    content = (shared_models / f"{name}_int8.tflite").read_bytes()
    cut = partition_in_order(read_tflite(content), nodes)
    board = load_board("qemu-mps2-an386")
    for node in firmware_of(cut, [board] * nodes, optimize, Origin(name, "", content)):
        assert node.plan.needed_bytes <= node.plan.arena_bytes <= 1.05 * node.plan.needed_bytes
