"""Padding of MaxPool made explicit: the same values, and only where zeros are as good as minus infinity."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from disco_converter.max_pools import pad_with_zeros


def _model(before: str, **pool: Any) -> onnx.ModelProto:
    nodes = [
        onnx.helper.make_node(before, ["x"], ["y"]),
        onnx.helper.make_node("MaxPool", ["y"], ["z"], kernel_shape=[3, 3], **pool),
    ]
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2, 7, 6])
    z = onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [1, 2, "h", "w"])
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "g", [x], [z]), opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
    )
    onnx.checker.check_model(model)
    return model


def _run(model: onnx.ModelProto, x: np.ndarray[Any, Any]) -> Any:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("pads", [[1, 1, 1, 1], [0, 1, 1, 0]])
def test_a_padded_pool_after_relu_gets_zeros_and_gives_the_same(pads: list[int]) -> None:
    model = _model("Relu", strides=[2, 2], pads=pads)
    x = np.random.default_rng(0).normal(-1, 1, (1, 2, 7, 6)).astype(np.float32)
    before = _run(model, x)
    pad_with_zeros(model)
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == ["Relu", "Pad", "MaxPool"]
    assert not any(attribute.name == "pads" for attribute in model.graph.node[2].attribute)
    np.testing.assert_array_equal(_run(model, x), before)


@pytest.mark.parametrize(
    ("before", "pool"), [("Tanh", {"pads": [1, 1, 1, 1]}), ("Relu", {}), ("Relu", {"pads": [0] * 4})]
)
def test_other_pools_stay(before: str, pool: dict[str, Any]) -> None:
    model = _model(before, **pool)
    same = model.SerializeToString()
    pad_with_zeros(model)
    assert model.SerializeToString() == same
