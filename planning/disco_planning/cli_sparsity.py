"""Which communication sparsity the options of `disco-latency` ask for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from disco_planning.planner import PROFILES, check_sparsity, equilibrium, for_latency, uniform
from disco_planning.units import parse_time
from disco_targets.errors import DiscoError, UsageError

if TYPE_CHECKING:
    import argparse

    from disco_planning.latency import Cluster, Convention, LayerCost, Sparsities
    from disco_planning.sources import Network


def check_profile(options: argparse.Namespace) -> None:
    """UsageError where a profile is given that nothing follows."""
    if options.profile is not None and options.target_latency is None:
        raise UsageError(
            f"--profile {options.profile} says how --target-latency is reached: give both, or leave it out"
        )


def pruned_already(options: argparse.Namespace, network: Network, cluster: Cluster) -> Sparsities | None:
    """What a bundle or a sparsity file says; None where the sparsity is planned here.

    Raises:
        UsageError: A bundle was cut for other nodes or shares: what its weights send holds for its own cut alone.
        DiscoError: A sparsity file cannot be read, or was made for other nodes, shares or layers.
    """
    if options.equilibrium or options.target_latency is not None:
        return None
    if options.sparsity is not None:
        return _from_file(options.sparsity, network, cluster) if number(options.sparsity) is None else None
    if network.sparsities is not None and network.nodes != cluster.nodes:
        raise UsageError(
            f"{options.model} was cut for {network.nodes} nodes: use --nodes {network.nodes}, or give --sparsity, "
            "--equilibrium or --target-latency"
        )
    if network.sparsities is not None and options.shares is not None and not network.is_cut_by(cluster.shares):
        raise UsageError(
            f"{options.model} was cut with other shares than {options.shares}, and what its weights send holds for its "
            "own cut alone: leave --shares out, or give --sparsity, --equilibrium or --target-latency"
        )
    return network.sparsities


def planned(options: argparse.Namespace, costs: tuple[LayerCost, ...], convention: Convention) -> Sparsities:
    """The equilibrium, what a latency takes, or the same for each layer.

    Raises:
        UsageError: No layer can be pruned.
        DiscoError: The latency cannot be reached.
    """
    if options.equilibrium or options.target_latency is not None:
        _check_prunable(costs)
    if options.equilibrium:
        return equilibrium(costs)
    if options.target_latency is not None:
        return for_latency(costs, parse_time(options.target_latency), options.profile or PROFILES[0], convention)
    sparsity = number(options.sparsity) or 0.0
    if sparsity > 0 and not options.sweep_nodes and not any(cost.sub_rows for cost in costs):
        raise _nothing_exchanged()
    return uniform(costs, sparsity)


def _check_prunable(costs: tuple[LayerCost, ...]) -> None:
    """UsageError when there is nothing to plan."""
    if any(cost.prunable for cost in costs):
        return
    if any(cost.sub_rows for cost in costs):
        raise UsageError(
            "no layer can be pruned: there is none whose channels the shares divide into whole ones. The pruner rounds "
            "the shares, so plan with --indivisible pruned"
        )
    raise _nothing_exchanged()


def _nothing_exchanged() -> UsageError:
    return UsageError("no layer can be pruned: nothing is exchanged. Use two nodes or more")


def _from_file(name: str, network: Network, cluster: Cluster) -> Sparsities:
    from disco_planning.sparsity_file import read_sparsity

    if not name.endswith(".json"):
        raise UsageError(f"sparsity {name!r} is neither a number from 0 to 1 nor a sparsity file (.json)")
    plan = read_sparsity(Path(name))
    if plan.nodes != cluster.nodes:
        raise DiscoError(f"{name} was made for {plan.nodes} nodes: use --nodes {plan.nodes}, or make it again")
    if not plan.is_for(cluster.shares):
        made = "equal ones" if plan.shares is None else _listed(plan.shares)
        raise DiscoError(
            f"{name} was made for other shares than {_listed(cluster.shares)} (for {made}): use --shares as when it "
            "was made, or make it again"
        )
    unknown = sorted(set(plan.layers) - {layer.name for layer in network.layers})
    if unknown:
        raise DiscoError(f"{name} names layers that {network.name} does not have: {', '.join(unknown[:5])}")
    return {name: sparsity for name, sparsity in plan.layers.items() if sparsity > 0}


def _listed(shares: tuple[float, ...]) -> str:
    return ", ".join(f"{share:.4g}" for share in shares)


def number(text: str | None) -> float | None:
    """The uniform sparsity; None when there is none, or a file is meant."""
    try:
        return None if text is None else check_sparsity(float(text))
    except ValueError:
        return None
