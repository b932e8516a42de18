"""DS-CNN, the keyword spotting network of MLPerf Tiny (Zhang et al., 2017: depthwise separable convolutions).

49 frames of 10 MFCC features in, 12 words out; 2.66 million multiply-accumulates.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class SeparableBlock(nn.Module):
    """Depthwise 3x3 and pointwise 1x1 convolution, each with batch norm and ReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.norm1 = nn.BatchNorm2d(channels)
        self.pointwise = nn.Conv2d(channels, channels, 1)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """[n, channels, h, w] to the same shape."""
        x = F.relu(self.norm1(self.depthwise(x)))
        return F.relu(self.norm2(self.pointwise(x)))


class DSCNN(nn.Module):
    """The network up to its logits."""

    def __init__(self, classes: int = 12, channels: int = 64) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, channels, (10, 4), stride=2, padding=(5, 1))
        self.norm = nn.BatchNorm2d(channels)
        self.blocks = nn.Sequential(*(SeparableBlock(channels) for _ in range(4)))
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """MFCC features [n, 1, 49, 10] to logits [n, classes]."""
        x = self.blocks(F.relu(self.norm(self.stem(x))))
        # Not adaptive: a fixed window exports as one plain average pool.
        x = F.avg_pool2d(x, (25, 5))
        return self.classifier(x.flatten(1))  # type: ignore[no-any-return]
