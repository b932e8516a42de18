"""The rows of all runs, put together over their seeds."""

from __future__ import annotations

import csv
import dataclasses
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from networks import latency_ms

from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SUMMARY = (
    "experiment", "network", "nodes", "method", "sparsity", "seeds", "epochs", "s_comm", "latency_ms", "accuracy_mean",
    "accuracy_spread",
)  # fmt: skip
EXPERIMENTS = ("latency", "branches", "balance")
NAMES = {"cnn": "ResNet-8", "deit": "DeiT", **{f"branches{n}": f"{n} branches" for n in (2, 4, 8)}}
METHODS = {
    "dense": "dense exchange",
    "disco": "DISCO",
    "random": "random sub-rows",
    "scratch": "independent branches from scratch",
    "uniform": "uniform",
    "equilibrium": "equilibrium",
}


@dataclass(frozen=True)
class Point:
    """The runs of all seeds that differ in nothing else."""

    experiment: str
    network: str
    nodes: int
    method: str
    sparsity: float
    epochs: int
    s_comm: float
    latency_ms: float
    accuracies: dict[int, float]
    """By seed, 0 to 1."""

    @property
    def mean(self) -> float:
        """Of the accuracies."""
        return statistics.mean(self.accuracies.values())

    @property
    def spread(self) -> float:
        """The sample standard deviation of the accuracies, 0 of one."""
        return statistics.stdev(self.accuracies.values()) if len(self.accuracies) > 1 else 0.0

    def of(self, seeds: list[int]) -> Point:
        """Those of some seeds alone."""
        return dataclasses.replace(self, accuracies={seed: self.accuracies[seed] for seed in seeds})

    def row(self) -> dict[str, str]:
        """For the summary."""
        values = (
            self.experiment, self.network, self.nodes, self.method, f"{self.sparsity:g}", len(self.accuracies),
            self.epochs, f"{self.s_comm:.4f}", f"{self.latency_ms:.3f}", f"{self.mean:.4f}", f"{self.spread:.4f}",
        )  # fmt: skip
        return dict(zip(SUMMARY, map(str, values), strict=True))


class Results:
    """Points by experiment, network, method and sparsity."""

    def __init__(self, rows: Iterable[dict[str, str]]) -> None:
        groups: dict[tuple[str, str, str, float], list[dict[str, str]]] = {}
        for row in rows:
            key = row["experiment"], row["network"], row["method"], float(row["sparsity"])
            groups.setdefault(key, []).append(row)
        self._points = {key: _point(key, groups[key]) for key in sorted(groups, key=_place)}

    def all(self, experiment: str = "", network: str = "", method: str = "") -> list[Point]:
        """Those of one experiment, network, method, or of all; by experiment, network, method and sparsity."""
        return [
            point
            for point in self._points.values()
            if experiment in ("", point.experiment) and network in ("", point.network) and method in ("", point.method)
        ]

    def get(self, experiment: str, network: str, method: str, sparsity: float) -> Point | None:
        """One, if it was run."""
        return self._points.get((experiment, network, method, sparsity))


def _place(key: tuple[str, str, str, float]) -> tuple[int, ...]:
    """Where it comes on the page."""
    experiment, network, method, sparsity = key
    return EXPERIMENTS.index(experiment), list(NAMES).index(network), list(METHODS).index(method), round(1e4 * sparsity)


def _point(key: tuple[str, str, str, float], rows: list[dict[str, str]]) -> Point:
    return Point(
        *key[:2],
        int(rows[0]["nodes"]),
        *key[2:],
        int(rows[0]["epochs"]),
        statistics.mean(float(row["s_comm"]) for row in rows),
        statistics.mean(float(row["latency_ms"]) for row in rows),
        {int(row["seed"]): float(row["accuracy"]) for row in rows},
    )


def load(runs: Path) -> Results:
    """The rows of a CSV file, each with the latency that its pruned sub-rows leave.

    Raises:
        DiscoError: There is none.
    """
    if not runs.exists():
        raise DiscoError(f"there are no results in {runs}: run experiments/run.py first")
    with runs.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["latency_ms"] = str(latency_ms(row["network"], [int(count) for count in row["pruned"].split()]))
    return Results(rows)


def write_summary(results: Results, path: Path) -> None:
    """Mean and spread of every point, as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, SUMMARY, lineterminator="\n")
        writer.writeheader()
        writer.writerows(point.row() for point in results.all())
