"""ResNet-8, the image classification network of MLPerf Tiny, in PyTorch.

Three residual stages of 16, 32 and 64 channels on 32x32 images; 12.5 million multiply-accumulates.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch norm, and a shortcut (1x1 where the shape changes)."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """[n, in, h, w] to [n, out, h / stride, w / stride]."""
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.shortcut(x))


class ResNet8(nn.Module):
    """The network up to its logits, which `with_softmax` completes for deployment."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.stages = nn.Sequential(ResidualBlock(16, 16, 1), ResidualBlock(16, 32, 2), ResidualBlock(32, 64, 2))
        self.classifier = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, 3, 32, 32] to logits [n, classes]."""
        x = self.stages(F.relu(self.norm(self.stem(x))))
        # Not adaptive: a fixed window exports as one plain average pool.
        x = F.avg_pool2d(x, 8)
        return self.classifier(x.flatten(1))  # type: ignore[no-any-return]


def with_softmax(model: nn.Module) -> nn.Module:
    """`model` followed by a softmax over its logits; shares the parameters of `model`."""
    return nn.Sequential(model, nn.Softmax(dim=1))
