"""Which node owns which channel of every tensor, found by tracing the network.

Input tensors are replicated on all nodes. A mixing layer (convolution, linear) gives its output
channels to the nodes in contiguous shares; every other layer works channel by channel and keeps the
ownership of its input, so both inputs of a residual add must have the same one.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from disco_planning import shares
from disco_targets.errors import DiscoError

Owners = tuple[int, ...]
"""The node index of every channel of a tensor."""

_LOCAL_MODULES = (
    nn.AdaptiveAvgPool2d,
    nn.AvgPool2d,
    nn.BatchNorm2d,
    nn.Dropout,
    nn.Flatten,
    nn.Identity,
    nn.MaxPool2d,
    nn.ReLU,
    nn.ReLU6,
    nn.Softmax,
)
# Functions as objects, tensor methods by name: that is how a traced graph refers to them.
_LOCAL_CALLS: frozenset[Any] = frozenset(
    {
        F.adaptive_avg_pool2d,
        F.avg_pool2d,
        F.max_pool2d,
        F.relu,
        F.relu6,
        F.softmax,
        torch.flatten,
        torch.relu,
        torch.softmax,
        "flatten",
        "relu",
        "softmax",
    }
)
_ADD_CALLS: frozenset[Any] = frozenset({operator.add, operator.iadd, torch.add, "add", "add_"})


@dataclass(frozen=True)
class MixingLayer:
    """A layer whose outputs depend on several input channels, and who owns both sides.

    Attributes:
        name: Its qualified module name.
        module: The `Conv2d` (ungrouped) or `Linear`.
        source: Name of the tensor it reads; layers with one source share one exchange.
        in_owners: The node of each input channel; None where the input is replicated on all nodes.
        out_owners: The node of each output channel.
    """

    name: str
    module: nn.Conv2d | nn.Linear
    source: str
    in_owners: Owners | None
    out_owners: Owners


def contiguous_owners(channels: int, nodes: int) -> Owners:
    """Give `channels` to `nodes` in contiguous shares, the remainder to the first nodes.

    Raises:
        DiscoError: Fewer channels than nodes, or no node.
    """
    if nodes < 1:
        raise DiscoError(f"{nodes} nodes were asked for: use at least one")
    if channels < nodes:
        raise DiscoError(f"{channels} channels cannot be shared by {nodes} nodes: use fewer nodes")
    return shares.contiguous_owners(channels, nodes)


def mixing_layers(model: nn.Module, nodes: int) -> tuple[MixingLayer, ...]:
    """Trace `model` and return its mixing layers in the order of execution.

    Args:
        model: A network that `torch.fx` can trace.
        nodes: The number of nodes that share it.

    Raises:
        DiscoError: A layer whose ownership rule is not known, an add of tensors with different
            owners, or a layer with fewer channels than nodes.
    """
    modules = dict(model.named_modules())
    owners: dict[fx.Node, Owners | None] = {}
    layers: list[MixingLayer] = []
    for node in fx.symbolic_trace(model).graph.nodes:
        if node.op == "placeholder":
            owners[node] = None
        elif node.op == "call_module" and _is_mixing(modules[node.target]):
            layer = _mixing_layer(node, modules[node.target], owners, nodes)
            owners[node] = layer.out_owners
            layers.append(layer)
        elif node.op in ("call_module", "call_function", "call_method"):
            owners[node] = _local_owners(node, modules, owners)
    return tuple(layers)


def _is_mixing(module: nn.Module) -> bool:
    if isinstance(module, nn.Conv2d):
        return module.groups == 1
    return isinstance(module, nn.Linear)


def _mixing_layer(node: fx.Node, module: Any, owners: dict[fx.Node, Owners | None], nodes: int) -> MixingLayer:
    """The layer at a traced call; a flattened input repeats each owner for its pixels."""
    name, source = str(node.target), node.all_input_nodes[0]
    out_channels, in_channels = module.weight.shape[:2]
    in_owners = owners[source]
    if in_owners is not None:
        pixels, rest = divmod(in_channels, len(in_owners))
        if rest:
            raise DiscoError(
                f"layer '{name}' reads {in_channels} features of {len(in_owners)} channels: they "
                "must be a whole number for each channel"
            )
        # PyTorch flattens NCHW, so the pixels of a channel are neighbours.
        in_owners = tuple(owner for owner in in_owners for _ in range(pixels))
    out_owners = contiguous_owners(out_channels, nodes)
    return MixingLayer(name, module, source.name, in_owners, out_owners)


def _local_owners(node: fx.Node, modules: dict[str, nn.Module], owners: dict[fx.Node, Owners | None]) -> Owners | None:
    """The owners behind a layer that works channel by channel."""
    inputs = [owners[source] for source in node.all_input_nodes]
    if node.op == "call_module":
        module = modules[str(node.target)]
        if isinstance(module, _LOCAL_MODULES) or _is_depthwise(module):
            return inputs[0]
        kind = type(module).__name__
    else:
        if node.target in _LOCAL_CALLS:
            return inputs[0]
        if node.target in _ADD_CALLS:
            if len(set(inputs)) > 1:
                raise DiscoError(
                    f"the add '{node.name}' joins tensors with different owners: give both the "
                    "same number of channels, through a convolution each"
                )
            return inputs[0]
        kind = getattr(node.target, "__name__", str(node.target))
    raise DiscoError(
        f"layer '{node.name}' ({kind}) has no ownership rule: supported are Conv2d (ungrouped or "
        "depthwise), Linear, BatchNorm2d, ReLU, ReLU6, pooling, add, flatten, Dropout and Softmax"
    )


def _is_depthwise(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d) and module.groups == module.in_channels == module.out_channels
