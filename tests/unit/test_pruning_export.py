"""The ONNX file that a pruned network becomes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch (disco-edge[prune])")
onnx = pytest.importorskip("onnx", reason="needs onnx (disco-edge[prune])")

from disco_pruning import export_onnx, plan_pruning, prune  # noqa: E402
from disco_pruning.models.resnet8 import ResNet8, with_softmax  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[ResNet8, Path]:
    torch.manual_seed(5)
    network = ResNet8()
    network(torch.rand(8, 3, 32, 32))  # batch statistics other than 0 and 1
    prune(plan_pruning(network, 2), 0.9)
    path = tmp_path_factory.mktemp("export") / "pruned.onnx"
    export_onnx(with_softmax(network), str(path), (3, 32, 32))
    return network, path


def test_names_shapes_and_size(exported):
    graph = onnx.load(str(exported[1])).graph
    shape = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    assert shape == {"input": [1, 3, 32, 32], "output": [1, 10]}
    assert graph.node[-1].op_type == "Softmax"
    assert exported[1].stat().st_size < 1_000_000


def test_the_file_says_nothing_of_the_machine_that_wrote_it(exported):
    content = exported[1].read_bytes()
    for note in (b".py", b"stack_trace", b"/home", b"/root", b"site-packages"):
        assert note not in content


def test_pruned_sub_rows_are_exact_zeros_in_the_file(exported):
    """For each layer, as many zero sub-rows as its S_comm asks for, by weights of equal shape."""
    graph = onnx.load(str(exported[1])).graph
    tensors = [onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer]
    for layer in plan_pruning(exported[0], 2).prunable:
        weight = layer.module.weight.detach().numpy()
        zero = weight == 0
        assert zero.any()
        matches = [t for t in tensors if t.shape == weight.shape and (t == 0).any()]
        assert any(np.array_equal(t == 0, zero) for t in matches), layer.name


def test_the_file_computes_what_the_network_computes(exported):
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    network, path = exported
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    torch.manual_seed(6)
    images = torch.rand(3, 3, 32, 32)
    with torch.no_grad():
        expected = torch.softmax(network.eval()(images), 1).numpy()
    for image, answer in zip(images.numpy(), expected, strict=True):
        (found,) = session.run(None, {"input": image[None]})
        assert np.abs(found[0] - answer).max() < 1e-5


def test_the_exported_network_can_go_on_training(exported):
    plan = plan_pruning(copy.deepcopy(exported[0]), 2)
    assert plan.sparsity() == pytest.approx(0.9, abs=0.01)
    prune(plan, 1.0)
    assert plan.sparsity() == 1.0
