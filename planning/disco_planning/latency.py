"""The latency model of DISCO (Qin et al., WACV 2024, section 4).

A layer moves its input in T = F / B seconds (F bytes, B bytes per second through a node's link) and computes in
K = 2 MACs / (N C) seconds on each of N nodes (C operations per second). Pruned to the communication sparsity S,

    L_comm = T (1 - S)        L_comp = K (1 - S (N - 1) / N)        L = max(L_comm, L_comp)

because transfer and computation hide each other, and the network takes the sum of its layers. The equilibrium sparsity
of a layer makes L_comm = L_comp. All of this is a projection from two figures of a system, no measurement.

`Convention` names each choice that the formulas leave open; its defaults give the paper's figures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from disco_targets.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disco_planning.layers import Layer

TRAFFIC = ("broadcast", "unicast", "receive")
SHARED_TENSORS = ("each", "once")
INPUT = ("shared", "replicated")
INDIVISIBLE = ("dense", "pruned")
ROUNDING = ("none", "sub-rows")
OVERLAP = ("max", "sum")
Sparsities = Mapping[str, float]
"""The communication sparsity of each layer, by name."""
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Convention:
    """What counts, and how. The defaults reproduce the paper."""

    value_bytes: float = 4.0
    """Bytes of one value on the wire: 4 for float32, 1 for int8."""
    operations_per_mac: float = 2.0
    traffic: str = "broadcast"
    """What passes a node's link of a tensor of F bytes shared by N nodes. "broadcast": its own F/N once, and the
    (N-1)F/N of the others, which is F. "unicast": its own once for each other node, 2(N-1)F/N. "receive": what it
    receives, (N-1)F/N (sending costs nothing)."""
    shared_tensors: str = "each"
    """A tensor that several layers read: "each" of them pays for it, or it is sent "once", at the first of them and
    with the least sparsity of all."""
    input: str = "shared"
    """Of the network, which its first layer reads: its channels are "shared" among the nodes and exchanged, or it is
    "replicated" on all of them, as on the boards that disco-export writes for, and costs nothing."""
    indivisible: str = "dense"
    """Layers whose input or output channels the shares do not divide into whole channels stay "dense" (S = 0), or are
    "pruned" like others."""
    rounding: str = "none"
    """"none": sparsity is continuous; "sub-rows": rounded down to whole pruned sub-rows."""
    overlap: str = "max"
    """A layer takes the "max" of transfer and computation, or, where they cannot overlap, their "sum"."""
    exclude: tuple[str, ...] = ()
    """Layers whose names match one of these patterns (*, ?) do not count at all, e.g. "*downsample"."""

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise UsageError(f"{name} is {getattr(self, name)!r}: choose one of {', '.join(choices)}")
        for name in ("value_bytes", "operations_per_mac"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"{name} is {getattr(self, name):g}: a number above zero is needed")


_CHOICES = {
    "traffic": TRAFFIC,
    "shared_tensors": SHARED_TENSORS,
    "input": INPUT,
    "indivisible": INDIVISIBLE,
    "rounding": ROUNDING,
    "overlap": OVERLAP,
}
PAPER = Convention()


@dataclass(frozen=True)
class Cluster:
    """The nodes that share a network, and the link of each."""

    bandwidth_bytes_per_s: float
    operations_per_s: tuple[float, ...]
    """Of each node."""
    shares: tuple[float, ...]
    """The fraction of all channels that each node owns; they sum to 1."""

    def __post_init__(self) -> None:
        if not self.shares or len(self.shares) != len(self.operations_per_s):
            raise UsageError(f"{len(self.shares)} shares for {len(self.operations_per_s)} nodes: give each node one")
        if not all(0 < share <= 1 for share in self.shares):
            raise UsageError(f"shares {_text(self.shares)}: each must be above 0 and at most 1")
        if abs(math.fsum(self.shares) - 1) > _TOLERANCE:
            raise UsageError(
                f"shares {_text(self.shares)} sum to {math.fsum(self.shares):g}, not 1: what one node gets, another "
                "must lose"
            )

    @property
    def nodes(self) -> int:
        """How many."""
        return len(self.shares)


def equal_cluster(nodes: int, bandwidth_bytes_per_s: float, operations_per_s: float) -> Cluster:
    """`nodes` nodes of one kind that own 1/N of the channels each; UsageError for less than one."""
    if nodes < 1:
        raise UsageError(f"{nodes} nodes were asked for: use at least one")
    return Cluster(bandwidth_bytes_per_s, (operations_per_s,) * nodes, (1 / nodes,) * nodes)


@dataclass(frozen=True)
class LayerCost:
    """A layer on a cluster: what it takes at any sparsity."""

    layer: Layer
    prunable: bool
    """False: it stays at S = 0, or it moves nothing (one node, depthwise, a replicated input)."""
    transfer_seconds: float
    """T: of the dense exchange."""
    compute_seconds: tuple[float, ...]
    """K of each node, dense."""
    shares: tuple[float, ...]
    sub_rows: int
    """Off-diagonal sub-rows: in_ch (N - 1), 0 for a layer that moves nothing."""

    def comm(self, sparsity: float) -> float:
        """L_comm."""
        return self.transfer_seconds * (1 - sparsity)

    def comp(self, sparsity: float) -> float:
        """L_comp of the slowest node. One with the share p keeps what reads its own inputs: S_comp = S (1 - p)."""
        return max(k * (1 - sparsity * (1 - p)) for k, p in zip(self.compute_seconds, self.shares, strict=True))

    def equilibrium(self) -> float:
        """S where L_comm = L_comp, 0 where even the dense exchange hides under the computation.

        (T - K) / (T - (N-1) K / N) for equal nodes. Of unequal ones the first to become the bottleneck decides: L_comm
        minus the L_comp of each falls with S, and the least of them crosses zero first.
        """
        t = self.transfer_seconds
        if not self.prunable or t <= max(self.compute_seconds):
            return 0.0
        return min((t - k) / (t - k * (1 - p)) for k, p in zip(self.compute_seconds, self.shares, strict=True))


@dataclass(frozen=True)
class LayerLatency:
    """A layer at one sparsity."""

    cost: LayerCost
    sparsity: float
    comm_seconds: float
    comp_seconds: float
    seconds: float


def layer_costs(layers: Sequence[Layer], cluster: Cluster, convention: Convention = PAPER) -> tuple[LayerCost, ...]:
    """The cost of each layer that counts, in order.

    Raises:
        UsageError: Every layer is excluded.
    """
    counted = [x for x in layers if not any(fnmatchcase(x.name, pattern) for pattern in convention.exclude)]
    if not counted:
        raise UsageError(f"no layer is left beside those excluded by {', '.join(convention.exclude)}")
    sent: set[int] = set()
    costs = []
    for layer in counted:
        replicated = convention.input == "replicated" and layer.src == layers[0].src
        moves = cluster.nodes > 1 and not replicated and not _is_local(layer, cluster)
        pays = moves and not (convention.shared_tensors == "once" and layer.src in sent)
        if moves:
            sent.add(layer.src)
        size = layer.input_values * convention.value_bytes * _passes(cluster, convention)
        operations = layer.macs * convention.operations_per_mac
        costs.append(
            LayerCost(
                layer,
                prunable=moves and (convention.indivisible == "pruned" or _divides(layer, cluster)),
                transfer_seconds=size / cluster.bandwidth_bytes_per_s if pays else 0.0,
                compute_seconds=tuple(
                    operations * p / c for p, c in zip(cluster.shares, cluster.operations_per_s, strict=True)
                ),
                shares=cluster.shares,
                sub_rows=layer.in_ch * (cluster.nodes - 1) if moves else 0,
            )
        )
    return tuple(costs)


def as_pruned(costs: Sequence[LayerCost], sparsities: Sparsities) -> tuple[LayerCost, ...]:
    """The same, where a network is pruned already: what it was pruned in can be pruned, whatever the convention."""
    return tuple(
        dataclasses.replace(cost, prunable=True) if cost.sub_rows and cost.layer.name in sparsities else cost
        for cost in costs
    )


def latencies(
    costs: Sequence[LayerCost], sparsities: Sparsities, convention: Convention = PAPER
) -> tuple[LayerLatency, ...]:
    """Each layer at its sparsity (0 where none is given, and where a layer cannot be pruned)."""
    actual = [_actual(cost, sparsities.get(cost.layer.name, 0.0), convention) for cost in costs]
    least: dict[int, float] = {}  # of all readers of a tensor
    for cost, sparsity in zip(costs, actual, strict=True):
        if cost.sub_rows:
            least[cost.layer.src] = min(sparsity, least.get(cost.layer.src, 1.0))
    result = []
    for cost, sparsity in zip(costs, actual, strict=True):
        once = convention.shared_tensors == "once" and cost.transfer_seconds > 0
        comm = cost.comm(least[cost.layer.src] if once else sparsity)
        comp = cost.comp(sparsity)
        seconds = max(comm, comp) if convention.overlap == "max" else comm + comp
        result.append(LayerLatency(cost, sparsity, comm, comp, seconds))
    return tuple(result)


def total_seconds(rows: Sequence[LayerLatency]) -> float:
    """Of the network."""
    return math.fsum(row.seconds for row in rows)


def one_node_seconds(layers: Sequence[Layer], cluster: Cluster, convention: Convention = PAPER) -> float:
    """The whole network on the fastest node alone."""
    alone = equal_cluster(1, cluster.bandwidth_bytes_per_s, max(cluster.operations_per_s))
    return total_seconds(latencies(layer_costs(layers, alone, convention), {}, convention))


def _actual(cost: LayerCost, sparsity: float, convention: Convention) -> float:
    if not cost.prunable:
        return 0.0
    if convention.rounding == "sub-rows":
        return math.floor(sparsity * cost.sub_rows + _TOLERANCE) / cost.sub_rows
    return sparsity


def _passes(cluster: Cluster, convention: Convention) -> float:
    """How many times a tensor's size passes the busiest node's link; `Convention.traffic` for equal nodes."""
    if convention.traffic == "broadcast":
        return 1.0
    if convention.traffic == "unicast":
        return max(p * (cluster.nodes - 1) + (1 - p) for p in cluster.shares)
    return 1 - min(cluster.shares)


def _is_local(layer: Layer, cluster: Cluster) -> bool:
    """Whether each output reads channels of its own node alone: depthwise, or groups that lie within the shares."""
    if layer.groups == 1:
        return False
    return layer.groups == layer.in_ch or all(_whole(layer.groups * p) for p in cluster.shares)


def _divides(layer: Layer, cluster: Cluster) -> bool:
    return all(_whole(channels * p) for channels in (layer.in_ch, layer.out_ch) for p in cluster.shares)


def _whole(value: float) -> bool:
    return abs(value - round(value)) < 1e-6


def _text(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)
