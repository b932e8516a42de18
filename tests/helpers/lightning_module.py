"""A tiny LightningModule with its data and a quiet Trainer."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(LightningModule):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.network = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
        )
        self.example_input_array = torch.zeros(1, 1, 8, 8)

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images)

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9, weight_decay=0.01)


def batches() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(16, 1, 8, 8, generator=generator)
    return DataLoader(TensorDataset(images, torch.arange(16) % 4), batch_size=4)


def trainer(epochs: int, *callbacks: Callback, **options: Any) -> Trainer:
    return Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
