"""The page that reads the results: README.md, written from the rows alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glyphs import CLASSES, SIZE
from networks import CONVENTION, NETWORKS, SYSTEM
from runs import Scale
from summary import METHODS, NAMES

from disco_planning.systems import load_system
from disco_planning.units import format_rate, format_time

if TYPE_CHECKING:
    from summary import Point, Results

_SHARE = {"dense": "", "disco": " {:.0%}", "random": " {:.0%}", "scratch": "", "uniform": "", "equilibrium": ""}


def page(results: Results) -> str:
    """README.md: what was run, tables, and whether the paper's findings show."""
    parts = [_INTRODUCTION, _method(results)]
    parts += ["## 1. Accuracy against latency\n" + _LATENCY]
    parts += [_latency(results, network) for network in ("cnn", "deit") if results.all("latency", network)]
    if results.all("branches"):
        parts += ["## 2. Narrow branches with and without 1 % communication\n" + _BRANCHES, _branches(results)]
    if results.all("balance"):
        parts += ["## 3. Equilibrium against uniform sparsity\n" + _BALANCE, _balance(results)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _method(results: Results) -> str:
    scale, system = Scale(), load_system(SYSTEM)
    seeds = sorted({seed for point in results.all() for seed in point.accuracies})
    epochs = "; ".join(
        f"{NAMES[name]} {entry.epochs} dense, {entry.round_epochs} after each pruning, {entry.anneal_epochs} to anneal"
        for name, entry in NETWORKS.items()
        if results.all(network=name)
    )
    lines = [
        f"**Runs.** Seeds {', '.join(map(str, seeds))}, each with other weights and another order of the images. "
        f"{scale.train_images} training images of {SIZE}x{SIZE} pixels in {CLASSES} classes and "
        f"{scale.test_images} test images, the same for all seeds. AdamW, batches of 64 shifted by up to 2 pixels. "
        "Networks are trained and pruned at a constant learning rate; a copy of each is annealed with a falling one "
        f"before it is measured. Epochs: {epochs}. Networks from scratch go the same way without pruning.",
        "",
        f"**Latency** is projected, not measured: `disco_planning`'s model of the system `{SYSTEM}` (a link of "
        f"{format_rate(system.bandwidth_bytes_per_s, 'B/s')}, {format_rate(system.operations_per_s, 'OP/s')} per node) "
        f"with {CONVENTION.value_bytes:g} byte per value, at the sparsity that the weights of each layer really have.",
        "",
        "*Spread* is the sample standard deviation over the seeds. A finding is said to *show* where the means differ "
        "by more than the larger of the two spreads. Differences seed by seed are the sharper measure of DISCO against "
        "random sub-rows, and of 99 against 100 %: both have come from the same network.",
    ]
    incomplete = [point for point in results.all() if len(point.accuracies) < len(seeds)]
    if incomplete:
        names = ", ".join(f"{NAMES[p.network]} {_name(p)} ({len(p.accuracies)} of {len(seeds)})" for p in incomplete)
        lines += ["", f"**Incomplete**: not all seeds were run of {names}."]
    return "\n".join(lines)


def _latency(results: Results, network: str) -> str:
    dense, ninety = (results.get("latency", network, *key) for key in (("dense", 0.0), ("disco", 0.9)))
    lines = [f"### {NAMES[network]}", "", _table(results.all("latency", network)), ""]
    if dense and ninety:
        lines += [
            f"DISCO at 90 % is projected to take {dense.latency_ms / ninety.latency_ms:.1f} times less time than dense "
            f"exchange and is {_points(ninety, dense)} in accuracy.",
            "",
        ]
    lines += [
        *_verdict(results, network, "DISCO beats random sub-rows at 90 %", ("disco", 0.9), ("random", 0.9)),
        *_verdict(results, network, "DISCO at 100 % beats independent branches", ("disco", 1.0), ("scratch", 1.0)),
        *_verdict(results, network, "1 % of communication beats none", ("disco", 0.99), ("disco", 1.0)),
        "",
        f"![accuracy against latency](results/latency_{network}.png)",
    ]
    return "\n".join(lines)


def _branches(results: Results) -> str:
    networks = list(dict.fromkeys(point.network for point in results.all("branches")))
    lines = [_table(results.all("branches")), ""]
    for network in networks:
        one, none = (results.get("branches", network, "disco", sparsity) for sparsity in (0.99, 1.0))
        if one and none:
            more = format_time((one.latency_ms - none.latency_ms) / 1e3)
            lines.append(f"- 1 % of communication adds {more} to {NAMES[network]}.")
        for finding, better, worse in (
            ("1 % of communication beats none", ("disco", 0.99), ("disco", 1.0)),
            ("10 % beats none", ("disco", 0.9), ("disco", 1.0)),
            ("1 % of communication beats branches from scratch", ("disco", 0.99), ("scratch", 1.0)),
            ("DISCO at 100 % beats branches from scratch", ("disco", 1.0), ("scratch", 1.0)),
        ):
            lines += _verdict(results, network, f"{NAMES[network]}: {finding}", better, worse, "branches")
    return "\n".join([*lines, "", "![accuracy against branches](results/branches.png)"])


def _balance(results: Results) -> str:
    points = [point for point in results.all("balance") if point.sparsity == 1]
    verdict = _verdict(
        results, "cnn", "Equilibrium beats uniform sparsity", ("equilibrium", 1.0), ("uniform", 1.0), "balance"
    )
    return "\n".join([_table(points), "", *verdict])


def _table(points: list[Point]) -> str:
    lines = [
        "| network | | S_comm | epochs | latency | accuracy | spread | seeds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {NAMES[p.network]} | {_name(p)} | {p.s_comm:.1%} | {p.epochs} | {p.latency_ms:.2f} ms | {p.mean:.1%} "
        f"| {100 * p.spread:.1f} | {len(p.accuracies)} |"
        for p in points
    ]
    return "\n".join(lines)


def _verdict(
    results: Results,
    network: str,
    finding: str,
    better: tuple[str, float],
    worse: tuple[str, float],
    experiment: str = "latency",
) -> list[str]:
    """One item of a list: whether a finding shows; nothing where it was not run."""
    first, second = (results.get(experiment, network, *key) for key in (better, worse))
    if first is None or second is None or not first.accuracies.keys() & second.accuracies.keys():
        return []
    seeds = sorted(first.accuracies.keys() & second.accuracies.keys())
    first, second = first.of(seeds), second.of(seeds)
    gap, spread = first.mean - second.mean, max(first.spread, second.spread)
    if len(seeds) < 2:
        word = "one seed, no spread"
    elif gap > spread:
        word = "shows"
    else:
        word = "does not show: the opposite does" if -gap > spread else "does not show"
    each = ", ".join(f"{100 * (first.accuracies[seed] - second.accuracies[seed]):+.1f}" for seed in seeds)
    return [f"- {finding}: **{word}** ({100 * gap:+.1f} points, spread {100 * spread:.1f}; seed by seed {each})."]


def _points(point: Point, than: Point) -> str:
    gap = 100 * (point.mean - than.mean)
    return f"{abs(gap):.1f} points {'above' if gap >= 0 else 'below'} it"


def _name(point: Point) -> str:
    return METHODS[point.method] + _SHARE[point.method].format(point.sparsity)


_INTRODUCTION = f"""
# Experiments

The paper's comparisons (Qin et al., WACV 2024: Figure 9, Tables 2 and 3) in kind, on small networks and a small
image set that is made here. This page is written by `experiments/run.py` from [results/runs.csv](results/runs.csv),
one line per trained network; [results/summary.csv](results/summary.csv) has means and spreads.

    make experiments                        # everything that is missing in results/runs.csv, then this page
    .venv/bin/python experiments/run.py --quick --output build/quick --work build/quick/networks    # does it work?

An interrupted call goes on after the last finished network. Delete `results/runs.csv` and `build/experiments` to
start anew.

**Images** (`glyphs.py`): {CLASSES} letters, some easily mistaken for another, in procedural fonts that bend, round,
slant, stretch, thicken and serif their strokes; each image turns, shears, bends, scales and shifts its letter, in a
random colour over soft spots, stray strokes and noise. Test images are drawn in fonts that training never sees. The
DeiT, which learns little from so few images of that kind, gets a plainer set: no stray strokes, half of the warp
and the noise, ink always lighter than its background. Sets and schedules were tuned with seeds and test fonts kept
apart, of which no figure here is taken. The schedule matters: with short rounds that are each annealed to the end,
branches from scratch came out ahead of DISCO at 100 % while tuning.
"""
_LATENCY = """
One chain of rounds for each seed, with some training after each pruning: dense, 50, 80, 90, 95 %; then 99 % and
100 %, both from the network of 95 % and so for the same number of epochs. *Random sub-rows* goes the same way to
90 % with other sub-rows (at 100 % there is nothing left to choose). *Independent branches from scratch* have the
architecture of 100 %, and as many epochs as DISCO at 100 % has had in all. The dense network has had fewer epochs
than the pruned ones, as in the paper.
"""
_BRANCHES = """
N residual networks of 6, 12 and 24 channels behind a stem of 4x4 patches, side by side on N nodes
(`networks.Branches`). Pruned in rounds from one dense network of N times the width: 50, 90 %, then 99 % and 100 %,
both from 90 %. From scratch: N branches with nothing between them from the start, for as many epochs as the pruned
ones in all.
"""
_BALANCE = """
ResNet-8 pruned to the sparsity of each layer that makes its communication just hide behind its computation, and to
one sparsity for all layers with the same total latency; both from the network of 50 % of experiment 1. Latencies
differ a little, because whole sub-rows are pruned.
"""
