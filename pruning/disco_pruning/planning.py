"""The plan: which layers of a network mix channels, and which node owns what on both sides of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from disco_planning.shares import fractions
from disco_pruning.blocks import GatherBlock, MixingBlock, Owners
from disco_pruning.labels import REPLICATED, compact
from disco_pruning.rules import propagate
from disco_pruning.tracing import trace
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disco_pruning.propagation import Propagation
    from disco_pruning.tracing import ExampleInput

NodeOfChannel = tuple[int, ...]
"""The node of every channel of a tensor; -1 for a channel that all nodes have."""


@dataclass(frozen=True)
class MixingLayer:
    """A layer whose outputs depend on several input channels, and who owns both sides.

    Attributes:
        name: Its qualified module name; with the parameter's name if that is not `weight`.
        module: The module that holds its weight.
        parameter: The weight's name in `module`: [out, in / groups, ...].
        source: Name of the tensor it reads; layers with one source share one exchange.
        in_owners: The node of each input channel; None where the input is replicated on all nodes.
        out_owners: The node of each output channel.
        groups: Of a grouped convolution, else 1.
        macs: Multiply-accumulates of one inference, dense.
    """

    name: str
    module: nn.Module
    parameter: str
    source: str
    in_owners: NodeOfChannel | None
    out_owners: NodeOfChannel
    groups: int
    macs: int

    @property
    def weight(self) -> Tensor:
        """The weight as the network applies it: zero where it is pruned."""
        weight = getattr(self.module, self.parameter)
        assert isinstance(weight, Tensor)
        return weight


@dataclass(frozen=True)
class Plan:
    """One network cut for a number of nodes.

    Attributes:
        nodes: Number of nodes.
        shares: The fraction of each node; None for equal shares.
        layers: All mixing layers in order of execution; those with a replicated input are never pruned.
        local: Names of convolutions and linear layers that need no exchange: depthwise, or with groups that follow
            ownership.
        notes: In words, what else has to cross the wire and cannot be pruned, and what every node computes whole.
    """

    nodes: int
    shares: tuple[float, ...] | None
    layers: tuple[MixingLayer, ...]
    local: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def prunable(self) -> tuple[MixingLayer, ...]:
        """The layers whose input is shared out among the nodes."""
        return tuple(layer for layer in self.layers if layer.in_owners is not None)

    @property
    def exchanges(self) -> tuple[tuple[MixingLayer, ...], ...]:
        """The prunable layers, grouped by the tensor they read."""
        groups: dict[str, list[MixingLayer]] = {}
        for layer in self.prunable:
            groups.setdefault(layer.source, []).append(layer)
        return tuple(tuple(group) for group in groups.values())

    def layer(self, name: str) -> MixingLayer:
        """The mixing layer called `name`.

        Raises:
            DiscoError: There is none.
        """
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise DiscoError(f"no mixing layer is called '{name}': there are {', '.join(x.name for x in self.layers)}")

    def on(self, model: nn.Module) -> Plan:
        """The same plan for another instance of the network, such as a copy."""
        layers = tuple(
            dataclasses.replace(layer, module=model.get_submodule(_module_name(layer))) for layer in self.layers
        )
        return dataclasses.replace(self, layers=layers)

    def metadata(self) -> dict[str, Any]:
        """The plan as plain data for a file: owners as runs of [node, number of channels]."""
        return {
            "schema": 1,
            "nodes": self.nodes,
            "shares": None if self.shares is None else list(self.shares),
            "layers": [
                {
                    "name": layer.name,
                    "parameter": layer.parameter,
                    "in_owners": None if layer.in_owners is None else _runs(layer.in_owners),
                    "out_owners": _runs(layer.out_owners),
                    "groups": layer.groups,
                }
                for layer in self.layers
            ],
            "local": list(self.local),
        }


def plan(model: nn.Module, example_input: ExampleInput, nodes: int, shares: Sequence[float] | None = None) -> Plan:
    """Trace `model` and find out which channels each node owns, and which layers can be pruned.

    Args:
        model: The network, in any mode, with or without masks; it is left as it was.
        example_input: A tensor as `model` takes it (or a tuple of several), batch first, e.g.
            `torch.zeros(1, 3, 32, 32)`.
        nodes: The number of nodes that share it.
        shares: The fraction of the channels for each node, or a ratio such as (3, 1), for unequal boards. Equal by
            default.

    Raises:
        DiscoError: The network cannot be traced or cut that way: which module, and what to do.
    """
    checked = _checked_shares(nodes, shares)
    found = propagate(model, trace(model, example_input), nodes)
    owners = Owners(found.ties, nodes, checked)
    for block in found.blocks:
        owners.resolve(block)
    owners.check()
    layers = tuple(
        _layer(block, owners) for block in found.blocks if isinstance(block, MixingBlock) and block not in owners.local
    )
    local = (*dict.fromkeys(found.local), *(block.name.removesuffix(".weight") for block in owners.local))
    return Plan(nodes, checked, layers, local, _notes(found, owners))


def _checked_shares(nodes: Any, shares: Sequence[float] | None) -> tuple[float, ...] | None:
    if not isinstance(nodes, int) or nodes < 1:
        raise DiscoError(f"{nodes!r} nodes were asked for: give an int, at least 1")
    return None if shares is None else fractions(shares, nodes)


def _layer(block: MixingBlock, owners: Owners) -> MixingLayer:
    inputs = owners.of(block.inputs)
    if any(not torch.equal(owners.of(other), inputs) for other in block.more_inputs):
        raise DiscoError(
            f"layer '{block.name}' is applied to several tensors with different owners: give each tensor a layer of "
            "its own"
        )
    outputs = owners.of(torch.arange(block.start, block.start + block.channels))
    in_owners = None if bool((inputs == REPLICATED).all()) else tuple(inputs.tolist())
    return MixingLayer(
        block.name,
        block.module,
        block.parameter,
        block.source,
        in_owners,
        tuple(outputs.tolist()),
        block.groups,
        block.macs,
    )


def _notes(found: Propagation, owners: Owners) -> tuple[str, ...]:
    notes = list(found.whole) if owners.nodes > 1 else []
    for join in found.joins:
        kept, other = owners.of(compact(join.kept)), owners.of(compact(join.other))
        if bool(((kept != other) & (kept != REPLICATED) & (other != REPLICATED)).any()):
            notes.append(
                f"{join.where} joins tensors of different nodes: channels of one are always sent; give "
                "both the same number of channels, or a convolution in front of one"
            )
    for reduction in found.reductions:
        nodes = owners.of(compact(reduction.labels))
        apart = any(bool((nodes != nodes.narrow(axis, 0, 1)).any()) for axis in reduction.axes)
        if apart or (reduction.everywhere and owners.nodes > 1):
            notes.append(f"{reduction.where} combines channels of several nodes: partial results are exchanged")
    notes.extend(
        f"{block.name} is computed once on node 0, from the gathered channels"
        for block in found.blocks
        if isinstance(block, GatherBlock) and owners.nodes > 1
    )
    return tuple(dict.fromkeys(notes))


def _module_name(layer: MixingLayer) -> str:
    return layer.name if layer.parameter == "weight" else layer.name.rpartition(".")[0]


def _runs(owners: NodeOfChannel) -> list[list[int]]:
    """[node, number of channels] of each run of neighbours."""
    return [[owner, sum(1 for _ in run)] for owner, run in groupby(owners)]
