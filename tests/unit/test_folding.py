"""What converters from ONNX write around concatenations and depthwise convolutions is read as what it means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from disco_converter import graph as g
from disco_converter.export import ExportConfig, export
from disco_converter.tflite_reader import read_tflite
from disco_planning.tflite_table import read_tflite as read_layers
from disco_targets.errors import DiscoError
from helpers.tflite_models import Op, Tensor, build

NHWC, NCHW = (1, 6, 5, 4), (1, 4, 6, 5)
TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


class Network:
    """Tensors and ops one by one; all activations share a scale."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._random = np.random.default_rng(3)
        self.tensors = [self._activation(shape)]
        self.ops: list[Op] = []

    def _activation(self, shape: tuple[int, ...]) -> Tensor:
        return Tensor(shape, (0.05,), (-3,))

    def _add(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def op(self, kind: str, inputs: tuple[int, ...], shape: tuple[int, ...], options: str = "", **values: int) -> int:
        output = self._add(self._activation(shape))
        self.ops.append(Op(kind, inputs, (output,), options, values, version=1 if kind == "RELU" else 3))
        return output

    def conv(self, source: int, shape: tuple[int, ...], read: int, stride: tuple[int, int] = (1, 1)) -> int:
        data = self._random.integers(-127, 128, (shape[3], 3, 3, read), np.int8)
        bias = self._random.integers(-200, 200, shape[3], np.int32)
        scales, zeros = tuple(0.002 + 0.001 * c for c in range(shape[3])), (0,) * shape[3]
        constants = (
            self._add(Tensor(data.shape, scales, zeros, 0, data)),
            self._add(Tensor(bias.shape, tuple(0.05 * s for s in scales), zeros, 0, bias)),
        )
        values = {"StrideH": stride[0], "StrideW": stride[1], "DilationHFactor": 1, "DilationWFactor": 1}
        return self.op("CONV_2D", (source, *constants), shape, "Conv2DOptions", **values)

    def transpose(self, source: int, axes: tuple[int, ...]) -> int:
        permutation = self._add(Tensor((len(axes),), data=np.array(axes, np.int32)))
        shape = self.tensors[source].shape
        return self.op("TRANSPOSE", (source, permutation), tuple(shape[axis] for axis in axes))

    def concatenation(self, *inputs: int, axis: int = 1) -> int:
        shape = list(self.tensors[inputs[0]].shape)
        shape[axis] = sum(self.tensors[i].shape[axis] for i in inputs)
        return self.op("CONCATENATION", inputs, tuple(shape), "ConcatenationOptions", Axis=axis)

    def file(self, *outputs: int) -> bytes:
        return build(self.tensors, self.ops, outputs)


def residual() -> tuple[Network, int, int]:
    """x and conv(x) + x, both transposed to NCHW."""
    network = Network((1, 6, 5, 3))
    x = network.conv(0, NHWC, 3)
    y = network.op("ADD", (network.conv(x, NHWC, 4), x), NHWC, "AddOptions")
    return network, network.transpose(x, TO_NCHW), network.transpose(y, TO_NCHW)


def exported(content: bytes, folder: Path, nodes: int = 2) -> None:
    """The export proves every tensor bit-exact."""
    (folder / "m.tflite").write_bytes(content)
    export(ExportConfig(folder / "m.tflite", nodes, ("posix",), folder / "bundle"))


def test_channels_that_are_joined_between_transposes_are_joined_channels_last(tmp_path: Path) -> None:
    """One concatenation reads the other, and both are turned back."""
    network, x, y = residual()
    both = network.concatenation(x, y)
    z = network.conv(network.transpose(both, TO_NHWC), NHWC, 8)
    three = network.concatenation(both, network.transpose(z, TO_NCHW))
    content = network.file(network.conv(network.transpose(three, TO_NHWC), NHWC, 12))
    ops = read_tflite(content).ops
    assert [op.kind for op in ops] == ["CONV_2D", "CONV_2D", "ADD", *["CONCATENATION", "CONV_2D"] * 2]
    assert ops[5].inputs == (ops[3].output, ops[4].output)
    exported(content, tmp_path)


def test_channels_that_are_joined_for_others_too_are_refused_by_their_reader() -> None:
    network, x, y = residual()
    both = network.concatenation(x, y)
    relu = network.op("RELU", (both,), network.tensors[both].shape)
    back = network.transpose(both, TO_NHWC)
    with pytest.raises(
        DiscoError, match=r"joins channels in NCHW order for relu_\d, as the converter from ONNX wrote it"
    ):
        read_tflite(network.file(network.transpose(relu, TO_NHWC)))
    with pytest.raises(DiscoError, match="in NCHW order for relu_6, the model's output"):
        read_tflite(network.file(both, back))


@pytest.mark.parametrize("axis", [1, 2])
def test_rows_and_columns_are_not_joined(axis: int) -> None:
    network = Network(NHWC)
    with pytest.raises(DiscoError, match=f"joins along axis {axis}: only the channels"):
        read_tflite(network.file(network.concatenation(0, network.conv(0, NHWC, 4), axis=axis)))


@pytest.mark.parametrize("stride", [(2, 1), (1, 2), (1, 1)])
@pytest.mark.parametrize("multiplier", [1, 2])
def test_a_group_for_each_channel_is_a_depthwise_convolution(
    tmp_path: Path, stride: tuple[int, int], multiplier: int
) -> None:
    """As converters write one with two strides."""
    network = Network((1, 6, 5, 3))
    x = network.conv(0, NHWC, 3)
    shape = (1, -(-6 // stride[0]), -(-5 // stride[1]), 4 * multiplier)
    y = network.conv(x, shape, 1, stride)
    content = network.file(network.conv(y, (*shape[:3], 4), shape[3]))
    graph = read_tflite(content)
    assert isinstance(graph.ops[1].params, g.DepthwiseConv2D)
    assert [op.name for op in graph.ops] == [layer.name for layer in read_layers(content, "m.tflite")]
    exported(content, tmp_path)


def test_other_groups_are_refused() -> None:
    network = Network(NHWC)
    with pytest.raises(DiscoError, match=r"is grouped \(4 input channels, weights for 2\)"):
        read_tflite(network.file(network.conv(0, NHWC, 2)))
