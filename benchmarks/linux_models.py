"""The networks of the Linux benchmark as float ONNX files: ResNet-50 with random weights, ResNet-8 as trained.

ResNet-50's convolutions are drawn as He et al. do and its batch norms take the statistics of random images, masks in
place: so the activations of every layer fill their int8 range, as those of a trained network do.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from disco_pruning import export_onnx, plan, prune
from disco_pruning.models.resnet50 import ResNet50
from disco_pruning.selection import RandomScore

SHAPE = (3, 224, 224)
STATISTICS_IMAGES = 8
CALIBRATION_IMAGES = 4


def write_resnet50(folder: Path, sparsity: float) -> tuple[Path, Path]:
    """Writes the network with the same communication sparsity in each layer; returns it and its calibration images."""
    torch.manual_seed(0)
    network = ResNet50().train()
    cut = plan(network, torch.zeros(1, *SHAPE), nodes=2)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # the plain mean over what comes
            nn.init.uniform_(module.weight, 0.8, 1.2)
            nn.init.uniform_(module.bias, -0.1, 0.1)
    prune(cut, sparsity, RandomScore(0))
    images = torch.randn(STATISTICS_IMAGES, *SHAPE)
    with torch.no_grad():
        network(images)
    network.eval()
    model, calibration = folder / "model.onnx", folder / "calibration.npy"
    export_onnx(network, model, images[:1], cut)
    np.save(calibration, images[:CALIBRATION_IMAGES].permute(0, 2, 3, 1).contiguous().numpy())
    return model, calibration


def resnet8(sparsity: float, examples: Path) -> tuple[Path, Path]:
    """The example's network, trained on handwritten digits: model and calibration images."""
    name = "dense" if sparsity == 0 else f"disco{sparsity * 100:.0f}"
    return examples / "models" / f"resnet8_{name}.onnx", examples / "calibration.npy"
