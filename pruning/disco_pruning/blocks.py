"""Where ownership comes from: blocks of labels, and the nodes that get them once the whole network is traced.

Owners are decided only at the end, because what a layer's outputs are used for decides how they are shared out: the
query, key and value of one attention head must meet on one node, wherever a fused projection puts them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from disco_planning.shares import contiguous_owners
from disco_pruning.labels import REPLICATED, Ties
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(eq=False)
class Block:
    """`channels` labels from `start` on, shared out among the nodes contiguously."""

    start: int
    channels: int
    name: str


@dataclass(eq=False)
class GatherBlock(Block):
    """Computed once, on node 0."""


@dataclass(eq=False)
class MixingBlock(Block):
    """The outputs of a layer with weights.

    Attributes:
        module: Holds the weight.
        parameter: The weight's name in it.
        source: Name of the tensor it reads.
        inputs: [in] the label of each input channel.
        groups: Of a grouped convolution.
        macs: Multiply-accumulates of one inference, dense.
        more_inputs: The same of further calls with the same weight.
    """

    module: nn.Module
    parameter: str
    source: str
    inputs: Tensor
    groups: int
    macs: int
    more_inputs: list[Tensor] = field(default_factory=list)


class Owners:
    """The node of every label."""

    def __init__(self, ties: Ties, nodes: int, shares: Sequence[float] | None) -> None:
        self._ties = ties
        self.nodes = nodes
        self._shares = shares
        # The entry behind the last one is that of REPLICATED.
        self._owners: list[int] = []
        self._of_group: dict[int, int] = {}
        self.local: list[MixingBlock] = []

    def of(self, labels: Tensor) -> Tensor:
        """The node of each label, REPLICATED where every node has it."""
        table = torch.tensor([*self._owners, REPLICATED], dtype=torch.int32)
        return table[labels.long()]

    def resolve(self, block: Block) -> None:
        """Decide for `block`, all earlier ones being decided."""
        owners = self._local_groups(block) if isinstance(block, MixingBlock) else None
        if owners is None:
            owners = [0] * block.channels if isinstance(block, GatherBlock) else self._shared_out(block)
        assert len(self._owners) == block.start
        self._owners.extend(owners)
        for channel, owner in enumerate(owners):
            self._of_group.setdefault(self._ties.root(block.start + channel), owner)

    def check(self) -> None:
        """Raise if labels that are tied together were given to different nodes."""
        for members in self._ties.groups().values():
            found = {self._owners[member] for member in members}
            if len(found) > 1:
                raise DiscoError(
                    f"{self._ties.reason(members[0])} needs channels together that belong to nodes "
                    f"{', '.join(map(str, sorted(found)))}: give it one input whose channels or heads can be shared "
                    f"evenly by {self.nodes} nodes"
                )

    def _local_groups(self, block: MixingBlock) -> list[int] | None:
        """The owners of a grouped convolution whose groups each read one node's channels only."""
        if block.groups == 1:
            return None
        groups = self.of(block.inputs).reshape(block.groups, -1)
        if bool((groups != groups[:, :1]).any()) or bool((groups == REPLICATED).any()):
            return None
        self.local.append(block)
        return groups[:, :1].expand(-1, block.channels // block.groups).flatten().tolist()

    def _shared_out(self, block: Block) -> list[int]:
        if block.channels < self.nodes:
            raise DiscoError(
                f"{block.name} has {block.channels} output channels, which cannot be shared by {self.nodes} nodes: "
                "use fewer nodes"
            )
        roots = [self._ties.root(block.start + channel) for channel in range(block.channels)]
        units = list(dict.fromkeys(roots))
        if len(units) < self.nodes:
            raise DiscoError(
                f"{self._ties.reason(roots[0])} combines the {block.channels} outputs of {block.name} without weights "
                f"of its own, in {len(units)} part(s) that cannot be shared by {self.nodes} nodes: use as many heads "
                "or groups as nodes, or fewer nodes"
            )
        owner = dict(zip(units, contiguous_owners(len(units), self.nodes, self._shares), strict=True))
        return [self._of_group.get(root, owner[root]) for root in roots]
