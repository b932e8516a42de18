"""Tiny PyTorch networks, one for each way in which ownership travels."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def conv_bn(in_channels: int, out_channels: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU6(),
    )


class DsCnn(nn.Module):
    """The keyword spotter of MLPerf Tiny in small: a stem and depthwise separable blocks; input [n, 1, 12, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_bn(1, 8, stride=2)
        self.blocks = nn.Sequential(conv_bn(8, 8, groups=8), conv_bn(8, 12, 1), conv_bn(12, 12, groups=12))
        self.last = conv_bn(12, 10, 1)
        self.classifier = nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.last(self.blocks(self.stem(x))).mean((2, 3)))


class InvertedResidual(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        hidden = 3 * in_channels
        self.expand = conv_bn(in_channels, hidden, 1)
        self.depthwise = conv_bn(hidden, hidden, stride=stride, groups=hidden)
        self.project = nn.Sequential(nn.Conv2d(hidden, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels))
        self.residual = stride == 1 and in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


class MobileNet(nn.Module):
    """Inverted residual blocks; input [n, 3, 16, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_bn(3, 6, stride=2)
        self.blocks = nn.Sequential(
            InvertedResidual(6, 7, 1),
            InvertedResidual(7, 7, 1),
            InvertedResidual(7, 10, 2),
            InvertedResidual(10, 10, 1),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(10, 4))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1)
        return self.classifier(y.flatten(1))


class Attention(nn.Module):
    """A fused qkv projection, heads by scaled dot product or by hand, an MLP; input [n, 5, 7]."""

    def __init__(self, heads: int = 4, width: int = 24, by_hand: bool = False, norm: bool = False) -> None:
        super().__init__()
        self.heads, self.by_hand = heads, by_hand
        self.embed = nn.Linear(7, width)
        self.position = nn.Parameter(torch.randn(1, 6, width))
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.head = nn.Linear(width, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), self.embed(x)], 1) + self.position
        n, tokens, width = x.shape
        parts = self.qkv(self.norm(x)).reshape(n, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        if self.by_hand:
            weights = (q @ k.transpose(-2, -1) * (width / self.heads) ** -0.5).softmax(-1)
            y = weights @ v
        else:
            y = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.project(y.transpose(1, 2).reshape(n, tokens, width))
        return self.head((x + self.mlp(x))[:, 0])


class Upscaler(nn.Module):
    """Dense concatenation, resize and pixel shuffle; input [n, 3, 6, 6]."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 4, 3, padding=1)
        self.third = nn.Conv2d(10, 6, 3, padding=1)
        self.up = nn.Conv2d(6, 12, 3, padding=1)
        self.shuffle = nn.PixelShuffle(2)
        self.last = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        a = functional.leaky_relu(self.first(x), 0.2)
        b = functional.leaky_relu(self.second(a), 0.2)
        c = a + self.third(torch.cat([a, b], 1)) * 0.2
        c = functional.interpolate(c, scale_factor=2, mode="nearest")
        return self.last(self.shuffle(self.up(c)))


class Grouped(nn.Module):
    """A grouped convolution whose groups follow ownership for 2 nodes, one whose groups do not, and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, padding=1)
        self.follows = nn.Conv2d(12, 12, 3, padding=1, groups=4)
        self.mixes = nn.Conv2d(12, 12, 3, padding=1, groups=3)
        self.squeeze = nn.Conv2d(12, 4, 1)
        self.excite = nn.Conv2d(4, 12, 1)
        self.last = nn.Conv2d(12, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.mixes(self.follows(self.stem(x)).relu()).relu()
        gate = torch.sigmoid(self.excite(self.squeeze(functional.adaptive_avg_pool2d(y, 1)).relu()))
        return self.last(y * gate).amax((2, 3))


class Shuffled(nn.Module):
    """Chunks, one of them passed on as it is, joined and shuffled as ShuffleNet does."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.branch = nn.Conv2d(4, 4, 3, padding=1)
        self.last = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = self.stem(x).chunk(2, 1)
        y = torch.cat([kept, self.branch(changed)], 1)
        n, c, h, w = y.shape
        y = y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        return functional.max_pool2d(self.last(y), 2).flatten(1)


class Mixer(nn.Module):
    """MLP-Mixer's token mixing: a linear layer along an axis that is not shared out; input [n, 5, 7]."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(7, 8)
        self.tokens = nn.Linear(5, 5)
        self.channels = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        x = x + self.tokens(x.transpose(1, 2)).transpose(1, 2)
        return self.channels(x).mean(1)


INPUTS: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "ds_cnn": (DsCnn, (1, 12, 8)),
    "mobilenet": (MobileNet, (3, 16, 16)),
    "attention": (Attention, (5, 7)),
    "upscaler": (Upscaler, (3, 6, 6)),
    "grouped": (Grouped, (3, 6, 6)),
    "shuffled": (Shuffled, (3, 6, 6)),
    "mixer": (Mixer, (5, 7)),
}


def build(name: str, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """(the network with batch statistics other than 0 and 1, in evaluation mode; an example input)."""
    torch.manual_seed(seed)
    kind, shape = INPUTS[name]
    model = kind()
    with torch.no_grad():
        for _ in range(5):
            model(torch.rand(16, *shape))
    return model.eval(), torch.zeros(2, *shape)
