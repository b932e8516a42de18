"""`disco-latency`: parses, calls, reports."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from disco_planning import latency
from disco_planning.cli_sparsity import check_profile, number, planned, pruned_already
from disco_planning.planner import PROFILES
from disco_planning.shares import fractions, parse_shares
from disco_planning.sources import known_models
from disco_planning.systems import known_systems
from disco_planning.units import parse_bandwidth, parse_compute
from disco_targets.command import check_reports, command_parser, run_command, write_json
from disco_targets.disk import writing_to
from disco_targets.errors import EXIT_OK, UsageError
from disco_targets.tables import report_console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disco_planning.analysis import Analysis, Point
    from disco_planning.latency import Cluster, Convention
    from disco_planning.sources import Network
    from disco_planning.systems import System

SWEPT_NODES = range(1, 17)
_SWEPT_BANDWIDTHS = 13
_EXAMPLES = f"""examples:
  disco-latency zoo:resnet50 --nodes 2 --system paper --sparsity 0.99
  disco-latency model.onnx --nodes 2 --bandwidth 37.5MB/s --compute 125GOP/s --equilibrium -o model.sparsity.json
  disco-latency zoo:resnet50 --nodes 4 --system jetson-nano --target-latency 20ms --json plan.json --plot plan.png
  disco-latency bundle --nodes 2 --system stm32h743-uart --value-bytes 1
  disco-latency layers.csv --nodes 2 --compute 90GOP/s,30GOP/s --shares 0.75,0.25 --bandwidth 300Mbit/s --sparsity 0.9
  disco-latency zoo:resnet50 --nodes 2 --system paper --sweep-nodes --sweep-bandwidth 1MB/s..1GB/s

models: {", ".join("zoo:" + name for name in known_models())}
systems: {", ".join(known_systems())}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Exit code 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    options = _parser().parse_args(arguments)
    return run_command("disco-latency", lambda _errors: _latency(options))


def _latency(options: argparse.Namespace) -> int:
    # Imported here, where an interrupt is already caught.
    from disco_planning.analysis import analyse
    from disco_planning.report import print_report, sweep_table
    from disco_planning.sources import load_network

    check_profile(options)
    network = load_network(options.model)
    _check_excluded(options, network)
    system, cluster = _cluster(options, network)
    convention = _convention(options, system)
    plan_file = _plan_file(options, network)
    check_reports({"--json": options.json, "--plot": options.plot, "--output": plan_file})
    costs = latency.layer_costs(network.layers, cluster, convention)
    pruned = pruned_already(options, network, cluster)
    if pruned is not None:
        costs = latency.as_pruned(costs, pruned)
    sparsities = planned(options, costs, convention) if pruned is None else pruned
    analysis = analyse(network, system, cluster, costs, sparsities, convention)
    points = _sweep(options, network, cluster, convention)
    if options.plot is not None:
        from disco_planning.plot import plot_png

        with writing_to(options.plot.parent):
            options.plot.write_bytes(plot_png(analysis))
    document = analysis.to_json()
    if points:
        document["sweep"] = [dataclasses.asdict(point) for point in points]
    write_json(options.json, document)
    console = report_console()
    print_report(analysis, console)
    if points:
        console.print(sweep_table(points, number(options.sparsity)))
    if plan_file is not None:
        _write_plan(plan_file, options.model, analysis)
        console.print(f"Sparsity of each layer{_purpose(network)}: {plan_file}", highlight=False, soft_wrap=True)
    return EXIT_OK


def _cluster(options: argparse.Namespace, network: Network) -> tuple[System, Cluster]:
    from disco_planning.systems import System, load_system

    if options.nodes < 1:
        raise UsageError(f"{options.nodes} nodes were asked for: use at least one")
    if options.system is not None:
        if options.bandwidth is not None or options.compute is not None:
            raise UsageError(
                "--system has a bandwidth and a compute rate already: leave --bandwidth and --compute away"
            )
        system = load_system(options.system)
        rates = [system.operations_per_s]
    else:
        if options.bandwidth is None or options.compute is None:
            raise UsageError("say how fast the nodes are: --system NAME, or --bandwidth and --compute")
        rates = [parse_compute(text) for text in options.compute.split(",")]
        system = System("given", parse_bandwidth(options.bandwidth), max(rates), "the command line")
    if len(rates) == 1:
        rates *= options.nodes
    if len(rates) != options.nodes:
        raise UsageError(f"--compute names {len(rates)} nodes, --nodes {options.nodes}: give one rate, or one for each")
    return system, latency.Cluster(system.bandwidth_bytes_per_s, tuple(rates), _shares(options, network))


