"""The order of ops, and what the manifest says of their rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from disco_converter import graph as g
from disco_converter.kernel_choice import Kernel, Limits, choose_kernels
from disco_converter.lowering import lower
from disco_converter.memory import plan_memory
from disco_converter.node_kernels import NodeKernels
from disco_converter.order import partition_in_order, spread_out
from disco_converter.partition import partition
from disco_converter.streaming import (
    MOST_LOOKS,
    _step,
    halo_waits,
    joined_ops,
    last_input_row,
    row_steps,
    streamed,
)
from disco_firmware import kernel_params as k
from disco_firmware.kernel_params import ActivationRange
from disco_firmware.variants.conv2d_winograd import WinogradF4
from disco_firmware.variants.registry import candidates

HEIGHT = 6
RANGE = ActivationRange(-128, 127)


def _conv(name_out: str, source: str, index: int, channels: int, inputs: int, size: int = 1) -> g.Op:
    weights = np.ones((channels, size, size, inputs), np.int8)
    filter_ = g.Filter(weights, np.full(channels, 0.5, np.float32), True, np.zeros(channels, np.int32))
    pad = size // 2
    window = g.Window((size, size), (1, 1), padding=g.Padding(pad, pad, pad, pad))
    return g.Op(index, "CONV_2D", (source,), name_out, g.Conv2D(window, filter_, "NONE"))


def _residual() -> g.Graph:
    """x -> a; a -> b -> c, shortcut a -> s; c + s -> d -> e. In the file the shortcut comes last."""
    names = {"x": 3, "a": 4, "b": 4, "c": 4, "s": 4, "d": 4, "e": 4}
    tensors = {name: g.Tensor(name, 0, (1, HEIGHT, 5, channels), 0.5, 0) for name, channels in names.items()}
    ops = (
        _conv("a", "x", 0, 4, 3),
        _conv("b", "a", 1, 4, 4),
        _conv("c", "b", 2, 4, 4, size=3),
        _conv("s", "a", 3, 4, 4),
        g.Op(4, "ADD", ("c", "s"), "d", g.Add("NONE")),
        _conv("e", "d", 5, 4, 4),
    )
    return g.Graph(tensors, ops, "x", ("e",))


def test_a_shortcut_comes_between_an_exchange_and_its_use() -> None:
    graph = _residual()
    assert [op.output for op in spread_out(graph).ops] == ["a", "b", "s", "c", "d", "e"]
    assert [op.output for op in partition_in_order(graph, 2).graph.ops] == ["a", "b", "s", "c", "d", "e"]
    assert partition_in_order(graph, 1).graph is graph


def test_an_order_that_needs_more_memory_is_left() -> None:
    """Three branches that are wide inside: one after the other they need less than all at once."""
    channels = {"x": 2, "a": 2} | dict.fromkeys("bdf", 64) | dict.fromkeys("cegmn", 2)
    tensors = {name: g.Tensor(name, 0, (1, HEIGHT, 5, count), 0.5, 0) for name, count in channels.items()}
    branches = [("b", "c"), ("d", "e"), ("f", "g")]
    ops = [_conv("a", "x", 0, 2, 2)]
    for wide, narrow in branches:
        ops += [_conv(wide, "a", len(ops), 64, 2), _conv(narrow, wide, len(ops) + 1, 2, 64)]
    ops += [g.Op(7, "ADD", ("c", "e"), "m", g.Add("NONE")), g.Op(8, "ADD", ("m", "g"), "n", g.Add("NONE"))]
    graph = g.Graph(tensors, tuple(ops), "x", ("n",))
    assert [op.output for op in spread_out(graph).ops][:4] == ["a", "b", "d", "f"]
    assert partition_in_order(graph, 2).graph is graph


def _program(nodes: int) -> list[tuple[NodeKernels, tuple[int, ...]]]:
    cut = partition(spread_out(_residual()), nodes, recomputed_macs=0)
    programs = []
    for slice_ in cut.slices:
        ops = lower(cut, slice_)
        kernels = choose_kernels(ops, Limits("base", None, None), "size")
        program = NodeKernels(ops, kernels, joined_ops(cut, slice_, ops, kernels))
        programs.append((program, row_steps(cut, slice_, program)))
    return programs


def test_an_add_that_is_sent_is_joined_to_the_convolution_before() -> None:
    for program, steps in _program(2):
        assert [lowered.op.output for lowered, _ in program] == ["a", "b", "s", "c", "d", "e"]
        assert program.joined == {4}
        assert program.together() == ((0, 1), (1, 2), (2, 3), (3, 5), (5, 6))
        assert steps == (1, 1, 1, 1, 1, 1)


def test_alone_nothing_is_joined_and_ops_run_whole() -> None:
    ((program, steps),) = _program(1)
    assert program.joined == frozenset()
    assert steps == (HEIGHT,) * 6


def test_what_joined_ops_use_is_in_use_during_all_of_them() -> None:
    cut = partition(spread_out(_residual()), 2, recomputed_macs=0)
    for slice_ in cut.slices:
        places = plan_memory(cut, slice_, {"add_4": 64}, ((0, 1), (1, 2), (2, 3), (3, 5), (5, 6)))
        b, d, scratch = places.placements["b"], places.placements["d"], places.scratch["add_4"]
        assert (b.last_op, scratch.first_op, scratch.last_op) == (4, 3, 4)
        assert d.first_op <= 3
        for one, two in ((b, d), (b, scratch), (d, scratch)):
            assert one.offset + one.size <= two.offset or two.offset + two.size <= one.offset


def _separable(nodes: int) -> list[Kernel]:
    """Of the first node: of x -> convolution a -> depthwise b -> pointwise c."""
    channels = {"x": 3, "a": 16, "b": 16, "c": 16}
    tensors = {name: g.Tensor(name, 0, (1, HEIGHT, 5, count), 0.5, 0) for name, count in channels.items()}
    filter_ = g.Filter(np.ones((1, 3, 3, 16), np.int8), np.full(16, 0.5, np.float32), True, np.zeros(16, np.int32))
    window = g.Window((3, 3), (1, 1), padding=g.Padding(1, 1, 1, 1))
    depthwise = g.Op(1, "DEPTHWISE_CONV_2D", ("a",), "b", g.DepthwiseConv2D(window, filter_, 1, "NONE"))
    ops = (_conv("a", "x", 0, 16, 3), depthwise, _conv("c", "b", 2, 16, 16))
    cut = partition(g.Graph(tensors, ops, "x", ("c",)), nodes, recomputed_macs=0)
    slice_ = cut.slices[0]
    return list(choose_kernels(streamed(cut, slice_, lower(cut, slice_)), Limits("dsp", None, None), "size"))


def test_kernels_compute_fewer_rows_together_where_rows_stream() -> None:
    alone, one_of_two = _separable(1), _separable(2)
    assert [kernel.layer.most_rows for kernel in alone] == [None] * 3
    # a is read by its owner alone; b is sent and c waits for it.
    assert [kernel.layer.most_rows for kernel in one_of_two] == [None, 4, 4]
    assert [kernel.name for kernel in one_of_two] == [kernel.name for kernel in alone]
    assert alone[1].name == "3x3, int16 planes"
    assert alone[1].row_step == HEIGHT
    assert one_of_two[1].row_step == 2  # four rows at a time take fewer instructions, but leave later
    layers = [replace(kernel.layer, most_rows=4) for kernel in alone]
    steps = [variant.row_step(layer) for layer in layers for variant in candidates(layer, "mve")]
    assert len(steps) >= 9
    assert max(steps) == 4


def test_where_rows_stream_the_first_ones_count_twice() -> None:
    alone, one_of_two = (kernels[1].layer for kernels in (_separable(1), _separable(2)))
    assert [alone.delay(600, rows) for rows in (1, 2, HEIGHT)] == [600] * 3
    assert [one_of_two.delay(600, rows) for rows in (1, 2, HEIGHT, 2 * HEIGHT)] == [700, 800, 1200, 1200]


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_an_op_looks_at_the_links_eight_times_at_most(rows: int) -> None:
    (program, _), _ = _program(2)
    kernel = replace(program.kernels[0], variant=WinogradF4(), row_step=rows)
    for height in range(1, 60):
        runs, more = divmod(_step(kernel, height), rows)
        assert more == 0
        assert -(-height // (runs * rows)) <= MOST_LOOKS
        assert runs == 1 or -(-height // ((runs - 1) * rows)) > MOST_LOOKS
    assert _step(replace(kernel, variant=None, row_step=1), 59) == 1


def test_rows_that_steps_wait_for() -> None:
    cut = partition(spread_out(_residual()), 2, recomputed_macs=0)
    slice_ = cut.slices[0]
    c = lower(cut, slice_)[3]
    ((wait),) = halo_waits(cut, slice_, c, 1)
    assert cut.exchanges[wait.exchange].tensor == "b"
    assert wait.rows == (2, 3, 4, 5, 6, 6)
    assert halo_waits(cut, slice_, c, 4)[0].rows == (5, 6)  # two steps, of four rows and of two
    assert halo_waits(cut, slice_, c, HEIGHT)[0].rows == (6,)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (k.MaxPool2D(k.Window(3, 3, stride_h=2), RANGE), [2, 4, 6, 8, 8]),
        (k.MaxPool2D(k.Window(3, 3, dilation_h=2, pad_top=2), RANGE), [2, 3, 4, 5, 6]),
        (k.MaxPool2D(k.Window(1, 1, pad_top=2), RANGE), [0, 0, 0, 1, 2]),
        (k.Pad(2, 0, 0), [0, 0, 0, 1, 2]),
        (k.Reshape(), [8, 8, 8, 8, 8]),
        (k.SelectChannels(()), [0, 1, 2, 3, 4]),
    ],
)
def test_last_input_row(params: k.KernelParams, expected: list[int]) -> None:
    assert [last_input_row(params, 9, row) for row in range(5)] == expected
