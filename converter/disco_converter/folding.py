"""Removes what only moves data: PAD in front of a convolution, TRANSPOSE to NCHW in front of a RESHAPE or MEAN.

Both are exact. A PAD pads with the zero point of its input, and a convolution sees that as 0. A converter that comes
from NCHW puts TRANSPOSE(0,3,1,2) in front of a flatten; the flattened tensor is kept in NHWC order on the nodes
instead, and its channels are numbered as in the model.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from disco_converter import graph as g
from disco_targets.errors import DiscoError


def fold(graph: g.Graph) -> g.Graph:
    """Folds PAD and TRANSPOSE away.

    Raises:
        DiscoError: A TRANSPOSE that is not followed by a flatten or a spatial mean.
    """
    return _prune(_fold_transposes(_fold_flattened_means(_fold_pads(graph))))


def _fold_pads(graph: g.Graph) -> g.Graph:
    pads = {op.output: op for op in graph.ops if isinstance(op.params, g.Pad)}
    ops = []
    for op in graph.ops:
        pad = pads.get(op.inputs[0]) if op.inputs else None
        if pad is not None and isinstance(op.params, (g.Conv2D, g.DepthwiseConv2D)) and _pads_zero_point(graph, pad):
            ops.append(_absorb(op, pad))
        else:
            ops.append(op)
    return dataclasses.replace(graph, ops=tuple(ops))


def _pads_zero_point(graph: g.Graph, pad: g.Op) -> bool:
    source, padded = graph.tensors[pad.inputs[0]], graph.tensors[pad.output]
    assert isinstance(pad.params, g.Pad)
    same = (source.scale, source.zero_point) == (padded.scale, padded.zero_point)
    return same and pad.params.value == source.zero_point


def _absorb(op: g.Op, pad: g.Op) -> g.Op:
    assert isinstance(op.params, (g.Conv2D, g.DepthwiseConv2D))
    assert isinstance(pad.params, g.Pad)
    window = op.params.window
    window = dataclasses.replace(window, padding=window.padding + pad.params.padding)
    params = dataclasses.replace(op.params, window=window)
    return dataclasses.replace(op, inputs=pad.inputs, params=params)


def _fold_flattened_means(graph: g.Graph) -> g.Graph:
    """A mean to [1, c, 1, 1] that is only flattened becomes one to [1, c], with its channels on the last axis."""
    means = {
        op.output: op
        for op in graph.ops
        if isinstance(op.params, g.MeanNchw)
        and op.output not in graph.outputs
        and all(_flattens(graph, reader) for reader in graph.consumers[op.output])
    }
    ops = []
    for op in graph.ops:
        mean = means.get(op.inputs[0]) if op.inputs else None
        if mean is not None:
            ops.append(dataclasses.replace(mean, index=op.index, output=op.output))
        elif op.output not in means:
            ops.append(op)
    return dataclasses.replace(graph, ops=tuple(ops))


def _flattens(graph: g.Graph, op: g.Op) -> bool:
    return isinstance(op.params, g.Reshape) and len(graph.tensors[op.output].shape) == 2


def _fold_transposes(graph: g.Graph) -> g.Graph:
    transposes = {op.output: op for op in graph.ops if isinstance(op.params, g.Transpose)}
    ops = [_without_transpose(graph, op, transposes) for op in graph.ops]
    return dataclasses.replace(graph, ops=tuple(ops))


def _without_transpose(graph: g.Graph, op: g.Op, transposes: dict[str, g.Op]) -> g.Op:
    transpose = transposes.get(op.inputs[0]) if op.inputs else None
    if transpose is None:
        if isinstance(op.params, g.MeanNchw):
            raise DiscoError(f"{op.name} is taken over width and channels: only height and width are supported")
        return op
    shape = graph.tensors[transpose.inputs[0]].shape
    output = graph.tensors[op.output].shape
    if _permutation(transpose) == (0, 3, 1, 2):
        if isinstance(op.params, g.MeanNchw):
            if len(output) != 2:
                raise DiscoError(
                    f"{op.name} writes its channels as {list(output)}: only a mean that is flattened to [1, c] is "
                    "supported; take the mean over height and width without keeping them"
                )
            return dataclasses.replace(op, inputs=transpose.inputs, params=g.Mean(keep_dims=False))
        if isinstance(op.params, g.Reshape) and len(output) == 2:
            order = np.arange(np.prod(shape)).reshape(shape).transpose(0, 3, 1, 2).reshape(-1)
            return dataclasses.replace(op, inputs=transpose.inputs, params=g.Reshape(order))
    cubic = len(shape) == 4 and len(set(shape[1:])) == 1
    hint = f"; as many channels as rows and columns ({list(shape)}) confuse converters from ONNX, so change one of them"
    raise DiscoError(
        f"{transpose.name} (axes {list(_permutation(transpose))}) is not supported: only TRANSPOSE(0, 3, 1, 2) in "
        f"front of a flatten to [1, n] or a mean over height and width is{hint if cubic else ''}"
    )


def _permutation(op: g.Op) -> tuple[int, ...]:
    assert isinstance(op.params, g.Transpose)
    return op.params.permutation


def _prune(graph: g.Graph) -> g.Graph:
    """Drops ops that nothing reads any more, and tensors that no op touches."""
    needed = set(graph.outputs)
    kept: list[g.Op] = []
    for op in reversed(graph.ops):
        if op.output in needed:
            if isinstance(op.params, g.Transpose):
                raise DiscoError(f"{op.name} writes a model output: TRANSPOSE is not supported there")
            needed.update(op.inputs)
            kept.append(op)
    needed.add(graph.input)
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name in needed}
    return g.Graph(tensors, tuple(reversed(kept)), graph.input, graph.outputs)
