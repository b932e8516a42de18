"""Order statistics of repeated measurements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Summary:
    """Median, 95th percentile and extremes of one quantity, in the unit of the samples."""

    median: float
    p95: float
    min: float
    max: float


def summarise(samples: Sequence[float]) -> Summary:
    """Summarises at least one sample.

    The 95th percentile is the nearest-rank one: always a value that was observed. The median of an
    even number of samples is the mean of the middle two.

    Raises:
        ValueError: No samples.
    """
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    count = len(ordered)
    middle = count // 2
    median = ordered[middle] if count % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    rank = math.ceil(0.95 * count)
    return Summary(median=median, p95=ordered[rank - 1], min=ordered[0], max=ordered[-1])
