"""ResNet-50 (He et al., CVPR 2016) with the stride on the 3x3 convolutions ("v1.5"), and the trunk of its family.

25,557,032 parameters; 4.089 billion multiply-accumulates at 224x224.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTHS = (64, 128, 256, 512)
"""Channels of the 3x3 convolutions of each stage; a stage's output has EXPANSION times as many."""
EXPANSION = 4
RESNET50_BLOCKS = (3, 4, 6, 3)
RESNET101_BLOCKS = (3, 4, 23, 3)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolution, each with batch norm, and a shortcut (1x1 where the shape changes)."""

    def __init__(self, in_channels: int, width: int, stride: int = 1, dilation: int = 1) -> None:
        super().__init__()
        out_channels = EXPANSION * width
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=dilation, dilation=dilation, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(out_channels)
        self.downsample: nn.Module = nn.Identity()
        self.downsample_norm: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)
            self.downsample_norm = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """[n, in, h, w] to [n, 4 * width, h / stride, w / stride]."""
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        return F.relu(y + self.downsample_norm(self.downsample(x)))


class ResNetTrunk(nn.Module):
    """Stem and residual stages without a head.

    Args:
        blocks: How many bottlenecks each stage has; fewer than four stages are allowed.
        strides: The stride of each stage's first block.
        dilations: The dilation of each stage's 3x3 convolutions.
    """

    def __init__(
        self,
        blocks: Sequence[int],
        strides: Sequence[int] = (1, 2, 2, 2),
        dilations: Sequence[int] = (1, 1, 1, 1),
    ) -> None:
        super().__init__()
        channels = 64
        self.conv1 = nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.stages = len(blocks)
        for index, (count, width, stride, dilation) in enumerate(
            zip(blocks, WIDTHS, strides, dilations, strict=False), start=1
        ):
            first = Bottleneck(channels, width, stride, dilation)
            channels = EXPANSION * width
            rest = (Bottleneck(channels, width, dilation=dilation) for _ in range(count - 1))
            self.add_module(f"layer{index}", nn.Sequential(first, *rest))

    def features(self, x: Tensor) -> list[Tensor]:
        """Images [n, 3, h, w] to the output of each stage, the first at a quarter of the resolution."""
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.max_pool2d(x, 3, stride=2, padding=1)
        outputs = []
        for index in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{index}")(x)
            outputs.append(x)
        return outputs


class ResNet50(ResNetTrunk):
    """The classifier."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__(RESNET50_BLOCKS)
        self.fc = nn.Linear(EXPANSION * WIDTHS[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, 3, 224, 224] to logits [n, classes]."""
        x = F.adaptive_avg_pool2d(self.features(x)[-1], 1)
        return self.fc(x.flatten(1))  # type: ignore[no-any-return]
