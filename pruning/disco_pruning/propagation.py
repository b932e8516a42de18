"""What is known while labels are carried through the graph of a network: the state that the rules work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx, nn

from disco_pruning.blocks import Block, GatherBlock, MixingBlock
from disco_pruning.labels import Ties, along, filled, rows
from disco_pruning.tracing import module_text
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from disco_pruning.tracing import Trace

_SAME_TENSOR = frozenset({"clone", "contiguous", "detach", "alias", "dropout", "feature_dropout", "to"})
"""Operators that change no value in inference: what reads their output reads their input."""


@dataclass(frozen=True)
class Join:
    """Two tensors that meet element by element."""

    where: str
    kept: Tensor
    other: Tensor


@dataclass(frozen=True)
class Reduction:
    """A sum (or mean, maximum) of `labels` along `axes`."""

    where: str
    labels: Tensor
    axes: tuple[int, ...]
    everywhere: bool = False
    """Whether every node gets the result, and not only what it needs for its own channels."""


class Propagation:
    """What the rules work on and find out.

    Attributes:
        labels_of: Labels of what each operator computes: a tensor, a list of tensors, or None for other values.
        ties: Labels that must be on one node.
        blocks: All labels, in their order.
        local: Names of convolutions that work channel by channel.
        nodes: The number of nodes that will share the network.
        joins, reductions: Where channels may have to move without a layer with weights.
        whole: In words, operators with weights that every node computes whole.
    """

    def __init__(self, model: nn.Module, trace: Trace, nodes: int) -> None:
        self._model = model
        self._trace = trace
        self.nodes = nodes
        self.labels_of: dict[fx.Node, Any] = {}
        self._by_parameter: dict[str, MixingBlock] = {}
        self.ties = Ties()
        self.blocks: list[Block] = []
        self.local: list[str] = []
        self.joins: list[Join] = []
        self.reductions: list[Reduction] = []
        self.whole: list[str] = []

    def labels(self, node: fx.Node) -> Tensor:
        """Labels of a tensor that was visited."""
        found = self.labels_of[node]
        assert isinstance(found, Tensor)
        return found

    def arguments(self, node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The operands of `node` with labels in the place of tensors."""
        return (
            fx.map_arg(node.args, lambda argument: self.labels_of[argument]),
            fx.map_arg(node.kwargs, lambda argument: self.labels_of[argument]),
        )

    def operands(self, node: fx.Node) -> list[Tensor]:
        """Labels of all tensors that `node` reads."""
        values = [self.labels_of[source] for source in node.all_input_nodes]
        parts = [part for value in values for part in (value if isinstance(value, list | tuple) else [value])]
        return [part for part in parts if isinstance(part, Tensor)]

    def channels(self, node: fx.Node, position: int, axis: int) -> Tensor:
        """[size of axis]: one label for each channel of an operand, whose pixels are tied together."""
        table = rows(self.labels(tensor_argument(node, position)), axis)
        self.ties.tie_rows(table, module_text(node))
        return table.amax(1)

    def gathered(self, node: fx.Node) -> Tensor:
        """Labels of what is computed once, on node 0."""
        block = GatherBlock(self._next(), 1, module_text(node))
        self.blocks.append(block)
        return filled(shape_of(node), block.start)

    def split(self, node: fx.Node, channels: int) -> Tensor:
        """[channels] labels of something replicated that is from now on shared out."""
        block = Block(self._next(), channels, module_text(node))
        self.blocks.append(block)
        return torch.arange(block.start, block.start + channels, dtype=torch.int32)

    def weight_of(self, node: fx.Node) -> tuple[str, nn.Module, str]:
        """(qualified parameter name, module, name in it) of the weight that `node` applies."""
        name = self._trace.parameter(node.args[1])
        if name is None and self._part_of(node.args[1]) is not None:
            raise DiscoError(
                f"{module_text(node)} applies a part of '{self._part_of(node.args[1])}', as nn.MultiheadAttention does "
                "where query, key and value are different tensors: use an nn.Linear for each of them"
            )
        if name is None:
            raise DiscoError(
                f"{module_text(node)} applies weights that are computed from other tensors: only a parameter of a "
                "module can be pruned; remove other parametrisations, and use nn.Linear and nn.Conv2d"
            )
        path, _, parameter = name.rpartition(".")
        return name, self._model.get_submodule(path), parameter

    def _part_of(self, node: Any) -> str | None:
        """The parameter that a weight is cut from."""
        while isinstance(node, fx.Node) and operator_name(node) in (
            "getitem",
            "chunk",
            "split",
            "slice",
            "split_with_sizes",
        ):
            node = node.args[0]
        return self._trace.parameter(node)

    def mixing(self, node: fx.Node, inputs: Tensor, groups: int, axis: int) -> Tensor:
        """Labels behind a layer with weights [out, in / groups, ...] whose outputs are along `axis`."""
        name, module, parameter = self.weight_of(node)
        weight = getattr(module, parameter)
        shape = shape_of(node)
        macs = shape.numel() * int(weight[0].numel())
        block = self._by_parameter.get(name)
        if block is None:
            title = name.removesuffix(".weight")
            source = self._source(tensor_argument(node, 0))
            block = MixingBlock(
                self._next(), int(weight.shape[0]), title, module, parameter, source, inputs, groups, macs
            )
            self._by_parameter[name] = block
            self.blocks.append(block)
        else:
            block.more_inputs.append(inputs)
            block.macs += macs
        outputs = torch.arange(block.start, block.start + block.channels, dtype=torch.int32)
        return along(outputs, axis, shape)

    def _next(self) -> int:
        return self.blocks[-1].start + self.blocks[-1].channels if self.blocks else 0

    def _source(self, node: fx.Node) -> str:
        while operator_name(node) in _SAME_TENSOR:
            node = tensor_argument(node, 0)
        return node.name


def operator_name(node: fx.Node) -> str:
    """`conv2d` for aten.conv2d.default, `relu` for the in-place aten.relu_.default too."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):  # noqa: SLF001 - it has no public name
        name = str(target.overloadpacket.__name__)
        return name if name.startswith("_") else name.rstrip("_")
    return getattr(target, "__name__", str(target))


def tensor_argument(node: fx.Node, position: int) -> fx.Node:
    """The tensor operand at `position`."""
    argument = node.args[position]
    assert isinstance(argument, fx.Node)
    return argument


def shape_of(node: fx.Node) -> torch.Size:
    """Shape of what `node` computes; of the first tensor if it computes several."""
    value = node.meta["val"]
    return torch.Size((value[0] if isinstance(value, list | tuple) else value).shape)


def replicated_like(node: fx.Node) -> Any:
    """Labels for a value that every node has; None for what is not a tensor."""
    value = node.meta.get("val")
    if isinstance(value, list | tuple):
        return [filled(part.shape) if isinstance(part, Tensor) else None for part in value]
    return filled(value.shape) if isinstance(value, Tensor) else None
