"""The ONNX file that a pruned network becomes."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch (disco-edge[prune])")
onnx = pytest.importorskip("onnx", reason="needs onnx (disco-edge[prune])")

from disco_pruning import export_onnx, network_sparsity, plan, prune  # noqa: E402
from disco_pruning.export import plan_text  # noqa: E402
from disco_pruning.models.resnet8 import ResNet8, with_softmax  # noqa: E402
from disco_targets.errors import DiscoError  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path


IMAGES = torch.zeros(8, 3, 32, 32)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[ResNet8, Path]:
    torch.manual_seed(5)
    network = ResNet8()
    network(torch.rand(8, 3, 32, 32))  # batch statistics other than 0 and 1
    cut = plan(network, IMAGES, 2)
    prune(cut, 0.9)
    path = tmp_path_factory.mktemp("export") / "pruned.onnx"
    export_onnx(with_softmax(network), str(path), IMAGES, cut)
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


def test_the_file_carries_the_plan(exported):
    (entry,) = onnx.load(str(exported[1])).metadata_props
    assert entry.key == "disco.plan"
    assert json.loads(entry.value) == {**plan(exported[0], IMAGES, 2).metadata(), "input_range": None}


def test_the_range_of_real_inputs_stands_beside_the_plan(exported):
    cut = plan(exported[0], IMAGES, 2)
    images = torch.tensor([-1.5, 0.25, 2.0])[:, None, None, None].expand(3, 3, 32, 32)
    assert json.loads(plan_text(cut, images)) == {**cut.metadata(), "input_range": [-1.5, 2.0]}
    assert json.loads(plan_text(cut, (3, 32, 32)))["input_range"] is None


def test_an_example_that_is_no_tensor_is_refused(tmp_path):
    with pytest.raises(DiscoError, match=r"a ndarray, it must be a torch\.Tensor"):
        export_onnx(torch.nn.Linear(3, 2), tmp_path / "model.onnx", np.zeros((1, 3)))


def test_a_shape_serves_as_an_example_and_a_plan_is_optional(tmp_path):
    export_onnx(torch.nn.Linear(3, 2), tmp_path / "model.onnx", (3,))
    model = onnx.load(str(tmp_path / "model.onnx"))
    assert [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim] == [1, 3]
    assert not model.metadata_props


def test_a_file_that_cannot_be_written_is_told(tmp_path):
    with pytest.raises(DiscoError, match="cannot be written"):
        export_onnx(torch.nn.Linear(3, 2), tmp_path / "none" / "model.onnx", (3,))


def test_pruned_sub_rows_are_exact_zeros_in_the_file(exported):
    """For each layer, as many zero sub-rows as its S_comm asks for, by weights of equal shape."""
    graph = onnx.load(str(exported[1])).graph
    tensors = [onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer]
    for layer in plan(exported[0], IMAGES, 2).prunable:
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
    cut = plan(copy.deepcopy(exported[0]), IMAGES, 2)
    assert network_sparsity(cut) == pytest.approx(0.9, abs=0.01)
    prune(cut, 1.0)
    assert network_sparsity(cut) == 1.0


def test_the_converter_finds_the_shares_in_the_file(tmp_path):
    from disco_converter.node_shares import planned_shares

    network = ResNet8()
    for shares in (None, (0.7, 0.3)):
        export_onnx(network, tmp_path / "shares.onnx", IMAGES, plan(network, IMAGES, 2, shares))
        model = onnx.load(str(tmp_path / "shares.onnx"))
        assert planned_shares(model, "shares.onnx", 2) == shares
        assert planned_shares(model, "shares.onnx", 1) is None  # the whole model on one board, to compare with
        with pytest.raises(DiscoError, match=r"pruned for 2 nodes, not 3.*--shares 1,1,1"):
            planned_shares(model, "shares.onnx", 3)
    model.metadata_props[0].value = "{}"
    with pytest.raises(DiscoError, match="cannot be read"):
        planned_shares(model, "shares.onnx", 2)
    del model.metadata_props[:]
    assert planned_shares(model, "shares.onnx", 3) is None
