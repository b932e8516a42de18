"""A network on a cluster at given sparsities: everything that `disco-latency` reports."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from disco_planning.latency import equal_cluster, latencies, layer_costs, one_node_seconds, total_seconds
from disco_planning.layers import as_row
from disco_planning.planner import equilibrium, mean_sparsity, uniform

if TYPE_CHECKING:
    from collections.abc import Iterable

    from disco_planning.latency import Cluster, Convention, LayerCost, LayerLatency, Sparsities
    from disco_planning.sources import Network
    from disco_planning.systems import System


@dataclass(frozen=True)
class Point:
    """Totals in seconds of one cluster of a sweep."""

    nodes: int
    bandwidth_bytes_per_s: float
    dense_seconds: float
    equilibrium_seconds: float
    no_exchange_seconds: float
    uniform_seconds: float | None
    """At the uniform sparsity that was asked for, if any."""


@dataclass(frozen=True)
class Analysis:
    """Layers, totals and what they are compared with, projected by the latency model."""

    model: str
    system: System
    cluster: Cluster
    convention: Convention
    rows: tuple[LayerLatency, ...]
    total_seconds: float
    dense_seconds: float
    """The same nodes with everything sent."""
    one_node_seconds: float
    """The fastest node alone."""
    no_exchange_seconds: float
    """The same nodes with nothing sent."""
    mean_sparsity: float
    """Over the layers that can be pruned."""

    def to_json(self) -> dict[str, Any]:
        """Plain lists, dicts, strings and numbers."""
        return {
            "model": self.model,
            "nodes": self.cluster.nodes,
            "system": {**dataclasses.asdict(self.system), **dataclasses.asdict(self.cluster)},
            "convention": dataclasses.asdict(self.convention),
            "total_seconds": self.total_seconds,
            "dense_seconds": self.dense_seconds,
            "one_node_seconds": self.one_node_seconds,
            "no_exchange_seconds": self.no_exchange_seconds,
            "speedup_over_dense": self.dense_seconds / self.total_seconds,
            "speedup_over_one_node": self.one_node_seconds / self.total_seconds,
            "mean_sparsity": self.mean_sparsity,
            "layers": [_layer_json(row) for row in self.rows],
        }


def analyse(
    network: Network,
    system: System,
    cluster: Cluster,
    costs: tuple[LayerCost, ...],
    sparsities: Sparsities,
    convention: Convention,
) -> Analysis:
    """All figures of `network` (whose layers cost `costs`) at `sparsities`."""
    rows = latencies(costs, sparsities, convention)
    actual = {row.cost.layer.name: row.sparsity for row in rows}
    return Analysis(
        model=network.name,
        system=system,
        cluster=cluster,
        convention=convention,
        rows=rows,
        total_seconds=total_seconds(rows),
        dense_seconds=_total(costs, {}, convention),
        one_node_seconds=one_node_seconds(network.layers, cluster, convention),
        no_exchange_seconds=_total(costs, uniform(costs, 1.0), convention),
        mean_sparsity=mean_sparsity(costs, actual),
    )


def sweep(
    network: Network,
    nodes: Iterable[int],
    bandwidths: Iterable[float],
    operations_per_s: float,
    convention: Convention,
    sparsity: float | None = None,
) -> tuple[Point, ...]:
    """Totals for each number of equal nodes with each bandwidth (bytes per second)."""
    points = []
    for count in nodes:
        for bandwidth in bandwidths:
            costs = layer_costs(network.layers, equal_cluster(count, bandwidth, operations_per_s), convention)
            points.append(
                Point(
                    nodes=count,
                    bandwidth_bytes_per_s=bandwidth,
                    dense_seconds=_total(costs, {}, convention),
                    equilibrium_seconds=_total(costs, equilibrium(costs), convention),
                    no_exchange_seconds=_total(costs, uniform(costs, 1.0), convention),
                    uniform_seconds=None if sparsity is None else _total(costs, uniform(costs, sparsity), convention),
                )
            )
    return tuple(points)


def _total(costs: tuple[LayerCost, ...], sparsities: Sparsities, convention: Convention) -> float:
    return total_seconds(latencies(costs, sparsities, convention))


def _layer_json(row: LayerLatency) -> dict[str, Any]:
    return {
        **as_row(row.cost.layer),
        "prunable": row.cost.prunable,
        "sparsity": row.sparsity,
        "comm_seconds": row.comm_seconds,
        "comp_seconds": row.comp_seconds,
        "seconds": row.seconds,
    }
