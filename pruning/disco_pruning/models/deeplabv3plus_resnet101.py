"""DeepLabV3+ (Chen et al., ECCV 2018) on ResNet-101 at output stride 16.

Plain (not separable) convolutions in the pyramid, rates 6, 12 and 18, a low-level projection of 48 channels and one 3x3
convolution in the decoder; 83.0 billion multiply-accumulates at 513x513 with 21 classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from disco_pruning.models.resnet50 import EXPANSION, RESNET101_BLOCKS, WIDTHS, ResNetTrunk

_RATES = (6, 12, 18)
_CHANNELS = 256
_LOW_CHANNELS = 48


class DeepLabV3Plus(nn.Module):
    """Atrous spatial pyramid over the last stage, joined with a projection of the first one."""

    def __init__(self, classes: int = 21) -> None:
        super().__init__()
        self.backbone = ResNetTrunk(RESNET101_BLOCKS, strides=(1, 2, 2, 1), dilations=(1, 1, 1, 2))
        high, low = EXPANSION * WIDTHS[-1], EXPANSION * WIDTHS[0]
        # The pyramid: 1x1, three dilated 3x3, and the mean of the image.
        self.aspp1 = nn.Conv2d(high, _CHANNELS, 1, bias=False)
        self.aspp1_norm = nn.BatchNorm2d(_CHANNELS)
        self.aspp = nn.ModuleList(
            nn.Conv2d(high, _CHANNELS, 3, padding=rate, dilation=rate, bias=False) for rate in _RATES
        )
        self.aspp_norms = nn.ModuleList(nn.BatchNorm2d(_CHANNELS) for _ in _RATES)
        self.pool = nn.Conv2d(high, _CHANNELS, 1, bias=False)
        self.pool_norm = nn.BatchNorm2d(_CHANNELS)
        self.proj = nn.Conv2d((2 + len(_RATES)) * _CHANNELS, _CHANNELS, 1, bias=False)
        self.proj_norm = nn.BatchNorm2d(_CHANNELS)
        # The decoder.
        self.low = nn.Conv2d(low, _LOW_CHANNELS, 1, bias=False)
        self.low_norm = nn.BatchNorm2d(_LOW_CHANNELS)
        self.d = nn.ModuleList([nn.Conv2d(_CHANNELS + _LOW_CHANNELS, _CHANNELS, 3, padding=1, bias=False)])
        self.d_norms = nn.ModuleList([nn.BatchNorm2d(_CHANNELS)])
        self.cls = nn.Conv2d(_CHANNELS, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, 3, h, w] to logits [n, classes, h, w]."""
        stages = self.backbone.features(x)
        y = self._pyramid(stages[-1])
        low = F.relu(self.low_norm(self.low(stages[0])))
        y = torch.cat([low, _resize(y, low)], 1)
        for conv, norm in zip(self.d, self.d_norms, strict=True):
            y = F.relu(norm(conv(y)))
        return _resize(self.cls(y), x)

    def _pyramid(self, x: Tensor) -> Tensor:
        branches = [F.relu(self.aspp1_norm(self.aspp1(x)))]
        branches += [F.relu(norm(conv(x))) for conv, norm in zip(self.aspp, self.aspp_norms, strict=True)]
        mean = F.relu(self.pool_norm(self.pool(F.adaptive_avg_pool2d(x, 1))))
        branches.append(_resize(mean, x))
        return F.relu(self.proj_norm(self.proj(torch.cat(branches, 1))))


def _resize(x: Tensor, like: Tensor) -> Tensor:
    return F.interpolate(x, like.shape[-2:], mode="bilinear", align_corners=False)
