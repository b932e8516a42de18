"""The image set: letters of many procedural fonts, warped, on cluttered and noisy backgrounds. No files, no downloads.

A letter is a few strokes; a font bends, rounds, slants, stretches, thickens and serifs the strokes of all letters in
its own way. Training and test images are drawn in different fonts. Everything follows from seeds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

SIZE = 32
CLASSES = 10
TRAIN_FONTS, TUNING_FONTS, TEST_FONTS = range(200), range(1000, 1100), range(3000, 3100)
_CORNERS = 2  # rounds of corner cutting
_POINTS = 8  # control points of a stroke, and segments of a serif or distractor
_CHUNK = 256
_MEAN, _DEVIATION = 0.45, 0.25

# Strokes of each letter: control points as column and row digits on a grid of 5 columns (0..4) and 7 rows (0..6).
_LETTERS = {
    "A": ("06 20 46", "14 34"),
    "B": ("06 00 30 41 32 03", "03 33 44 45 36 06"),
    "C": ("41 30 10 01 05 16 36 45",),
    "D": ("06 00 30 41 45 36 06",),
    "E": ("40 00 06 46", "03 33"),
    "F": ("40 00 06", "03 33"),
    "G": ("41 30 10 01 05 16 36 45 43 23",),
    "H": ("00 06", "40 46", "03 43"),
    "K": ("00 06", "40 03 46"),
    "O": ("20 10 01 05 16 36 45 41 30 20",),
    "P": ("06 00 30 41 42 33 03",),
    "Q": ("20 10 01 05 16 36 45 41 30 20", "24 46"),
    "R": ("06 00 30 41 42 33 03", "23 46"),
    "S": ("41 30 10 01 02 13 33 44 45 36 16 05",),
    "X": ("00 46", "40 06"),
    "Z": ("00 40 06 46",),
}


@dataclass(frozen=True)
class Images:
    """images [n, 3, SIZE, SIZE], float32, 0 to 1 less _MEAN and over _DEVIATION; labels [n], int64."""

    images: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Difficulty:
    """How much is done to an image.

    Attributes:
        noise: Standard deviation of each value.
        distractors: Stray strokes.
        warp: 1 for all turns, shears, bends and shifts, 0 for none.
        lighter: Whether ink is always lighter than its background, instead of lighter or darker in each colour.
    """

    noise: float = 0.1
    distractors: int = 2
    warp: float = 1.0
    lighter: bool = False


HARD = Difficulty()
PLAIN = Difficulty(noise=0.05, distractors=0, warp=0.5, lighter=True)


def draw(count: int, fonts: range, seed: int, difficulty: Difficulty = HARD) -> Images:
    """`count` images, classes evenly mixed, each letter in a random one of `fonts`."""
    random = torch.Generator().manual_seed(seed)
    labels = (torch.arange(count) % CLASSES)[torch.randperm(count, generator=random)]
    alphabet = torch.stack([_font(font) for font in fonts])  # [fonts, letters, segments, 4]
    picked = alphabet[torch.randint(len(fonts), (count,), generator=random), labels]
    chunks = [_render(segments, random, difficulty) for segments in picked.split(_CHUNK)]
    return Images((torch.cat(chunks) - _MEAN) / _DEVIATION, labels)


def _font(font: int) -> Tensor:
    """[CLASSES, segments, 4]: from x0, y0 to x1, y1 in -1 to 1; letters with few strokes repeat their last segment."""
    random = torch.Generator().manual_seed(7919 * font + 1)
    style = torch.rand(6, generator=random)
    letters = []
    for name in list(_LETTERS)[:CLASSES]:
        strokes = [_stroke(text, style, random) for text in _LETTERS[name]]
        letters.append(torch.cat(strokes))
    most = max(len(letter) for letter in letters)
    return torch.stack([torch.cat([x, x[-1:].expand(most - len(x), 4)]) for x in letters])


def _stroke(text: str, style: Tensor, random: torch.Generator) -> Tensor:
    """[segments, 4] one stroke in the style of a font."""
    grid = torch.tensor([[int(point[0]), int(point[1])] for point in text.split()], dtype=torch.float32)
    points = grid / torch.tensor([2.0, 3.0]) - 1
    points = points + 0.22 * (torch.rand(points.shape, generator=random) - 0.5)
    cut = 0.05 + 0.25 * float(style[0])  # small: angular, large: round
    for _ in range(_CORNERS):
        points = _cut_corners(points, cut)
    x, y = points[:, 0], points[:, 1]
    middle = 0.3 * (style[1] - 0.5)  # waist above or below the centre
    y = y + middle * (1 - y.square())
    x = (0.5 + 0.4 * style[2]) * x + 0.5 * (style[3] - 0.5) * y  # width and slant
    points = torch.stack([x, 0.9 * y], 1)
    segments = torch.cat([points[:-1], points[1:]], 1)
    serif = 0.22 * torch.relu(style[4] - 0.4)
    bars = [torch.cat([end - serif * _SIDE, end + serif * _SIDE]) for end in (points[0], points[-1])]
    return torch.cat([segments, torch.stack(bars)])


_SIDE = torch.tensor([1.0, 0.0])


def _cut_corners(points: Tensor, cut: float) -> Tensor:
    """Chaikin's corner cutting, which keeps both ends."""
    first, second = points[:-1], points[1:]
    inner = torch.stack([first + cut * (second - first), second - cut * (second - first)], 1).flatten(0, 1)
    return torch.cat([points[:1], inner[1:-1], points[-1:]]) if len(points) > 2 else points


