"""Channels that a node computes although another node owns them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from disco_converter import graph as g
from disco_converter.accounting import SubRows, executed_macs, sub_rows
from disco_converter.cli import main
from disco_converter.partition import Partition, partition
from disco_converter.proof import SliceFile, prove
from disco_converter.stages import stages_of
from disco_converter.tflite_reader import read_tflite
from disco_converter.tflite_writer import write_stage
from disco_planning.sources import load_network
from helpers.tiny_bundle import tiny_model

STEM, DEPTHWISE = 3, 9
"""Multiply-accumulates of a value."""
NEEDED = STEM + DEPTHWISE + STEM
"""Of the ADD behind both."""


def _filter(weights: np.typing.NDArray[np.int8], outputs: int) -> g.Filter:
    return g.Filter(weights, np.ones(outputs, np.float32), True, np.zeros(outputs, np.int32))


def _conv(used: np.typing.NDArray[np.bool_]) -> g.Conv2D:
    """1x1, with weights where `used` [out, in]."""
    weights = used.astype(np.int8)[:, None, None, :]
    return g.Conv2D(g.Window((1, 1), (1, 1)), _filter(weights, len(used)), "NONE")


def _graph(outputs: tuple[str, ...] = ("d",)) -> g.Graph:
    """x (3) -> stem a (8) -> depthwise b -> c = a + b -> d (8), which on node 0 does not read channels 6 and 7."""
    window = g.Window((3, 3), (1, 1), padding=g.Padding(1, 1, 1, 1))
    depthwise = g.DepthwiseConv2D(window, _filter(np.ones((1, 3, 3, 8), np.int8), 8), 1, "NONE")
    read = np.ones((8, 8), np.bool_)
    read[:4, 6:] = False
    tensors = {name: g.Tensor(name, k, (1, 6, 5, 3 if name == "x" else 8), 0.5, 0) for k, name in enumerate("xabcd")}
    ops = (
        g.Op(0, "CONV_2D", ("x",), "a", _conv(np.ones((8, 3), np.bool_))),
        g.Op(1, "DEPTHWISE_CONV_2D", ("a",), "b", depthwise),
        g.Op(2, "ADD", ("a", "b"), "c", g.Add("NONE")),
        g.Op(3, "CONV_2D", ("c",), "d", _conv(read)),
    )
    return g.Graph(tensors, ops, "x", outputs)


def _computed(cut: Partition, node: int) -> dict[str, tuple[int, ...]]:
    return {name: cut.slices[node].buffers[name].computed for name in "abcd"}


def test_what_takes_few_macs_from_the_input_on_is_computed_where_it_is_needed() -> None:
    cut = partition(_graph(), 2, recomputed_macs=NEEDED)
    assert cut.exchanges == ()
    assert _computed(cut, 0) == {**dict.fromkeys("abc", (0, 1, 2, 3, 4, 5)), "d": (0, 1, 2, 3)}
    assert _computed(cut, 1) == {**dict.fromkeys("abc", (4, 5, 6, 7, 0, 1, 2, 3)), "d": (4, 5, 6, 7)}
    assert [executed_macs(cut.graph, op) for op in cut.slices[0].ops] == [30 * 6 * 3, 30 * 6 * 9, 0, 30 * 4 * 6]
    assert sub_rows(cut, cut.graph.ops[3]) == SubRows(total=8, pruned=2, recomputed=6)
    assert cut.output_channels("d", 1) == (4, 5, 6, 7)


def test_what_takes_more_is_sent() -> None:
    for limit in (0, NEEDED - 1):
        cut = partition(_graph(), 2, recomputed_macs=limit)
        assert [(e.tensor, e.routes) for e in cut.exchanges] == [("c", {(0, 1): (0, 1, 2, 3), (1, 0): (4, 5)})]
        assert _computed(cut, 0) == dict.fromkeys("abcd", (0, 1, 2, 3))
        assert sub_rows(cut, cut.graph.ops[3]) == SubRows(total=8, pruned=2)


def test_an_output_of_the_model_is_computed_by_its_owners_alone() -> None:
    cut = partition(_graph(("c", "d")), 2, recomputed_macs=NEEDED)
    assert [exchange.tensor for exchange in cut.exchanges] == ["c"]


def test_a_channel_with_more_weights_than_values_is_sent() -> None:
    """As those of a fully connected layer, which would be in the flash of each node."""
    assert [exchange.tensor for exchange in partition(_dense(2), 2).exchanges] == ["a"]
    assert partition(_dense(3), 2).exchanges == ()


def _dense(pixels: int) -> g.Graph:
    """x (3) -> a (8) -> b (8), all of a for all of b."""
    sizes = {"x": 3, "a": 8, "b": 8}
    tensors = {name: g.Tensor(name, k, (1, 1, pixels, size), 0.5, 0) for k, (name, size) in enumerate(sizes.items())}
    ops = (
        g.Op(0, "CONV_2D", ("x",), "a", _conv(np.ones((8, 3), np.bool_))),
        g.Op(1, "CONV_2D", ("a",), "b", _conv(np.ones((8, 8), np.bool_))),
    )
    return g.Graph(tensors, ops, "x", ("b",))


def test_outputs_of_one_input_channel_are_recomputed_together() -> None:
    """A depthwise convolution with two outputs for each input channel, of which the other node needs one."""
    window = g.Window((1, 1), (1, 1))
    depthwise = g.DepthwiseConv2D(window, _filter(np.ones((1, 1, 1, 8), np.int8), 8), 2, "NONE")
    read = np.zeros((8, 8), np.bool_)
    read[:, [0, 3, 5]] = True
    sizes = {"x": 3, "a": 4, "b": 8, "c": 8}
    tensors = {name: g.Tensor(name, k, (1, 6, 5, size), 0.5, 0) for k, (name, size) in enumerate(sizes.items())}
    ops = (
        g.Op(0, "CONV_2D", ("x",), "a", _conv(np.ones((4, 3), np.bool_))),
        g.Op(1, "DEPTHWISE_CONV_2D", ("a",), "b", depthwise),
        g.Op(2, "CONV_2D", ("b",), "c", _conv(read)),
    )
    cut = partition(g.Graph(tensors, ops, "x", ("c",)), 2)
    assert cut.exchanges == ()
    assert [slice_.buffers["b"].computed for slice_ in cut.slices] == [(0, 1, 2, 3, 4, 5), (4, 5, 6, 7, 0, 1, 2, 3)]
    assert [slice_.buffers["a"].computed for slice_ in cut.slices] == [(0, 1, 2), (2, 3, 0, 1)]


def test_a_convolution_behind_an_exchange_is_not_recomputed() -> None:
    graph = _graph()
    longer = (*graph.ops, g.Op(4, "CONV_2D", ("d",), "e", _conv(np.ones((8, 8), np.bool_))))
    tensors = {**graph.tensors, "e": g.Tensor("e", 5, (1, 6, 5, 8), 0.5, 0)}
    cut = partition(g.Graph(tensors, longer, "x", ("e",)), 2, recomputed_macs=10**6)
    assert [exchange.tensor for exchange in cut.exchanges] == ["d"]


@pytest.mark.parametrize("nodes", [2, 3, 4])
@pytest.mark.parametrize("last", ["ADD", None])
def test_slices_that_recompute_are_exact(nodes: int, last: str | None) -> None:
    """The ADD reads the own channels of the first convolution alone, the second convolution all of them."""
    content = tiny_model(8, (7 if last else 6,), last)
    graph = read_tflite(content)
    cut = partition(graph, nodes)
    assert cut.exchanges == ()
    files = tuple(tuple(SliceFile(s, write_stage(graph, x, s)) for s in stages_of(cut, x)) for x in cut.slices)
    assert [len(of_node) for of_node in files] == [1] * nodes
    inputs = np.random.default_rng(0).integers(-128, 128, (3, 6, 5, 3), np.int8)
    assert prove(cut, content, files, inputs).elements == 3 * 30 * 8 * (nodes + 1 + (last is not None))


def test_the_command_says_what_is_recomputed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(tiny_model())
    command = [str(model), "--nodes", "2", "--target", "posix", "-o"]
    assert main([*command, str(tmp_path / "default")]) == 0
    assert "4 sub-rows are not sent: the node that needs the channel computes it" in capsys.readouterr().out
    assert load_network(str(tmp_path / "default")).sparsities == {"conv_2d_1": 1.0}
    assert main([*command, str(tmp_path / "sent"), "--recompute", "26"]) == 0
    assert "the node that needs the channel computes it" not in capsys.readouterr().out
    assert load_network(str(tmp_path / "sent")).sparsities == {"conv_2d_1": 0.0}
    manifest = json.loads((tmp_path / "default" / "bundle.json").read_text())
    assert [op["channels"] for op in manifest["programs"][1]["ops"]] == [[2, 3, 0, 1], [2, 3]]
    assert main([*command, str(tmp_path / "wrong"), "--recompute", "-1"]) == 2
    assert "--recompute -1: give 0 (never)" in capsys.readouterr().err
