"""The one training loop of all networks, so that they differ in nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glyphs import Images

BATCH = 64
SHIFT = 2
"""Largest shift of a training batch, in pixels."""


def train(model: nn.Module, data: Images, epochs: int, peak_rate: float, random: torch.Generator) -> Iterator[int]:
    """Train `model` in place with AdamW and one cycle of the learning rate; yields after each epoch."""
    optimiser = torch.optim.AdamW(model.parameters(), peak_rate, weight_decay=0.01)
    steps = epochs * -(-len(data.labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, peak_rate, max(2, steps))
    for epoch in range(epochs):
        model.train()
        for pick in torch.randperm(len(data.labels), generator=random).split(BATCH):
            loss = F.cross_entropy(model(_shifted(data.images[pick], random)), data.labels[pick], label_smoothing=0.05)
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
    padded = F.pad(images, (SHIFT,) * 4, mode="replicate")
    return _channels_last(padded[:, :, down : down + images.shape[2], right : right + images.shape[3]])


def _channels_last(images: Tensor) -> Tensor:
    """What convolutions on a CPU take least time for."""
    return images.contiguous(memory_format=torch.channels_last)
