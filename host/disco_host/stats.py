"""Order statistics of repeated measurements."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Summary:
    """Median, percentiles, extremes and spread of one quantity, in the unit of the samples."""

    median: float
    p95: float
    p99: float
    min: float
    max: float
    standard_deviation: float
    """Of the population: 0 for one sample."""


def summarise(samples: Sequence[float]) -> Summary:
    """Summarises at least one sample.

    Percentiles are the nearest-rank ones: always values that were observed. The median of an even
    number of samples is the mean of the middle two.

    Raises:
        ValueError: No samples.
    """
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    count = len(ordered)
    p95, p99 = (ordered[math.ceil(part * count / 100) - 1] for part in (95, 99))
    mean = math.fsum(ordered) / count
    deviation = math.sqrt(math.fsum((sample - mean) ** 2 for sample in ordered) / count)
    return Summary(statistics.median(ordered), p95, p99, ordered[0], ordered[-1], deviation)
