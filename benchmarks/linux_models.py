"""The networks of the Linux benchmark, with random weights, as float ONNX files.

Convolutions are drawn as He et al. do, and batch norms take the statistics of random images with the masks in place: so
the activations of every layer fill their int8 range, as those of a trained network do.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from disco_pruning import export_onnx, plan, prune
from disco_pruning.models.zoo import ZOO
from disco_pruning.selection import RandomScore

STATISTICS_IMAGES = 8
CALIBRATION_IMAGES = 2


def write_model(name: str, sparsity: float, folder: Path) -> tuple[Path, Path]:
    """Writes a network of the zoo, for two nodes, every layer at one communication sparsity.

    Returns:
        The model and its calibration images.
    """
    torch.manual_seed(0)
    entry = ZOO[name]
    network = entry.build().train()
    cut = plan(network, torch.zeros(1, *entry.input_shape), nodes=2)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # the plain mean over what comes
            nn.init.uniform_(module.weight, 0.8, 1.2)
            nn.init.uniform_(module.bias, -0.1, 0.1)
    prune(cut, sparsity, RandomScore(0))
    images = torch.randn(STATISTICS_IMAGES, *entry.input_shape)
    with torch.no_grad():
        network(images)
    network.eval()
    model, calibration = folder / "model.onnx", folder / "calibration.npy"
    export_onnx(network, model, images[:1], cut)
    np.save(calibration, images[:CALIBRATION_IMAGES].permute(0, 2, 3, 1).contiguous().numpy())
    return model, calibration
