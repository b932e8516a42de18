"""The generator of ESRGAN (Wang et al., ECCV workshops 2018): 23 residual-in-residual dense blocks, x4.

16,697,987 parameters.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_SLOPE = 0.2  # of the leaky ReLU
_SCALE = 0.2  # of what a block adds to its input


class DenseBlock(nn.Module):
    """Five 3x3 convolutions, each of which reads the block's input and all outputs before it."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.conv1 = _conv3x3(channels, growth)
        self.conv2 = _conv3x3(channels + growth, growth)
        self.conv3 = _conv3x3(channels + 2 * growth, growth)
        self.conv4 = _conv3x3(channels + 3 * growth, growth)
        self.conv5 = _conv3x3(channels + 4 * growth, channels)

    def forward(self, x: Tensor) -> Tensor:
        """[n, channels, h, w] to the same shape."""
        joined = x
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            joined = torch.cat([joined, F.leaky_relu(conv(joined), _SLOPE)], 1)
        return x + _SCALE * self.conv5(joined)  # type: ignore[no-any-return]


class ResidualDenseBlocks(nn.Module):
    """Three dense blocks with a shortcut around them (RRDB)."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.dense = nn.Sequential(*(DenseBlock(channels, growth) for _ in range(3)))

    def forward(self, x: Tensor) -> Tensor:
        """[n, channels, h, w] to the same shape."""
        return x + _SCALE * self.dense(x)  # type: ignore[no-any-return]


class RRDBNet(nn.Module):
    """Low-resolution image in, an image of four times its height and width out."""

    def __init__(self, blocks: int = 23, channels: int = 64, growth: int = 32) -> None:
        super().__init__()
        self.conv_first = _conv3x3(3, channels)
        self.trunk = nn.Sequential(*(ResidualDenseBlocks(channels, growth) for _ in range(blocks)))
        self.trunk_conv = _conv3x3(channels, channels)
        self.upconv1 = _conv3x3(channels, channels)
        self.upconv2 = _conv3x3(channels, channels)
        self.hr_conv = _conv3x3(channels, channels)
        self.conv_last = _conv3x3(channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        """[n, 3, h, w] to [n, 3, 4 h, 4 w]."""
        x = self.conv_first(x)
        x = x + self.trunk_conv(self.trunk(x))
        for conv in (self.upconv1, self.upconv2):
            x = F.leaky_relu(conv(F.interpolate(x, scale_factor=2.0, mode="nearest")), _SLOPE)
        return self.conv_last(F.leaky_relu(self.hr_conv(x), _SLOPE))  # type: ignore[no-any-return]


def _conv3x3(in_channels: int, out_channels: int) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, 3, padding=1)
