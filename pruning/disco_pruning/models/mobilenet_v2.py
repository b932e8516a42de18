"""MobileNetV2 (Sandler et al., CVPR 2018): inverted residuals with linear bottlenecks.

3,504,872 parameters; 300.8 million multiply-accumulates at 224x224.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, output channels, blocks, stride of the first block (Table 2 of the paper)."""


class InvertedResidual(nn.Module):
    """1x1 convolution to more channels, depthwise 3x3, 1x1 to fewer, and a shortcut where the shape stays."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = expansion * in_channels
        self.expands = expansion != 1
        self.shortcut = stride == 1 and in_channels == out_channels
        if self.expands:
            self.expand = nn.Conv2d(in_channels, hidden, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(hidden)
        self.depthwise = nn.Conv2d(hidden, hidden, 3, stride, padding=1, groups=hidden, bias=False)
        self.norm2 = nn.BatchNorm2d(hidden)
        self.project = nn.Conv2d(hidden, out_channels, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """[n, in, h, w] to [n, out, h / stride, w / stride]."""
        y = F.relu6(self.norm1(self.expand(x))) if self.expands else x
        y = F.relu6(self.norm2(self.depthwise(y)))
        y = self.norm3(self.project(y))
        return x + y if self.shortcut else y  # type: ignore[no-any-return]


class MobileNetV2(nn.Module):
    """The classifier; any image size whose 32nd part is a whole number of pixels."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        channels = 32
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        blocks = []
        for expansion, out_channels, count, stride in _STAGES:
            for index in range(count):
                blocks.append(InvertedResidual(channels, out_channels, stride if index == 0 else 1, expansion))
                channels = out_channels
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Conv2d(channels, 1280, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(1280)
        self.classifier = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, 3, h, w] to logits [n, classes]."""
        x = self.blocks(F.relu6(self.norm1(self.stem(x))))
        x = F.relu6(self.norm2(self.last(x)))
        return self.classifier(F.adaptive_avg_pool2d(x, 1).flatten(1))  # type: ignore[no-any-return]
