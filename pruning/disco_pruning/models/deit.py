"""DeiT (Touvron et al., ICML 2021) without the distillation token: a vision transformer, and a small one to train here.

DeiT-small: 22,050,664 parameters; at 224x224 4.24 billion multiply-accumulates in convolutions and linear layers, 4.6
with the products of the attention.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_EPSILON = 1e-6  # of the layer norms


class Attention(nn.Module):
    """Self-attention; one linear layer makes queries, keys and values, each of them head after head."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(features, 3 * features)
        self.proj = nn.Linear(features, features)

    def forward(self, x: Tensor) -> Tensor:
        """[n, tokens, features] to the same shape."""
        queries, keys, values = self.qkv(x).chunk(3, dim=-1)
        y = F.scaled_dot_product_attention(self._by_head(queries), self._by_head(keys), self._by_head(values))
        return self.proj(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _by_head(self, x: Tensor) -> Tensor:
        """[n, tokens, features] to [n, heads, tokens, features / heads]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # type: ignore[no-any-return, no-untyped-call]


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a layer norm and with a shortcut."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(features, eps=_EPSILON)
        self.attention = Attention(features, heads)
        self.norm2 = nn.LayerNorm(features, eps=_EPSILON)
        self.fc1 = nn.Linear(features, 4 * features)
        self.fc2 = nn.Linear(4 * features, features)

    def forward(self, x: Tensor) -> Tensor:
        """[n, tokens, features] to the same shape."""
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))  # type: ignore[no-any-return]


class DeiT(nn.Module):
    """Patches and a class token through `depth` blocks; the class token's features are classified.

    Args:
        image_size: Height and width of the images in pixels, a multiple of `patch`.
        patch: Height and width of a patch.
        features: Features of a token, a multiple of `heads`.
        depth: Number of blocks.
        heads: Heads of each attention.
        classes: Number of logits.
    """

    def __init__(self, image_size: int, patch: int, features: int, depth: int, heads: int, classes: int) -> None:
        super().__init__()
        tokens = 1 + (image_size // patch) ** 2
        self.patches = nn.Conv2d(3, features, patch, stride=patch)
        self.class_token = nn.Parameter(torch.empty(1, 1, features))
        self.positions = nn.Parameter(torch.empty(1, tokens, features))
        self.blocks = nn.Sequential(*(Block(features, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(features, eps=_EPSILON)
        self.head = nn.Linear(features, classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the linear layers, the class token and the positions anew; the rest is as its modules draw it."""
        self.apply(_initialise)
        nn.init.trunc_normal_(self.class_token, std=0.02)
        nn.init.trunc_normal_(self.positions, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, 3, image_size, image_size] to logits [n, classes]."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        x = self.norm(self.blocks(x))
        return self.head(x[:, 0])  # type: ignore[no-any-return]


def deit_small(classes: int = 1000) -> DeiT:
    """DeiT-small for 224x224 images: 197 tokens of 384 features, 12 blocks of 6 heads."""
    return DeiT(image_size=224, patch=16, features=384, depth=12, heads=6, classes=classes)


def deit_micro(classes: int = 10) -> DeiT:
    """A DeiT that a CPU trains in minutes, for 32x32 images: 65 tokens of 96 features, 4 blocks of 4 heads."""
    return DeiT(image_size=32, patch=4, features=96, depth=4, heads=4, classes=classes)


def _initialise(module: nn.Module) -> None:
    """The published initialisation: without it a transformer this deep trains slowly."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)
