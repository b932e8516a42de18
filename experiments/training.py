"""The one training loop of all networks, so that they differ in nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glyphs import Images

BATCH = 64
WARM_UP = 20
SHIFT = 2
"""Largest shift of a training batch, in pixels."""


def train(
    model: nn.Module, data: Images, epochs: int, rate: float, random: torch.Generator, *, anneal: bool = False
) -> Iterator[int]:
    """Train `model` in place with AdamW; yields after each epoch.

    The learning rate rises to `rate` in WARM_UP steps and stays there, or, with `anneal`, falls to zero from there.
    """
    optimiser = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.01)
    steps = epochs * -(-len(data.labels) // BATCH)

    def factor(step: int) -> float:
        return min((step + 1) / WARM_UP, 1 - step / steps if anneal else 1.0)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, factor)
    for epoch in range(epochs):
        model.train()
        for pick in torch.randperm(len(data.labels), generator=random).split(BATCH):
            answers = model(_shifted(data.images[pick], random))
            loss = functional.cross_entropy(answers, data.labels[pick], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        yield epoch


def accuracy(model: nn.Module, data: Images) -> float:
    """The fraction of images that `model` gets right, in inference mode."""
    model.eval()
    with torch.no_grad():
        answers = torch.cat([model(_channels_last(batch)) for batch in data.images.split(250)]).argmax(1)
    return float((answers == data.labels).double().mean())


def _shifted(images: Tensor, random: torch.Generator) -> Tensor:
    right, down = torch.randint(2 * SHIFT + 1, (2,), generator=random).tolist()
    padded = functional.pad(images, (SHIFT,) * 4, mode="replicate")
    return _channels_last(padded[:, :, down : down + images.shape[2], right : right + images.shape[3]])


def _channels_last(images: Tensor) -> Tensor:
    """What convolutions on a CPU take least time for."""
    return images.contiguous(memory_format=torch.channels_last)
