"""The page that reads the results: README.md, written from the rows alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from glyphs import CLASSES, SIZE
from networks import CONVENTION, NETWORKS, PARTIAL_SUM_BYTES, SYSTEM, one_node_ms
from runs import Scale, all_runs, epochs_of
from summary import METHODS, NAMES

from disco_planning.systems import load_system
from disco_planning.units import format_rate, format_time

if TYPE_CHECKING:
    from summary import Point, Results

EPOCH_SECONDS = {"cnn": 3.9, "deit": 4.3, "branches2": 0.9, "branches4": 1.3, "branches8": 3.3}
"""Processor time of one epoch of 4000 images on one core of an x86-64 PC, as it was measured."""
_SHARE = {"dense": "", "disco": " {:.0%}", "random": " {:.0%}", "scratch": "", "uniform": "", "equilibrium": ""}


@dataclass(frozen=True)
class Finding:
    """Something that the paper reports: one kind of network is more accurate than another."""

    experiment: str
    network: str
    claim: str
    better: tuple[str, float]
    """Method and sparsity."""
    worse: tuple[str, float]


_RANDOM = ("DISCO beats random sub-rows at 90 %", ("disco", 0.9), ("random", 0.9))
_SCRATCH = ("DISCO at 100 % beats independent branches from scratch", ("disco", 1.0), ("scratch", 1.0))
_LITTLE = ("1 % of communication beats none", ("disco", 0.99), ("disco", 1.0))
_SOME = ("10 % of communication beats none", ("disco", 0.9), ("disco", 1.0))
_BRANCH = ("1 % of communication beats branches from scratch", ("disco", 0.99), ("scratch", 1.0))
_PLANNED = ("equilibrium beats uniform sparsity", ("equilibrium", 1.0), ("uniform", 1.0))
FINDINGS = (
    *(Finding("latency", network, *claim) for network in ("cnn", "deit") for claim in (_RANDOM, _SCRATCH, _LITTLE)),
    *(
        Finding("branches", network, *claim)
        for network in ("branches2", "branches4", "branches8")
        for claim in (_LITTLE, _SOME, _BRANCH, _SCRATCH)
    ),
    Finding("balance", "cnn", *_PLANNED),
)


def page(results: Results) -> str:
    """README.md: what shows, what was run, tables, and whether each finding of the paper shows."""
    parts = [_INTRODUCTION, _short(results), _HOW, _method(results)]
    parts += ["## 1. Accuracy against latency\n" + _LATENCY]
    parts += [_latency(results, network) for network in ("cnn", "deit") if results.all("latency", network)]
    if results.all("branches"):
        parts += ["## 2. Narrow branches with and without 1 % communication\n" + _BRANCHES, _branches(results)]
    if results.all("balance"):
        parts += ["## 3. Equilibrium against uniform sparsity\n" + _BALANCE, _balance(results)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _short(results: Results) -> str:
    """What shows and what does not, in a few lines."""
    claims: dict[str, dict[str, list[str]]] = {}
    for finding in FINDINGS:
        word = _compared(results, finding)[0]
        if word:
            claims.setdefault(word, {}).setdefault(finding.claim, []).append(NAMES[finding.network])
    lines = [f"- {NAMES[network]}: {line}" for network in ("cnn", "deit") if (line := _speed_up(results, network))]
    lines += [
        f"- {word.capitalize()}: {'; '.join(f'{claim} ({_listed(names)})' for claim, names in found.items())}."
        for word, found in claims.items()
    ]
    return "\n".join([*lines, f"- {_training(results)}"])


def _training(results: Results) -> str:
    """How long it took."""
    runs = [run for run in all_runs(_seeds(results)) if results.all(run.experiment, run.network)]
    networks = dict.fromkeys(run.network for run in runs)
    epochs = {x: epochs_of([run for run in runs if run.network == x], set(), Scale()) for x in networks}
    minutes = sum(count * EPOCH_SECONDS[network] for network, count in epochs.items()) / 60
    return (
        f"Training takes about {minutes:.0f} minutes of one core of an x86-64 PC: {sum(epochs.values())} epochs, of "
        + ", ".join(f"{EPOCH_SECONDS[network]:.1f} s ({NAMES[network]})" for network in networks)
        + "."
    )


def _seeds(results: Results) -> tuple[int, ...]:
    return tuple(sorted({seed for point in results.all() for seed in point.accuracies}))


def _listed(names: list[str]) -> str:
    """Names in a sentence: "2 branches", "4 branches" and "8 branches" are "2, 4 and 8 branches"."""
    parts = [name.removesuffix(" branches") for name in names[:-1]] + names[-1:]
    return " and ".join([*filter(None, [", ".join(parts[:-1])]), parts[-1]])


def _method(results: Results) -> str:
    scale, system = Scale(), load_system(SYSTEM)
    seeds = _seeds(results)
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
        f"with {CONVENTION.value_bytes:g} byte per value, at the sparsity that the weights of each layer really have. "
        "All nodes have the image, so the first layer exchanges nothing (the paper's convention shares it out: "
        "`Convention.input`). Convolutions and linear layers count; of the DeiT also the products of the attention, "
        f"and that its layer norms exchange two sums of {PARTIAL_SUM_BYTES} bytes for each token and node, at every "
        "sparsity, 100 % and independent branches included.",
        "",
        "**S_comm**, the communication sparsity, is the fraction of sub-rows that are pruned; a *sub-row* is the "
        "weights from one channel to the outputs of another node. Of a layer on N nodes the sparsity of weights (S_wt) "
        "and of multiply-accumulates (S_comp) is then S_comm (N - 1) / N.",
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
    lines = [f"### {NAMES[network]}", "", _table(results.all("latency", network)), "", _speed_up(results, network), ""]
    lines += _verdicts(results, "latency", network)
    return "\n".join([*lines, "", f"![accuracy against latency](results/latency_{network}.png)"])


def _speed_up(results: Results, network: str) -> str:
    """Of 90 % over dense exchange; empty where either was not run."""
    dense, ninety = (results.get("latency", network, *key) for key in (("dense", 0.0), ("disco", 0.9)))
    if not dense or not ninety:
        return ""
    return (
        f"DISCO at 90 % is projected to take {dense.latency_ms / ninety.latency_ms:.1f} times less time than dense "
        f"exchange and is {_points(ninety, dense)} in accuracy ({ninety.mean:.1%} and {dense.mean:.1%}). The whole "
        f"network on one node is projected to take {one_node_ms(network):.2f} ms."
    )


def _branches(results: Results) -> str:
    lines = [_table(results.all("branches")), ""]
    for network in dict.fromkeys(point.network for point in results.all("branches")):
        one, none = (results.get("branches", network, "disco", sparsity) for sparsity in (0.99, 1.0))
        if one and none:
            more = format_time((one.latency_ms - none.latency_ms) / 1e3)
            lines.append(f"- 1 % of communication adds {more} to {NAMES[network]}.")
        lines += _verdicts(results, "branches", network, f"{NAMES[network]}: ")
    return "\n".join([*lines, "", "![accuracy against branches](results/branches.png)"])


def _balance(results: Results) -> str:
    lines = [_table([point for point in results.all("balance") if point.sparsity == 1]), ""]
    lines += _verdicts(results, "balance", "cnn")
    even, balanced = (results.get("balance", "cnn", method, 1.0) for method in ("uniform", "equilibrium"))
    rounds = results.get("latency", "cnn", "disco", 0.99)
    if even and balanced:
        gap = even.latency_ms - balanced.latency_ms
        lines.append(
            f"- Uniform sparsity takes {gap:.4f} ms ({gap / balanced.latency_ms:.2%}) more than the equilibrium."
        )
    if rounds and balanced:
        lines.append(
            f"- DISCO at 99 % of experiment 1, one sparsity reached in rounds, takes {rounds.latency_ms:.2f} ms, the "
            f"equilibrium {balanced.latency_ms:.2f} ms; it is {_points(rounds, balanced)} in accuracy, with "
            f"{rounds.epochs} epochs against {balanced.epochs}. So this compares the two plans, each reached in one "
            "step, and not the best way to either latency."
        )
    return "\n".join(lines)


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


def _verdicts(results: Results, experiment: str, network: str, before: str = "") -> list[str]:
    """Items of a list: which findings show; none of what was not run."""
    lines = []
    for finding in FINDINGS:
        word, figures = _compared(results, finding)
        if word and (finding.experiment, finding.network) == (experiment, network):
            claim = finding.claim if before else finding.claim[0].upper() + finding.claim[1:]
            lines.append(f"- {before}{claim}: **{word}** ({figures}).")
    return lines


def _compared(results: Results, finding: Finding) -> tuple[str, str]:
    """Whether it shows, and by how much; empty where it was not run."""
    first, second = (results.get(finding.experiment, finding.network, *key) for key in (finding.better, finding.worse))
    if first is None or second is None or not first.accuracies.keys() & second.accuracies.keys():
        return "", ""
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
    return word, f"{100 * gap:+.1f} points, spread {100 * spread:.1f}; seed by seed {each}"


def _points(point: Point, than: Point) -> str:
    gap = 100 * (point.mean - than.mean)
    return f"{abs(gap):.1f} points {'above' if gap >= 0 else 'below'} it"


def _name(point: Point) -> str:
    return METHODS[point.method] + _SHARE[point.method].format(point.sparsity)


_INTRODUCTION = """
# Experiments

The paper's comparisons (Qin et al., WACV 2024: Figure 9, Tables 2 and 3) in kind, on small networks and a small
image set that is made here; three seeds each. In short:
"""
_HOW = f"""
This page is written by `experiments/run.py` from [results/runs.csv](results/runs.csv), one line per trained network
with the pruned sub-rows of each layer that exchanges; [results/summary.csv](results/summary.csv) has means and
spreads.

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
one sparsity for all layers that takes as long; both from the network of 50 % of experiment 1. Sub-rows are pruned
whole: the equilibrium is rounded to the nearest, and the uniform sparsity up or down in each layer so that it takes
no less time than the equilibrium, and as little more as can be.
"""
