"""The example's data: scikit-learn's 8x8 digits made into 32x32 colour images, and harder.

Each of the 1797 scanned digits is enlarged (bilinear), turned, scaled and shifted a little, painted
in a random colour on a random background, and overlaid with noise. All of it is seeded, so that the
same digit and seed always give the same image.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional

SIZE = 32
TRAIN, CALIBRATION = 1201, 96  # the other 500 digits are the test split
_SPLIT_SEED = 2024


@dataclass(frozen=True)
class Digits:
    """One split: the scanned digits [n, 1, 8, 8] in 0..1 and their labels [n]."""

    scans: Tensor
    labels: Tensor

    def images(self, seed: int) -> Tensor:
        """The split as images [n, 3, 32, 32], float32 in 0..1; another seed, another rendering."""
        return render(self.scans, torch.Generator().manual_seed(seed))


def load_splits() -> tuple[Digits, Digits, Digits]:
    """The train, calibration and test splits; a fixed shuffle, no digit is in two of them."""
    source = load_digits()
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(source.target))
    scans = torch.tensor(source.images[order] / 16.0, dtype=torch.float32)[:, None]
    labels = torch.tensor(source.target[order], dtype=torch.long)
    ends = (0, TRAIN, TRAIN + CALIBRATION, len(labels))
    train, calibration, test = (Digits(scans[a:b], labels[a:b]) for a, b in pairwise(ends))
    return train, calibration, test


def render(scans: Tensor, random: torch.Generator) -> Tensor:
    """Scans [n, 1, 8, 8] to images [n, 3, 32, 32]: warp, colour, noise."""
    count = len(scans)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand((count, *shape), generator=random)

    angle = torch.deg2rad(uniform(-30.0, 30.0))
    scale = uniform(1.0, 1.8)  # how many times the digit fits into the image
    cos, sin = scale * torch.cos(angle), scale * torch.sin(angle)
    shift_x, shift_y = uniform(-0.3, 0.3), uniform(-0.3, 0.3)  # in halves of the image
    rows = (torch.stack([cos, -sin, shift_x], 1), torch.stack([sin, cos, shift_y], 1))
    grid = functional.affine_grid(torch.stack(rows, 1), [count, 1, SIZE, SIZE], align_corners=False)
    ink = functional.grid_sample(scans, grid, mode="bilinear", align_corners=False)
    background = uniform(0.0, 0.4, 3, 1, 1)
    # Ink is lighter than its background, by another amount in each colour channel.
    contrast = uniform(0.1, 0.4, 3, 1, 1)
    noise = 0.15 * torch.randn((count, 3, SIZE, SIZE), generator=random)
    return (background + ink * contrast + noise).clamp(0.0, 1.0)
