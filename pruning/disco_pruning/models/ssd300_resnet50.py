"""SSD300 (Liu et al., ECCV 2016) on ResNet-50: the trunk without its last stage, the third one at stride 1.

Six feature maps of 38, 19, 10, 5, 3 and 1 pixels a side, 8732 boxes; 20.15 billion multiply-accumulates at 300x300 with
the 81 classes of COCO.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from disco_pruning.models.resnet50 import RESNET50_BLOCKS, ResNetTrunk

_MAP_CHANNELS = (1024, 512, 512, 256, 256, 256)
_MIDDLE_CHANNELS = (256, 256, 128, 128, 128)
_BOXES = (4, 6, 6, 6, 4, 4)
"""Default boxes at each pixel of each feature map."""


class ExtraBlock(nn.Module):
    """1x1 and 3x3 convolution that make the next smaller feature map."""

    def __init__(self, in_channels: int, middle: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, middle, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(middle)
        # The last maps shrink by the border of the window, not by a stride.
        self.conv2 = nn.Conv2d(middle, out_channels, 3, stride, padding=stride - 1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """[n, in, h, w] to [n, out, h / 2, w / 2] or [n, out, h - 2, w - 2]."""
        x = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(x)))


class SSD300(nn.Module):
    """Boxes and class scores from six feature maps."""

    def __init__(self, classes: int = 81) -> None:
        super().__init__()
        self.classes = classes
        self.backbone = ResNetTrunk(RESNET50_BLOCKS[:3], strides=(1, 2, 1))
        shapes = zip(_MAP_CHANNELS[:-1], _MIDDLE_CHANNELS, _MAP_CHANNELS[1:], (2, 2, 2, 1, 1), strict=True)
        self.extra = nn.ModuleList(ExtraBlock(*shape) for shape in shapes)
        heads = tuple(zip(_MAP_CHANNELS, _BOXES, strict=True))
        self.loc = nn.ModuleList(nn.Conv2d(channels, 4 * boxes, 3, padding=1) for channels, boxes in heads)
        self.conf = nn.ModuleList(nn.Conv2d(channels, classes * boxes, 3, padding=1) for channels, boxes in heads)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Images [n, 3, 300, 300] to offsets [n, 4, boxes] and scores [n, classes, boxes]."""
        maps = [self.backbone.features(x)[-1]]
        for block in self.extra:
            maps.append(block(maps[-1]))
        offsets, scores = [], []
        for features, loc, conf in zip(maps, self.loc, self.conf, strict=True):
            offsets.append(loc(features).unflatten(1, (4, -1)).flatten(2))
            scores.append(conf(features).unflatten(1, (self.classes, -1)).flatten(2))
        return torch.cat(offsets, 2), torch.cat(scores, 2)
