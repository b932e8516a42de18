"""The networks of the experiments, and what latency the model projects for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from glyphs import CLASSES, HARD, PLAIN, SIZE, Difficulty
from torch import Tensor, nn
from torch.nn import functional

from disco_planning.latency import Convention, equal_cluster, latencies, layer_costs, total_seconds
from disco_planning.planner import equilibrium, for_latency
from disco_planning.systems import load_system
from disco_pruning import communication_sparsity
from disco_pruning.layer_table import layer_table
from disco_pruning.models.deit import DeiT
from disco_pruning.models.resnet8 import ResidualBlock, ResNet8

if TYPE_CHECKING:
    from collections.abc import Callable

    from disco_planning.latency import LayerCost
    from disco_pruning import Plan

SYSTEM = "stm32h743-uart"
CONVENTION = Convention(value_bytes=1)
"""The boards run int8."""
EXAMPLE = torch.zeros(1, 3, SIZE, SIZE)


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


def costs(network: str) -> tuple[LayerCost, ...]:
    """Of each layer, on the nodes of SYSTEM."""
    system = load_system(SYSTEM)
    entry = NETWORKS[network]
    cluster = equal_cluster(entry.nodes, system.bandwidth_bytes_per_s, system.operations_per_s)
    return layer_costs(layer_table(entry.build(), EXAMPLE), cluster, CONVENTION)


def latency_ms(plan: Plan, layers: tuple[LayerCost, ...]) -> float:
    """Projected for the sparsity that the weights of each layer have."""
    sparsities = {layer.name: communication_sparsity(layer) for layer in plan.prunable}
    return 1e3 * total_seconds(latencies(layers, sparsities, CONVENTION))


def balanced(network: str) -> dict[str, float]:
    """The equilibrium sparsity of each layer."""
    return dict(equilibrium(costs(network)))


def even(network: str) -> dict[str, float]:
    """The same sparsity for each layer, with the total latency of `balanced`."""
    layers = costs(network)
    target = total_seconds(latencies(layers, equilibrium(layers), CONVENTION))
    return dict(for_latency(layers, target, "uniform", CONVENTION))