def _shares(options: argparse.Namespace, network: Network) -> tuple[float, ...]:
    """As given, else as the network was cut or planned for so many nodes, else equal ones."""
    if options.shares is not None:
        return fractions(parse_shares(options.shares), options.nodes)
    equal: tuple[float, ...] = (1 / options.nodes,) * options.nodes
    return network.shares or equal if network.nodes == options.nodes else equal


def _check_excluded(options: argparse.Namespace, network: Network) -> None:
    for pattern in options.exclude:
        if not any(fnmatchcase(layer.name, pattern) for layer in network.layers):
            raise UsageError(f"--exclude {pattern}: {network.name} has no layer of such a name")


def _convention(options: argparse.Namespace, system: System) -> Convention:
    """What the command line says; of the bytes of a value else the system, else the paper."""
    choices = {field.name: getattr(options, field.name) for field in dataclasses.fields(latency.Convention)}
    said = (options.value_bytes, system.value_bytes, latency.PAPER.value_bytes)
    value_bytes = next(value for value in said if value is not None)
    return latency.Convention(**{**choices, "value_bytes": value_bytes, "exclude": tuple(options.exclude)})


def _sweep(
    options: argparse.Namespace, network: Network, cluster: Cluster, convention: Convention
) -> tuple[Point, ...]:
    from disco_planning.analysis import sweep

    if not options.sweep_nodes and options.sweep_bandwidth is None:
        return ()
    if len(set(cluster.operations_per_s)) > 1 or len(set(cluster.shares)) > 1:
        raise UsageError("sweeps are over equal nodes: give one compute rate and no shares")
    nodes = SWEPT_NODES if options.sweep_nodes else (cluster.nodes,)
    bandwidths = [cluster.bandwidth_bytes_per_s]
    if options.sweep_bandwidth is not None:
        bandwidths = _bandwidths(options.sweep_bandwidth)
    return sweep(network, nodes, bandwidths, cluster.operations_per_s[0], convention, number(options.sparsity))


def _bandwidths(text: str) -> list[float]:
    """Evenly spaced on a logarithmic scale."""
    low, separator, high = text.partition("..")
    if not separator:
        raise UsageError(f"--sweep-bandwidth {text!r} is no range: write it like 1MB/s..1GB/s")
    first, last = parse_bandwidth(low), parse_bandwidth(high)
    steps = _SWEPT_BANDWIDTHS - 1
    return [first * (last / first) ** (step / steps) for step in range(_SWEPT_BANDWIDTHS)]


def _plan_file(options: argparse.Namespace, network: Network) -> Path | None:
    if options.output is None and options.equilibrium:
        return Path(f"{Path(network.name).stem}.sparsity.json")
    return options.output  # type: ignore[no-any-return]


def _purpose(network: Network) -> str:
    """Who takes the sparsity file."""
    if network.for_pruner:
        return ", for disco_pruning"
    return (
        " (of layers as this file calls them; for disco_pruning, give MODEL as the .onnx that export_onnx wrote of the "
        "network, or as a .csv table of it)"
    )


