"""The plan of a network and the converter's reading of its exported, quantised file are one."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch (disco-edge[prune])")
pytest.importorskip("tensorflow", reason="needs TensorFlow (disco-edge[convert])")
pytest.importorskip("onnx2tf", reason="needs onnx2tf (disco-edge[convert])")

from torch import nn  # noqa: E402

from disco_converter import graph as g  # noqa: E402
from disco_converter.ownership import propagate  # noqa: E402
from disco_converter.partition import partition  # noqa: E402
from disco_converter.quantise import quantise_onnx  # noqa: E402
from disco_converter.tflite_reader import read_tflite  # noqa: E402
from disco_pruning import export_onnx, plan, prune, pruned_sub_rows  # noqa: E402
from disco_pruning.masks import off_diagonal  # noqa: E402
from disco_pruning.models import resnet50  # noqa: E402
from disco_pruning.models.ds_cnn import DSCNN  # noqa: E402
from disco_pruning.models.mobilenet_v2 import MobileNetV2  # noqa: E402
from disco_pruning.models.resnet8 import ResNet8, with_softmax  # noqa: E402


def narrow_resnet50() -> nn.Module:
    """An eighth as wide, which saves most of the time that converting it takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resnet50, "WIDTHS", tuple(width // 8 for width in resnet50.WIDTHS))
        return resnet50.ResNet50(classes=10)


# The networks of the zoo that the converter takes, MobileNetV2 and ResNet-50 on small images.
NETWORKS = {
    "resnet8": (ResNet8, (3, 32, 32)),
    "ds_cnn": (DSCNN, (1, 49, 10)),
    "mobilenet_v2": (lambda: MobileNetV2(classes=10), (3, 32, 32)),
    "resnet50": (narrow_resnet50, (3, 32, 32)),
}


@pytest.fixture(scope="module", params=NETWORKS)
def converted(request, tmp_path_factory):
    """(network pruned for two nodes, example input, the converter's graph)."""
    build, shape = NETWORKS[request.param]
    torch.manual_seed(0)
    model, example = build(), torch.zeros(1, *shape)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0  # the statistics of one batch: without them activations fade from layer to layer
    model(torch.rand(16, *shape))
    model.eval()
    prune(plan(model, example, 2), 0.7)
    path = tmp_path_factory.mktemp("converted") / "model.onnx"
    network = with_softmax(model)
    export_onnx(network, path, example)
    images = np.random.default_rng(0).random((2, *shape[1:], shape[0]), np.float32)
    return network, example, read_tflite(quantise_onnx(path, images))


def matching_op(graph: g.Graph, layer) -> g.Op:
    """The op with the weights of `layer`, up to the scale of each output (batch norm is folded into it)."""
    weight = layer.weight.detach().numpy()
    if weight.ndim == 4:
        weight = weight.transpose(0, 2, 3, 1)
    expected = weight / np.abs(weight).max(axis=tuple(range(1, weight.ndim)), keepdims=True)

    def agrees(op: g.Op) -> bool:
        if not isinstance(op.params, g.MIXING):
            return False
        found = op.params.filter.weights / 127.0
        return found.size == expected.size and bool(np.abs(found.reshape(expected.shape) - expected).max() < 0.02)

    (op,) = [op for op in graph.ops if agrees(op)]
    return op


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "shares"), [(2, None), (3, None), (2, (0.7, 0.3)), (3, (0.2, 0.5, 0.3))])
def test_both_give_every_channel_to_the_same_node(converted, nodes, shares):
    network, example, graph = converted
    cut, read = plan(network, example, nodes, shares), propagate(graph, nodes, shares)
    assert len(cut.layers) == sum(isinstance(op.params, g.MIXING) for op in graph.ops)
    for layer in cut.layers:
        op = matching_op(graph, layer)
        inputs, outputs = read[op.inputs[0]].owners, read[op.output].owners
        assert layer.in_owners == (None if inputs is None else tuple(inputs.tolist())), layer.name
        assert layer.out_owners == tuple(outputs.tolist()), layer.name


@pytest.mark.slow
def test_what_was_not_pruned_is_exactly_what_is_sent(converted):
    network, example, graph = converted
    cut, read = plan(network, example, 2), partition(graph, 2, recomputed_macs=0)
    sent = {exchange.tensor: exchange.routes for exchange in read.exchanges}
    for group in cut.exchanges:
        (tensor,) = {matching_op(graph, layer).inputs[0] for layer in group}
        kept = torch.stack([off_diagonal(layer) & ~pruned_sub_rows(layer) for layer in group]).any(0)
        expected: dict[tuple[int, int], set[int]] = {}
        for channel, receiver in kept.nonzero().tolist():
            expected.setdefault((group[0].in_owners[channel], receiver), set()).add(channel)
        assert {route: set(channels) for route, channels in sent[tensor].items()} == expected, group[0].name
