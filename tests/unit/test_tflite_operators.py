"""What converters from ONNX write is read as what it means, or refused by its cause."""

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

SHAPE = (1, 6, 5, 4)


class Network:
    """Tensors and ops one by one; all activations share a scale."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._random = np.random.default_rng(3)
        self.tensors = [Tensor(shape, (0.05,), (-3,))]
        self.ops: list[Op] = []

    def add(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def op(self, kind: str, inputs: tuple[int, ...], shape: tuple[int, ...], options: str = "", **values: int) -> int:
        output = self.add(Tensor(shape, (0.05,), (-3,)))
        self.ops.append(Op(kind, inputs, (output,), options, values))
        return output

    def conv(self, source: int, shape: tuple[int, ...], read: int, stride: tuple[int, int] = (1, 1)) -> int:
        """3x3, of which each output reads `read` channels."""
        data = self._random.integers(-127, 128, (shape[3], 3, 3, read), np.int8)
        bias = self._random.integers(-200, 200, shape[3], np.int32)
        scales, zeros = tuple(0.002 + 0.001 * c for c in range(shape[3])), (0,) * shape[3]
        constants = (
            self.add(Tensor(data.shape, scales, zeros, 0, data)),
            self.add(Tensor(bias.shape, tuple(0.05 * s for s in scales), zeros, 0, bias)),
        )
        values = {"StrideH": stride[0], "StrideW": stride[1], "DilationHFactor": 1, "DilationWFactor": 1}
        return self.op("CONV_2D", (source, *constants), shape, "Conv2DOptions", **values)

    def file(self, output: int) -> bytes:
        return build(self.tensors, self.ops, [output])


@pytest.mark.parametrize("stride", [(2, 1), (1, 2), (1, 1)])
@pytest.mark.parametrize("multiplier", [1, 2])
def test_a_group_for_each_channel_is_a_depthwise_convolution(
    tmp_path: Path, stride: tuple[int, int], multiplier: int
) -> None:
    """As converters write one with two strides; the export proves it bit-exact."""
    network = Network((1, 6, 5, 3))
    x = network.conv(0, SHAPE, 3)
    shape = (1, -(-6 // stride[0]), -(-5 // stride[1]), 4 * multiplier)
    y = network.conv(x, shape, 1, stride)
    content = network.file(network.conv(y, (*shape[:3], 4), shape[3]))
    ops = read_tflite(content).ops
    assert isinstance(ops[1].params, g.DepthwiseConv2D)
    assert [op.name for op in ops] == [layer.name for layer in read_layers(content, "m.tflite")]
    (tmp_path / "m.tflite").write_bytes(content)
    export(ExportConfig(tmp_path / "m.tflite", 2, ("posix",), tmp_path / "bundle"))


def test_other_groups_are_refused() -> None:
    network = Network(SHAPE)
    with pytest.raises(DiscoError, match=r"is grouped \(4 input channels, weights for 2\)"):
        read_tflite(network.file(network.conv(0, SHAPE, 2)))


def test_a_transpose_is_refused_by_its_cause() -> None:
    """Where all sizes are equal a converter may have guessed wrong."""
    for shape, words in (
        ((1, 4, 4, 4), r"as many channels as rows and columns"),
        (SHAPE, "a mean over height and width is$"),
    ):
        network = Network(shape)
        axes = network.add(Tensor((4,), data=np.array([0, 2, 3, 1], np.int32)))
        turned = network.op("TRANSPOSE", (0, axes), tuple(shape[axis] for axis in (0, 2, 3, 1)))
        content = network.file(network.conv(turned, (*network.tensors[turned].shape[:3], 2), shape[1]))
        with pytest.raises(DiscoError, match=words):
            read_tflite(content)


def test_a_transpose_that_changes_the_scale_is_refused() -> None:
    axes = Tensor((4,), data=np.array([0, 3, 1, 2], np.int32))
    tensors = [Tensor(SHAPE, (0.1,), (0,)), axes, Tensor((1, 4, 6, 5), (0.2,), (0,))]
    with pytest.raises(DiscoError, match="changes the scale"):
        read_tflite(build(tensors, [Op("TRANSPOSE", (0, 1), (2,))], [2]))
