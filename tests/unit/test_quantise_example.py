"""The checked-in example: zero sub-rows of the int8 model are those that the pruner made."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from disco_converter.cli import main

if TYPE_CHECKING:
    from pathlib import Path

onnx = pytest.importorskip("onnx", reason="needs onnx (disco-edge[convert])")

NODES = 2
MODELS = {"dense": 0.0, "disco50": 0.5, "disco90": 0.9, "disco99": 0.99, "disco100": 1.0}


@pytest.fixture(scope="module")
def example(repository: Path) -> Path:
    return repository / "examples" / "resnet8_digits"


def mixing_weights(path: Path) -> list[np.ndarray]:
    """The weights [out, in, ...] of all layers behind the stem."""
    graph = onnx.load(str(path)).graph
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    weights = []
    for node in graph.node:
        if node.op_type in ("Conv", "Gemm"):
            weights.append(tensors[node.input[1]])
            assert node.op_type == "Conv" or any(a.name == "transB" and a.i for a in node.attribute)
    assert weights[0].shape == (16, 3, 3, 3)
    return weights[1:]


def zero_sub_rows(weight: np.ndarray) -> set[tuple[int, int]]:
    """(input channel, node) off the diagonal with no weight but zeros; [out, in, ...]."""
    outputs, inputs = weight.shape[0] // NODES, weight.shape[1] // NODES
    return {
        (i, k)
        for i in range(weight.shape[1])
        for k in range(NODES)
        if i // inputs != k and not weight[k * outputs : (k + 1) * outputs, i].any()
    }


@pytest.mark.parametrize(("name", "sparsity"), MODELS.items())
def test_each_model_has_the_sparsity_of_its_name(example, name, sparsity):
    path = example / "models" / f"resnet8_{name}.onnx"
    assert path.stat().st_size < 1_000_000
    weights = mixing_weights(path)
    assert len(weights) == 9
    pruned = sum(len(zero_sub_rows(weight)) for weight in weights)
    total = sum(weight.shape[1] for weight in weights)
    assert pruned / total == pytest.approx(sparsity, abs=0.006)
    with (example / "accuracy.csv").open() as file:
        row = next(row for row in csv.DictReader(file) if row["model"] == name)
    assert float(row["communication_sparsity"]) == pytest.approx(pruned / total, abs=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_each_model_carries_its_plan_and_the_range_of_its_images(example, name):
    torch = pytest.importorskip("torch", reason="needs PyTorch (disco-edge[prune])")
    from disco_pruning import plan
    from disco_pruning.models.resnet8 import ResNet8

    (entry,) = onnx.load(str(example / "models" / f"resnet8_{name}.onnx")).metadata_props
    calibration = np.load(example / "calibration.npy")
    expected = plan(ResNet8(), torch.zeros(1, 3, 32, 32), NODES).metadata()
    limits = [float(calibration.min()), float(calibration.max())]
    assert entry.key == "disco.plan"
    assert json.loads(entry.value) == {**expected, "input_range": limits}


def test_it_is_refused_for_another_number_of_boards(example, tmp_path, capsys):
    arguments = [str(example / "models" / "resnet8_disco90.onnx"), "--nodes", "3", "--target", "posix"]
    arguments += ["--calibration", str(example / "calibration.npy"), "-o", str(tmp_path / "bundle")]
    assert main(arguments) == 1
    assert "resnet8_disco90.onnx was pruned for 2 nodes, not 3" in capsys.readouterr().err


@pytest.mark.slow
def test_every_pruned_sub_row_is_zero_in_int8(example):
    pytest.importorskip("onnx2tf", reason="needs TensorFlow and onnx2tf (disco-edge[convert])")
    runtime = pytest.importorskip("tflite_runtime.interpreter", reason="needs tflite-runtime")
    from disco_converter.quantise import quantise_onnx

    path = example / "models" / "resnet8_disco90.onnx"
    calibration = np.load(example / "calibration.npy")[:8]
    loaded = runtime.Interpreter(model_content=quantise_onnx(path, calibration))
    found = int8_weights(loaded)
    floats = mixing_weights(path)
    assert sorted(w.shape for w in found) == sorted(w.shape for w in floats)
    for weight in floats:
        # Layers of equal shape are told apart by the signs of their weights.
        twins = [candidate for candidate in found if candidate.shape == weight.shape]
        alike = [(np.sign(candidate) == np.sign(weight)).mean() for candidate in twins]
        twin = twins[int(np.argmax(alike))]
        pruned = zero_sub_rows(weight)
        assert pruned
        assert zero_sub_rows(twin) >= pruned
        assert len(zero_sub_rows(twin)) < weight.shape[1]


def int8_weights(loaded: Any) -> list[np.ndarray]:
    """The int8 weights of CONV_2D and FULLY_CONNECTED behind the stem, as [out, in, ...]."""
    found = []
    for operator in loaded._get_ops_details():
        if operator["op_name"] in ("CONV_2D", "FULLY_CONNECTED"):
            weight = loaded.get_tensor(operator["inputs"][1])
            found.append(np.moveaxis(weight, -1, 1) if weight.ndim == 4 else weight)
    return [weight for weight in found if weight.shape[1] != 3]
