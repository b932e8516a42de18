"""The networks of the experiments, and what latency the model projects for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

import torch
from glyphs import CLASSES, HARD, PLAIN, SIZE, Difficulty
from torch import Tensor, nn
from torch.nn import functional

from disco_planning.latency import Convention, LayerCost, equal_cluster, latencies, layer_costs, total_seconds
from disco_planning.layers import Layer
from disco_planning.planner import equilibrium
from disco_planning.systems import load_system
from disco_pruning.layer_table import layer_table
from disco_pruning.models.deit import Attention, DeiT
from disco_pruning.models.resnet8 import ResidualBlock, ResNet8

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from disco_planning.latency import Cluster, Sparsities

SYSTEM = "stm32h743-uart"
CONVENTION = Convention(value_bytes=1, input="replicated")
"""The boards run int8, and all of them have the image."""
PARTIAL_SUM_BYTES = 4
"""Of the sum of a token's features on one node, or of their squares."""
EXAMPLE = torch.zeros(1, 3, SIZE, SIZE)
_BISECTIONS = 30


class Branches(nn.Module):
    """`branches` narrow residual networks side by side: 6, 12 and 24 channels each, on 8x8, 4x4 and 2x2 positions.

    Dense, they are one network of that many times the width. The stem reads patches of 4x4 pixels, which makes room for
    eight branches in the time of one ResNet-8.
    """

    def __init__(self, branches: int) -> None:
        super().__init__()
        width = 6 * branches
        self.stem = nn.Conv2d(3, width, 6, 4, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.stages = nn.Sequential(
            ResidualBlock(width, width, 1), ResidualBlock(width, 2 * width, 2), ResidualBlock(2 * width, 4 * width, 2)
        )
        self.classifier = nn.Linear(4 * width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, 3, 32, 32] to logits [n, CLASSES]."""
        x = self.stages(functional.relu(self.norm(self.stem(x))))
        return self.classifier(functional.avg_pool2d(x, 2).flatten(1))  # type: ignore[no-any-return]


def _deit() -> nn.Module:
    """`deit_micro` with patches of 8 instead of 4 pixels, which trains four times as fast."""
    return DeiT(image_size=SIZE, patch=8, features=96, depth=4, heads=4, classes=CLASSES)


@dataclass(frozen=True)
class Network:
    """What is trained, for how many nodes, and how long.

    Attributes:
        build: Makes it, with newly drawn weights.
        nodes: How many share it.
        epochs: Of dense training at the constant learning rate.
        round_epochs: At the constant learning rate after each pruning.
        anneal_epochs: With a falling learning rate, before anything is measured.
        rate: The constant learning rate.
        difficulty: Of its images.
    """

    build: Callable[[], nn.Module]
    nodes: int
    epochs: int
    round_epochs: int
    anneal_epochs: int
    rate: float
    difficulty: Difficulty = HARD


NETWORKS = {
    "cnn": Network(lambda: ResNet8(CLASSES), 2, 7, 1, 2, 3e-3),
    "deit": Network(_deit, 2, 14, 1, 2, 1.5e-3, PLAIN),
    **{f"branches{n}": Network(lambda n=n: Branches(n), n, 6, 1, 1, 3e-3) for n in (2, 4, 8)},
}


@cache
def costs(network: str, nodes: int | None = None) -> tuple[LayerCost, ...]:
    """Of each layer, on the nodes of SYSTEM; and of what a transformer exchanges and computes between its layers.

    `nodes`: how many, if not those that the network is shared by.
    """
    system = load_system(SYSTEM)
    entry = NETWORKS[network]
    cluster = equal_cluster(nodes or entry.nodes, system.bandwidth_bytes_per_s, system.operations_per_s)
    model = entry.build()
    return layer_costs(layer_table(model, EXAMPLE), cluster, CONVENTION) + _between_layers(model, cluster)


def _between_layers(model: nn.Module, cluster: Cluster) -> tuple[LayerCost, ...]:
    """One row for each layer norm, which exchanges partial sums, and for the products of each attention.

    No pruning changes them: of a layer norm every node sends two sums for each token, the heads of an attention are
    shared out whole.
    """
    rows: list[LayerCost] = []

    def row(name: str, x: Tensor, transfer_bytes: int, macs: int) -> None:
        tokens, features = x.shape[1:]
        layer = Layer(name, features, features, (1, 1), (1, 1), tokens, 1, 1, macs, tokens, 1, (1, 1), len(rows))
        compute = tuple(2 * macs * p / c for p, c in zip(cluster.shares, cluster.operations_per_s, strict=True))
        rows.append(LayerCost(layer, False, transfer_bytes / cluster.bandwidth_bytes_per_s, compute, cluster.shares, 0))

    def norm(name: str, x: Tensor) -> None:
        sums = cluster.nodes * x.shape[1] * 2 if cluster.nodes > 1 else 0
        row(name, x, sums * PARTIAL_SUM_BYTES, 0)

    def attention(name: str, x: Tensor) -> None:
        row(name, x, 0, 2 * x.shape[1] ** 2 * x.shape[2])  # queries by keys, and weights by values

    for name, module in model.named_modules():
        note = {nn.LayerNorm: norm, Attention: attention}.get(type(module))
        if note is not None:
            module.register_forward_pre_hook(lambda _, inputs, name=name, note=note: note(name, inputs[0]))
    with torch.no_grad():
        model(EXAMPLE)
    return tuple(rows)


def latency_ms(network: str, pruned: Sequence[int]) -> float:
    """Projected for so many pruned sub-rows of each layer that has any."""
    layers = costs(network)
    rows = {cost.layer.name: cost.sub_rows for cost in layers if cost.sub_rows}
    sparsities = {name: count / rows[name] for name, count in zip(rows, pruned, strict=True)}
    return 1e3 * total_seconds(latencies(layers, sparsities, CONVENTION))


def one_node_ms(network: str) -> float:
    """Projected for the whole network on one node."""
    return 1e3 * total_seconds(latencies(costs(network, 1), {}, CONVENTION))


@cache
def balanced(network: str) -> dict[str, float]:
    """The equilibrium sparsity of each layer."""
    return dict(equilibrium(costs(network)))


@cache
def even(network: str) -> dict[str, float]:
    """The same sparsity for each layer, to the whole sub-row below or above, so that it takes no less than `balanced`.

    Of all such roundings the one that takes least: rounded to the nearest, layers of one size all change at once, and
    the latency in steps of a millisecond.
    """
    rows = {cost.layer.name: cost.sub_rows for cost in costs(network) if cost.sub_rows}
    target = latency_ms(network, _nearest(rows, balanced(network)))
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        slower = latency_ms(network, _nearest(rows, dict.fromkeys(rows, middle))) >= target
        low, high = (middle, high) if slower else (low, middle)
    roundings = product(*({math.floor(low * count), math.ceil(low * count)} for count in rows.values()))
    slower_ones = ((latency_ms(network, counts), counts) for counts in roundings)
    _, counts = min(found for found in slower_ones if found[0] >= target)
    return {name: count / rows[name] for name, count in zip(rows, counts, strict=True)}


def _nearest(rows: dict[str, int], sparsities: Sparsities) -> list[int]:
    """How many sub-rows `prune` takes."""
    return [int(sparsities[name] * count + 0.5) for name, count in rows.items()]
