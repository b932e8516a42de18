"""Channels that are the same for every input are computed by nobody, and what is left is exact."""

from __future__ import annotations

import dataclasses
from math import prod
from pathlib import Path

import numpy as np
import pytest

from disco_converter import graph as g
from disco_converter.constant_channels import STEP, without_constant_channels
from disco_converter.export import ExportConfig, ExportResult, export
from disco_converter.ownership import propagate
from disco_converter.partition import partition
from disco_converter.proof import SliceFile, prove
from disco_converter.stages import stages_of
from disco_converter.tflite_reader import read_tflite
from disco_converter.tflite_writer import write_stage
from disco_firmware.bundle import load_bundle
from disco_firmware.manifest import NOBODY
from disco_host.golden import Golden
from disco_targets.errors import DiscoError
from helpers.tflite_models import Op, Tensor, build

CHANNELS = 12
_SAME, _VALID, _RELU = 0, 1, 1


class Network:
    """Convolutions whose filters are all zero for some channels."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.tensors = [Tensor((1, 6, 5, 3), (0.02,), (-3,))]
        self.ops: list[Op] = []

    def conv(self, source: int, zero: list[int], size: int = 1, padding: int = _SAME, relu: bool = True) -> int:
        """CONV_2D with zero filters of negative and positive biases, or small ones for the others."""
        before = self.tensors[source].shape
        weights = self.random.integers(-127, 128, (CHANNELS, size, size, before[3])).astype(np.int8)
        weights[zero] = 0
        kind = ("CONV_2D", "Conv2DOptions", {})
        return self._weighted(kind, source, weights, zero, size, padding, relu)

    def depthwise(self, source: int, zero: list[int], padding: int) -> int:
        """DEPTHWISE_CONV_2D 3x3."""
        weights = self.random.integers(-127, 128, (1, 3, 3, CHANNELS)).astype(np.int8)
        weights[..., zero] = 0
        kind = ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", {"DepthMultiplier": 1})
        return self._weighted(kind, source, weights, zero, 3, padding, True)

    def _weighted(
        self,
        kind: tuple[str, str, dict[str, int]],
        source: int,
        weights: np.typing.NDArray[np.int8],
        zero: list[int],
        size: int,
        padding: int,
        relu: bool,
    ) -> int:
        name, options, values = kind
        _, height, width, _ = self.tensors[source].shape
        lost = size - 1 if padding == _VALID else 0
        bias = self.random.integers(-200, 200, CHANNELS).astype(np.int32)
        bias[zero] = self.random.choice([-3000, 1000, 2000], len(zero))
        scales, zeros = (0.005,) * CHANNELS, (0,) * CHANNELS
        self.tensors += [
            Tensor(weights.shape, scales, zeros, 3 if weights.shape[0] == 1 else 0, weights),
            Tensor((CHANNELS,), (0.0005,) * CHANNELS, zeros, 0, bias),
            Tensor((1, height - lost, width - lost, CHANNELS), (0.1,), (-128 if relu else 5,)),
        ]
        place = len(self.tensors) - 1
        window = {"Padding": padding, "StrideW": 1, "StrideH": 1, "DilationWFactor": 1, "DilationHFactor": 1}
        values = {**window, **values, "FusedActivationFunction": _RELU if relu else 0}
        self.ops.append(Op(name, (source, place - 2, place - 1), (place,), options, values))
        return place

    def set_bias(self, output: int, values: list[int]) -> None:
        """Of the op that computes `output`."""
        place = output - 1
        self.tensors[place] = dataclasses.replace(self.tensors[place], data=np.array(values, np.int32))

    def add(self, one: int, two: int) -> int:
        """ADD."""
        self.tensors.append(Tensor(self.tensors[one].shape, (0.2,), (-7,)))
        self.ops.append(Op("ADD", (one, two), (len(self.tensors) - 1,), "AddOptions", version=2))
        return len(self.tensors) - 1

    def file(self, *outputs: int) -> bytes:
        """As .tflite."""
        return build(self.tensors, self.ops, outputs or (len(self.tensors) - 1,))

    def compacted(self, nodes: int = 1) -> g.Graph:
        """As the converter cuts it."""
        content = self.file()
        graph = read_tflite(content, "test")
        return without_constant_channels(graph, content, propagate(graph, nodes))


def _export(folder: Path, content: bytes, nodes: int, *, keep: bool = False) -> ExportResult:
    folder.mkdir()
    (folder / "m.tflite").write_bytes(content)
    return export(ExportConfig(folder / "m.tflite", nodes, ("posix",), folder / "bundle", keep_constants=keep))


def _random_network(seed: int) -> Network:
    network = Network(seed)
    random = network.random

    def some() -> list[int]:
        return sorted(random.choice(CHANNELS, int(random.integers(4, 12)), replace=False).tolist())

    first = network.conv(0, some(), 3)
    depthwise = network.depthwise(first, some(), int(random.choice([_SAME, _VALID])))
    zero = some()
    one = network.conv(depthwise, zero, int(random.choice([1, 3])), relu=bool(random.integers(2)))
    two = network.conv(depthwise, zero if random.random() < 0.7 else some())
    network.conv(network.add(one, two), some(), 3, relu=False)
    return network


@pytest.mark.parametrize("nodes", [1, 2])
def test_random_networks_are_exact(nodes: int) -> None:
    """The proof compares all values of all tensors: those of the nodes, and the constants."""
    dropped = 0
    for seed in range(30):
        network = _random_network(seed)
        graph = network.compacted(nodes)
        cut = partition(graph, nodes)
        files = tuple(tuple(SliceFile(s, write_stage(graph, x, s)) for s in stages_of(cut, x)) for x in cut.slices)
        inputs = network.random.integers(-128, 128, (3, 6, 5, 3)).astype(np.int8)
        proof = prove(cut, network.file(), files, inputs)
        computed = [(graph.tensors[op.output], slice_.buffers[op.output]) for slice_ in cut.slices for op in slice_.ops]
        values = sum(prod(tensor.plane) * len(buffer.computed) for tensor, buffer in computed)
        constants = sum(prod(graph.tensors[name].plane) * len(of) for name, of in graph.constants.items())
        assert proof.elements == 3 * (values + constants)
        assert values + constants >= sum(prod(graph.tensors[op.output].shape) for op in graph.ops)
        dropped += sum(len(constants) for constants in graph.constants.values())
    assert dropped > 150


def test_dense_and_executed_macs_are_counted_apart(tmp_path: Path) -> None:
    network = Network(1)
    network.conv(network.conv(0, list(range(8))), [])
    compact = _export(tmp_path / "a", network.file(), 1).bundle.manifest
    kept = _export(tmp_path / "b", network.file(), 1, keep=True).bundle.manifest
    assert [op.macs_dense for op in compact.ops] == [30 * 3 * 12, 30 * 12 * 12]
    assert [op.macs_executed for op in compact.programs[0].ops] == [30 * 3 * 4, 30 * 4 * 12]
    assert [op.macs_executed for op in kept.programs[0].ops] == [op.macs_dense for op in kept.ops]
    assert not any(tensor.constants for tensor in kept.tensors)
    assert compact.bundle_id != kept.bundle_id


def _values(network: Network, tensor: int) -> dict[int, int]:
    return dict(network.compacted().constants.get(f"tensor{tensor}", {}))


def test_a_padded_window_needs_channels_that_are_not_the_zero_point() -> None:
    """Of the zero filters those with a negative bias, which ReLU clamps to the zero point."""
    for size, padding, all_dropped in ((1, _SAME, True), (3, _VALID, True), (3, _SAME, False)):
        network = Network(2)
        source = network.conv(0, list(range(8)))
        network.set_bias(source, [-3000] * 4 + [2000] * 8)
        network.conv(source, [], size, padding)
        values = _values(network, source)
        assert all_dropped == any(value != -128 for value in values.values())
        assert len(values) == (8 if all_dropped else 4)


def test_a_depthwise_convolution_goes_with_its_channels_unless_the_border_shows() -> None:
    for padding, together in ((_VALID, True), (_SAME, False)):
        network = Network(3)
        source = network.conv(0, list(range(8)))
        network.set_bias(source, [2000] * CHANNELS)
        depthwise = network.depthwise(source, [], padding)
        network.conv(depthwise, [])
        assert set(_values(network, source)) == set(_values(network, depthwise))
        assert (len(_values(network, source)) == 8) == together


def test_what_an_output_or_a_sum_needs_is_kept() -> None:
    network = Network(4)
    one, two = network.conv(0, list(range(8))), network.conv(0, [])
    network.conv(network.add(one, two), list(range(8)))  # the model's output
    assert not network.compacted().constants


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_every_node_keeps_whole_steps(nodes: int) -> None:
    network = Network(5)
    source = network.conv(0, list(range(11)))
    network.conv(source, [])
    graph = network.compacted(nodes)
    owners = propagate(graph, nodes)[f"tensor{source}"].owners
    assert owners is not None
    assert [int((owners == node).sum()) for node in range(nodes)] == [STEP] * nodes
    assert int((owners == NOBODY).sum()) == CHANNELS - STEP * nodes


def test_a_wrong_constant_is_seen_on_the_host_and_by_the_proof(tmp_path: Path) -> None:
    network = Network(6)
    network.conv(network.conv(0, list(range(8))), [])
    result = _export(tmp_path / "x", network.file(), 1)
    bundle = load_bundle(result.bundle.path)
    sample = np.zeros((1, 6, 5, 3), np.int8)
    Golden(bundle, keep_tensors=True).run(sample)
    tensors = tuple(
        dataclasses.replace(tensor, constants=tuple(value ^ 1 for value in tensor.constants))
        for tensor in bundle.manifest.tensors
    )
    wrong = dataclasses.replace(bundle, manifest=dataclasses.replace(bundle.manifest, tensors=tensors))
    with pytest.raises(DiscoError, match="not the constants"):
        Golden(wrong, keep_tensors=True).run(sample)


def test_the_proof_compares_constants() -> None:
    network = Network(7)
    network.conv(network.conv(0, list(range(8))), [])
    graph = network.compacted()
    (name,) = graph.constants
    spoiled = {name: {channel: value ^ 1 for channel, value in graph.constants[name].items()}}
    cut = partition(dataclasses.replace(graph, constants=spoiled), 1)
    with pytest.raises(DiscoError, match="is not constant"):
        prove(cut, network.file(), ((),), np.zeros((1, 6, 5, 3), np.int8))