def _render(segments: Tensor, random: torch.Generator, difficulty: Difficulty) -> Tensor:
    """Letters [n, segments, 4] to images [n, 3, SIZE, SIZE]."""
    count = len(segments)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand((count, *shape), generator=random)

    ends = segments.unflatten(2, (2, 2))
    warp = difficulty.warp
    bend = warp * uniform(-0.25, 0.25, 2, 2)  # the letter's lines become parabolas
    ends = ends + torch.einsum("nsek,nkd->nsed", ends.square(), bend)
    angle, scale = warp * uniform(-0.45, 0.45), uniform(0.45, 0.85)
    turn = torch.stack([torch.stack([angle.cos(), -angle.sin()], 1), torch.stack([angle.sin(), angle.cos()], 1)], 1)
    shear = warp * uniform(-0.25, 0.25, 2, 2) + torch.eye(2)
    ends = scale[:, None, None, None] * torch.einsum("nsek,nkj,njd->nsed", ends, shear, turn)
    ends = ends + warp * uniform(-0.25, 0.25, 1, 1, 2)
    letter = _ink(ends, uniform(0.05, 0.13))

    background = uniform(0.0, 0.4 if difficulty.lighter else 1.0, 3, 1, 1)
    strength = uniform(0.3, 0.7, 3, 1, 1)
    up = uniform(0, 1, 3, 1, 1) < 0.5
    # Where a step would leave 0 to 1 it goes the other way.
    up = (up & (background + strength <= 1)) | (background < strength) | difficulty.lighter
    step = torch.where(up, strength, -strength)
    image = background + _shade(count, random)
    for _ in range(difficulty.distractors):
        start, path = uniform(-1.1, 1.1, 1, 2), uniform(-0.5, 0.5, 3, 2).cumsum(1)
        points = torch.cat([start, start + path], 1)
        stray = _ink(torch.stack([points[:, :-1], points[:, 1:]], 2), uniform(0.04, 0.12))
        image = torch.lerp(image, uniform(0, 1, 3, 1, 1), 0.7 * stray)
    image = image + step * letter
    image = image + difficulty.noise * torch.randn(image.shape, generator=random)
    return image.clamp(0, 1)


def _shade(count: int, random: torch.Generator) -> Tensor:
    """[count, 3, SIZE, SIZE] soft spots of brightness."""
    coarse = 0.12 * torch.randn((count, 3, 4, 4), generator=random)
    return functional.interpolate(coarse, SIZE, mode="bicubic", align_corners=False)


def _ink(ends: Tensor, radius: Tensor) -> Tensor:
    """[n, 1, SIZE, SIZE] 1 within `radius` [n] of a segment [n, segments, 2 ends, 2], with a soft edge."""
    axis = (torch.arange(SIZE) + 0.5) * (2 / SIZE) - 1
    pixels = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), 2).flatten(0, 1)  # [pixels, 2]
    start, span = ends[:, :, 0], ends[:, :, 1] - ends[:, :, 0]
    apart = pixels - start[:, :, None]  # [n, segments, pixels, 2]
    along = (apart * span[:, :, None]).sum(3) / span.square().sum(2).clamp(min=1e-6)[:, :, None]
    nearest = (apart - along.clamp(0, 1)[..., None] * span[:, :, None]).square().sum(3).amin(1).sqrt()
    ink = ((radius[:, None] - nearest) * (SIZE / 2) + 0.5).clamp(0, 1)
    return ink.unflatten(1, (1, SIZE, SIZE))
