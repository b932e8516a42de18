"""How ownership passes through each operator (ATen names, as `torch.export` writes them)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from disco_pruning.labels import REPLICATED, along, compact, constant_along, filled, is_replicated, joined, rows
from disco_pruning.propagation import (
    Join,
    Propagation,
    Reduction,
    operator_name,
    replicated_like,
    shape_of,
    tensor_argument,
)
from disco_pruning.tracing import Trace, module_text
from disco_targets.errors import DiscoError

Rule = Callable[[Propagation, fx.Node], Any]


def propagate(model: nn.Module, trace: Trace, nodes: int) -> Propagation:
    """Carry labels through every operator of `trace`.

    Raises:
        DiscoError: An operator has no rule (the module that uses it is named).
    """
    state = Propagation(model, trace, nodes)
    for node in trace.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            state.labels_of[node] = replicated_like(node)
        elif node.op == "call_function":
            labels = state.labels_of[node] = _after(state, node)
            if node in trace.applying and _on_all_nodes(labels):
                state.whole.append(_whole(node))
    return state


def _on_all_nodes(labels: Any) -> bool:
    parts = labels if isinstance(labels, list | tuple) else [labels]
    return all(is_replicated(part) for part in parts if isinstance(part, Tensor))


def _whole(node: fx.Node) -> str:
    hint = HINTS.get(operator_name(node))
    text = f"{module_text(node)} is computed whole on every node, and a layer that reads it is never pruned"
    return f"{text}: {hint}" if hint else text


def _after(state: Propagation, node: fx.Node) -> Any:
    name = operator_name(node)
    if node.meta.get("val") is None:
        return None  # an assertion
    if name in MIXING_RULES:
        return MIXING_RULES[name](state, node)
    if name == "getitem":
        return operator.getitem(*state.arguments(node)[0])
    if all(is_replicated(labels) for labels in state.operands(node)):
        return replicated_like(node)  # whatever it is: every node computes it
    if name in RULES:
        return RULES[name](state, node)
    raise DiscoError(
        f"{module_text(node)} uses the operator {name}, which has no ownership rule: "
        + HINTS.get(name, "write it with convolutions, linear layers and operators that work channel by channel")
    )


def convolution(state: Propagation, node: fx.Node) -> Tensor:
    """Depthwise: as its input. Otherwise mixing, within its groups if it has some."""
    name, module, parameter = state.weight_of(node)
    weight = getattr(module, parameter)
    source = state.labels(tensor_argument(node, 0))
    groups = source.shape[1] // weight.shape[1]
    if weight.shape[1] == 1 and groups > 1:
        state.local.append(name.removesuffix(".weight"))
        if is_replicated(source):
            return filled(shape_of(node))
        outputs = state.channels(node, 0, 1).repeat_interleave(weight.shape[0] // groups)
        return along(outputs, 1, shape_of(node))
    return state.mixing(node, state.channels(node, 0, 1), groups, 1)


def linear(state: Propagation, node: fx.Node) -> Tensor:
    """Mixing along the last axis; local where that axis is not the one that is shared out (MLP-Mixer's tokens)."""
    labels = state.labels(tensor_argument(node, 0))
    if compact(labels).numel() > 1 and constant_along(labels, [-1]):
        state.local.append(state.weight_of(node)[0].removesuffix(".weight"))
        return labels.narrow(-1, 0, 1).expand(shape_of(node))
    return state.mixing(node, state.channels(node, 0, -1), 1, -1)


def elementwise(state: Propagation, node: fx.Node) -> Tensor:
    """As the first operand that is shared out; others that differ are moved."""
    shape = shape_of(node)
    operands = [state.labels(source) for source in node.all_input_nodes]
    kept, *others = [labels.expand(shape) for labels in operands if not is_replicated(labels)]
    for other in others:
        if not torch.equal(compact(kept), compact(other)):
            state.joins.append(Join(f"{module_text(node)} ({node.name})", kept, other))
            if bool((compact(kept) == REPLICATED).any()):
                kept = torch.where(kept == REPLICATED, other, kept)
    return kept


def channelwise(state: Propagation, node: fx.Node) -> Any:
    """Pooling, resizing, batch norm: every channel on its own, whatever happens to its pixels."""
    vector = state.channels(node, 0, 1)
    value = node.meta["val"]
    if isinstance(value, list | tuple):
        return [along(vector, 1, part.shape) for part in value]
    return along(vector, 1, value.shape)


def moved(state: Propagation, node: fx.Node) -> Any:
    """Reshaping, transposing, cutting: done to the labels as to the tensor."""
    arguments, keywords = state.arguments(node)
    # Labels are expanded, of which there is no view where the tensor itself has one.
    copying = {"view": torch.reshape, "_unsafe_view": torch.reshape, "view_as": Tensor.reshape_as}
    target: Any = copying.get(operator_name(node), node.target)
    return target(*arguments, **keywords)


def padded(state: Propagation, node: fx.Node) -> Tensor:
    """Around the pixels: as the input. Channels of zeros: every node has them."""
    pads = node.args[1]
    assert isinstance(pads, list | tuple)
    source = state.labels(tensor_argument(node, 0))
    if len(pads) // 2 <= source.dim() - 2:
        return channelwise(state, node)  # type: ignore[no-any-return]
    return torch.nn.functional.pad(source, [int(pad) for pad in pads], value=REPLICATED)  # type: ignore[arg-type]


def concatenated(state: Propagation, node: fx.Node) -> Tensor:
    """One after the other. Replicated parts are shared out as well along channels, or owned like their neighbours."""
    sources = node.args[0]
    assert isinstance(sources, list | tuple)
    parts = [state.labels(source) for source in sources if isinstance(source, fx.Node)]
    axis = int(node.args[1]) if len(node.args) > 1 else 0  # type: ignore[arg-type]
    owned = next(part for part in parts if not is_replicated(part))
    by_channel = not constant_along(owned, [axis])

    def filled_in(part: Tensor) -> Tensor:
        if not is_replicated(part):
            return part
        if by_channel:
            return along(state.split(node, part.shape[axis]), axis, part.shape)
        return owned.narrow(axis, 0, 1).expand(part.shape)

    return joined([filled_in(part) for part in parts], axis)


def reduced(state: Propagation, node: fx.Node) -> Any:
    """Local along pixels, tokens or groups of channels; over all channels every node gets the result."""
    if len(node.args) > 1 and isinstance(node.args[1], fx.Node):
        return elementwise(state, node)  # max and min of two tensors
    source, shape = state.labels(tensor_argument(node, 0)), shape_of(node)
    axes = _axes(node, source.dim())
    if not constant_along(source, axes):
        dense = compact(source)
        table = dense.movedim(axes, tuple(range(-len(axes), 0))).flatten(-len(axes)).flatten(0, -2)
        groups = {frozenset(row) for row in table.tolist()}
        if len(groups) < max(2, state.nodes) or len(frozenset().union(*groups)) < sum(map(len, groups)):
            state.reductions.append(Reduction(f"{module_text(node)} ({node.name})", source, axes, everywhere=True))
            return replicated_like(node)
        state.ties.tie_rows(table, module_text(node))
        source = dense.amax(axes, keepdim=True).expand(source.shape)
    for axis in axes:
        source = source.narrow(axis, 0, 1)
    result = source.reshape(shape)
    return [result, result] if isinstance(node.meta["val"], list | tuple) else result


def layer_norm(state: Propagation, node: fx.Node) -> Tensor:
    """Mean and variance by an all-reduce, the rest as the input."""
    source = state.labels(tensor_argument(node, 0))
    normalised = node.args[1]
    assert isinstance(normalised, list | tuple)
    axes = tuple(range(source.dim() - len(normalised), source.dim()))
    state.reductions.append(Reduction(module_text(node), source, axes))
    return source


def group_norm(state: Propagation, node: fx.Node) -> Tensor:
    """As layer norm, over the channels of each group."""
    vector = state.channels(node, 0, 1)
    groups = int(node.args[1])  # type: ignore[arg-type]
    state.reductions.append(Reduction(module_text(node), vector.reshape(groups, -1), (1,)))
    return along(vector, 1, shape_of(node))


def softmax(state: Propagation, node: fx.Node) -> Tensor:
    """Local where one node has all along its axis (attention), else once on node 0, after the gather."""
    source = state.labels(tensor_argument(node, 0))
    axis = int(node.args[1])  # type: ignore[arg-type]
    return source if constant_along(source, [axis]) else state.gathered(node)


def attention(state: Propagation, node: fx.Node) -> Tensor:
    """By heads: query, key and value of a head are tied together."""
    operands = [state.labels(tensor_argument(node, position)) for position in range(3)]
    if len({operand.shape[:-2] for operand in operands}) > 1:
        raise DiscoError(
            f"the attention in {module_text(node)} has another number of query heads than of key and value heads: "
            "repeat the keys and values first (torch.repeat_interleave along the heads)"
        )
    for labels in zip(*(_matrices(operand, operands[2].shape[:-2]) for operand in operands), strict=True):
        state.ties.tie(torch.cat([part.flatten() for part in labels]), f"the attention in {module_text(node)}")
    return operands[2][..., :1, :].expand(shape_of(node))


def product(state: Propagation, node: fx.Node) -> Tensor:
    """A matrix product of activations: each pair of matrices is tied together, so a node does whole heads."""
    first = 1 if node.target is torch.ops.aten.baddbmm.default else 0
    left, right = (state.labels(tensor_argument(node, first + position)) for position in range(2))
    shape = shape_of(node)
    if is_replicated(left) and constant_along(right, [-2]):
        return right[..., :1, :].expand(shape)
    if is_replicated(right) and constant_along(left, [-1]):
        return left[..., :1].expand(shape)
    if is_replicated(left) or is_replicated(right):
        raise DiscoError(
            f"{module_text(node)} multiplies channels by a matrix that is no layer's weight: use nn.Linear or a "
            "1x1 nn.Conv2d"
        )
    pairs = list(zip(_matrices(left, shape[:-2]), _matrices(right, shape[:-2]), strict=True))
    for pair in pairs:
        state.ties.tie(torch.cat([part.flatten() for part in pair]), f"the product in {module_text(node)}")
    owners = torch.stack([max(part.amax() for part in pair) for pair in pairs])
    return owners.reshape([*shape[:-2], 1, 1]).expand(shape)


def _matrices(labels: Tensor, leading: torch.Size) -> list[Tensor]:
    """The labels of each of the stacked matrices."""
    whole = labels.expand(*leading, *labels.shape[-2:])
    count = leading.numel()
    return [rows(matrix, 0) for matrix in whole.reshape(count, *labels.shape[-2:])]


def _axes(node: fx.Node, rank: int) -> tuple[int, ...]:
    wanted = node.args[1] if len(node.args) > 1 else None
    if isinstance(wanted, int):
        return (wanted % rank,)
    if isinstance(wanted, list | tuple) and wanted:
        return tuple(int(axis) % rank for axis in wanted)
    return tuple(range(rank))


def _table(rules: dict[Rule, str]) -> dict[str, Rule]:
    return {name: rule for rule, names in rules.items() for name in names.split()}


MIXING_RULES = _table({convolution: "conv1d conv2d conv3d", linear: "linear"})
"""Layers with weights: they share out ownership even where their input is replicated."""

RULES = _table(
    {
        elementwise: "abs add alias celu clamp clamp_max clamp_min clone contiguous detach div dropout elu erf exp "
        "feature_dropout gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu lift_fresh_copy log log_sigmoid "
        "masked_fill maximum minimum mish mul neg pow prelu reciprocal relu relu6 rsqrt rsub selu sigmoid silu "
        "softplus softshrink sqrt square sub tanh threshold to type_as where",
        channelwise: "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
        "adaptive_max_pool2d avg_pool1d avg_pool2d avg_pool3d batch_norm instance_norm max_pool1d max_pool2d "
        "max_pool2d_with_indices max_pool3d reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d "
        "upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d "
        "upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa",
        moved: "channel_shuffle chunk expand expand_as flatten flip movedim narrow permute pixel_shuffle "
        "pixel_unshuffle repeat repeat_interleave reshape reshape_as roll select slice split split_with_sizes squeeze "
        "stack swapaxes t tensor_split tile transpose unbind unflatten unsqueeze view view_as _unsafe_view",
        padded: "constant_pad_nd pad",
        concatenated: "cat concat concatenate",
        reduced: "amax amin argmax argmin linalg_vector_norm max mean min norm std sum var",
        layer_norm: "layer_norm rms_norm",
        group_norm: "group_norm",
        softmax: "log_softmax softmax",
        attention: "scaled_dot_product_attention",
        product: "baddbmm bmm matmul",
    }
)

HINTS = {
    "addmm": "use nn.Linear",
    "mm": "use nn.Linear",
    "conv_transpose1d": "use nn.Upsample and a convolution",
    "conv_transpose2d": "use nn.Upsample and a convolution, or a convolution and nn.PixelShuffle",
    "einsum": "write it with torch.matmul, or with nn.Linear where one operand is a parameter",
    "gru": "recurrent layers are not supported",
    "lstm": "recurrent layers are not supported",
    "index": "select channels by slices or torch.chunk instead of index lists",
}