def _write_plan(path: Path, model: str, analysis: Analysis) -> None:
    from disco_planning.sparsity_file import SparsityPlan, write_sparsity

    layers = {row.cost.layer.name: row.sparsity for row in analysis.rows if row.cost.sub_rows}
    cluster = analysis.cluster
    shares = cluster.shares if len(set(cluster.shares)) > 1 else None
    write_sparsity(path, SparsityPlan(model, analysis.system.name, cluster.nodes, layers, shares))


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "disco-latency",
        "Project the latency of a network on several nodes by the latency model of the DISCO paper, and "
        "plan how sparse the communication of each layer should be.",
        _EXAMPLES,
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="zoo:NAME, a .csv layer table, .onnx, .tflite, or a bundle's folder")
    add("--nodes", type=int, required=True, metavar="N", help="how many nodes share the network")
    speed = parser.add_argument_group("how fast the nodes are")
    speed.add_argument("--system", metavar="NAME", help="one of the systems below, or a file NAME.toml")
    speed.add_argument(
        "--bandwidth", metavar="B", help="of a node's link, sent and received together: 37.5MB/s, 300Mbit/s"
    )
    speed.add_argument(
        "--compute", metavar="C[,C...]", help="of a node, or of each: 125GOP/s (a MAC is two operations)"
    )
    shares = "of the channels, e.g. 3,1 or 0.75,0.25 (default: as MODEL was cut or planned for N nodes, else equal)"
    speed.add_argument("--shares", metavar="P,P...", help=shares)
    _add_sparsity(parser)
    out = parser.add_argument_group("output")
    out.add_argument("-o", "--output", type=Path, metavar="FILE", help="sparsity file for disco_pruning (with "
                     "--equilibrium default: MODEL.sparsity.json here)")  # fmt: skip
    out.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    out.add_argument("--plot", type=Path, metavar="FILE.png", help="L_comm and L_comp of each layer (needs matplotlib)")
    out.add_argument("--sweep-nodes", action="store_true", help="also the totals for 1 to 16 equal nodes")
    out.add_argument("--sweep-bandwidth", metavar="B..B", help="also the totals over a range, e.g. 1MB/s..1GB/s")
    _add_convention(parser)
    return parser


def _add_sparsity(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "communication sparsity", "default: what the weights of a bundle have, else everything is sent"
    )
    add = group.add_mutually_exclusive_group().add_argument
    add("--sparsity", metavar="S", help="the same for each layer, 0 to 1, or a sparsity file")
    add("--equilibrium", action="store_true", help="of each layer so that L_comm = L_comp; writes a sparsity file")
    add("--target-latency", metavar="T", help="the least that takes at most T, e.g. 35ms")
    profile = "with --target-latency: one sparsity for all (default), or the same fraction of each layer's equilibrium"
    group.add_argument("--profile", choices=PROFILES, help=profile)


def _add_convention(parser: argparse.ArgumentParser) -> None:
    """One option for each field of latency.Convention, whose documentation says more."""
    group = parser.add_argument_group("convention", "what the model counts; the defaults are the paper's")
    default = latency.PAPER
    add = group.add_argument
    add(
        "--value-bytes",
        type=float,
        metavar="V",
        help="bytes of a value (default: what the system says, else 4; int8: 1)",
    )
    add("--operations-per-mac", type=float, default=default.operations_per_mac, metavar="O", help="default 2")
    traffic = "a node sends its channels once to all, once to each other node, or sending costs nothing"
    add("--traffic", choices=latency.TRAFFIC, default=default.traffic, help=traffic)
    shared = "whether each layer that reads a tensor pays for it, or the first"
    add("--shared-tensors", choices=latency.SHARED_TENSORS, default=default.shared_tensors, help=shared)
    reads = "what the first layer reads is exchanged like all else, or all nodes have it, as those of disco-export"
    add("--input", choices=latency.INPUT, default=default.input, help=reads)
    indivisible = "layers whose channels the shares do not divide, unless a bundle or sparsity file has them pruned"
    add("--indivisible", choices=latency.INDIVISIBLE, default=default.indivisible, help=indivisible)
    add("--rounding", choices=latency.ROUNDING, default=default.rounding, help="down to whole sub-rows, or none")
    add("--overlap", choices=latency.OVERLAP, default=default.overlap, help="a layer takes max or sum of both times")
    exclude = "layers that do not count, e.g. '*downsample'; may be repeated"
    add("--exclude", action="append", default=[], metavar="PATTERN", help=exclude)


if __name__ == "__main__":
    sys.exit(main())
