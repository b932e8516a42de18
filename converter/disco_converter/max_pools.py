"""Padding of MAX_POOL in an ONNX model, made explicit where zeros do."""

from __future__ import annotations

from typing import Any

_FLOORS = ("Relu", "Sigmoid", "HardSigmoid", "Softmax", "Softplus", "Abs", "Exp")
"""Operators whose values are never below 0."""


def pad_with_zeros(model: Any) -> None:
    """Puts a PAD of zeros in front of every padded MaxPool that reads values of at least 0, in place.

    ONNX pads with minus infinity. onnx2tf makes a PAD with the lowest float of it, which would become the range of the
    int8 tensor; after a ReLU, zeros give the same maximum.
    """
    import onnx

    graph = model.graph
    producers = {output: node for node in graph.node for output in node.output}
    nodes: list[Any] = []
    for node in graph.node:
        pads = _pads(node)
        producer = producers.get(node.input[0]) if node.input else None
        if node.op_type == "MaxPool" and any(pads) and producer is not None and producer.op_type in _FLOORS:
            name = f"{node.name or node.output[0]}_padding"
            rank = len(pads) // 2
            full = [0, 0, *pads[:rank], 0, 0, *pads[rank:]]
            graph.initializer.append(onnx.helper.make_tensor(f"{name}_pads", onnx.TensorProto.INT64, [len(full)], full))
            graph.initializer.append(onnx.helper.make_tensor(f"{name}_value", onnx.TensorProto.FLOAT, [], [0.0]))
            inputs = [node.input[0], f"{name}_pads", f"{name}_value"]
            nodes.append(onnx.helper.make_node("Pad", inputs, [f"{name}_output"], name=name, mode="constant"))
            node.input[0] = f"{name}_output"
            kept = [attribute for attribute in node.attribute if attribute.name != "pads"]
            del node.attribute[:]
            node.attribute.extend(kept)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _pads(node: Any) -> list[int]:
    """Of a node that states them: begins, then ends; empty where they are not plain numbers of 2-D pixels."""
    return next((list(attribute.ints) for attribute in node.attribute if attribute.name == "pads"), [])
