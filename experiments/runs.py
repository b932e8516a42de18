"""What is trained from what: every run starts from new weights or from the end of another, prunes, and trains.

A run's result follows from its name and seed alone, so that a set of runs can be stopped and continued anywhere.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import torch
from glyphs import TEST_FONTS, TRAIN_FONTS, TUNING_FONTS, Difficulty, Images, draw
from networks import EXAMPLE, NETWORKS, balanced, even
from training import accuracy, train

from disco_pruning import (
    RandomScore,
    attach_masks,
    load_checkpoint,
    network_sparsity,
    plan,
    prune,
    pruned_sub_rows,
)
from disco_pruning.masks import sub_row_norms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import nn

    from disco_pruning import Plan

TUNING_SEED = 99
"""Schedules and the image set were tuned with this seed and with fonts that no reported figure has seen."""
ROUNDS, RANDOM_ROUNDS = (0.5, 0.8, 0.9, 0.95), (0.5, 0.8, 0.9)
BRANCH_ROUNDS = (0.5, 0.9)
PLANNED = ("uniform", "equilibrium")
LAST = (0.99, 1.0)
"""Both from the last round before, so that they are trained for the same number of epochs."""


COLUMNS = (
    "run", "experiment", "network", "nodes", "method", "sparsity", "seed", "epochs", "s_comm", "pruned", "accuracy"
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One row of the results.

    Attributes:
        experiment: Which table it belongs to: "latency", "branches" or "balance".
        network: A key of NETWORKS.
        method: "dense", "disco", "random", "scratch", "uniform" or "equilibrium".
        sparsity: What it is pruned to, 0 to 1; 1 of the planner's methods, which have a sparsity for each layer.
        seed: Of weights, order and random sub-rows.
        parent: The run whose network it goes on with.
    """

    experiment: str
    network: str
    method: str
    sparsity: float
    seed: int
    parent: Run | None = None

    @property
    def key(self) -> str:
        """Unique name."""
        return f"{self.network}-{self.method}-{self.sparsity:g}-seed{self.seed}"

    @property
    def epochs(self) -> int:
        """Of its own, without those of its parents."""
        network = NETWORKS[self.network]
        if self.method == "scratch":
            # As many as the network of 100 % has seen in all.
            rounds = len(BRANCH_ROUNDS if self.experiment == "branches" else ROUNDS) + 1
            return network.epochs + rounds * network.round_epochs
        return network.epochs if self.parent is None else network.round_epochs


@dataclass(frozen=True)
class Scale:
    """How much of everything: the whole, or little to test the machinery."""

    train_images: int = 4000
    test_images: int = 2000
    epoch_factor: float = 1.0

    def epochs(self, run: Run) -> int:
        """Of `run` at the constant learning rate, at least one."""
        return max(1, round(run.epochs * self.epoch_factor))

    def anneal_epochs(self, run: Run) -> int:
        """The same of the last part."""
        return max(1, round(NETWORKS[run.network].anneal_epochs * self.epoch_factor))


def all_runs(seeds: tuple[int, ...]) -> tuple[Run, ...]:
    """Every run, parents first."""
    parts = (partial(_latency, "cnn"), _balance, _branches, partial(_latency, "deit"))
    return tuple(run for part in parts for seed in seeds for run in part(seed))


def epochs_of(runs: Sequence[Run], done: set[str], scale: Scale) -> int:
    """How many it takes to train `runs`, and rounds on the way to them that are no results, beside those `done`."""
    wanted = {run.key: run for run in runs}
    for run in runs:
        while run.parent is not None and run.parent.key not in done:
            run = run.parent
            wanted[run.key] = run
    return sum(map(scale.epochs, wanted.values())) + sum(map(scale.anneal_epochs, runs))


def _latency(network: str, seed: int) -> list[Run]:
    dense = Run("latency", network, "dense", 0.0, seed)
    disco = _chain(dense, "disco", ROUNDS)
    random = _chain(dense, "random", RANDOM_ROUNDS)
    return [
        dense,
        *disco,
        *(Run("latency", network, "disco", sparsity, seed, disco[-1]) for sparsity in LAST),
        random[-1],
        Run("latency", network, "scratch", 1.0, seed),
    ]


def _branches(seed: int) -> list[Run]:
    runs: list[Run] = []
    for network in (name for name in NETWORKS if name.startswith("branches")):
        dense = Run("branches", network, "dense", 0.0, seed)
        disco = _chain(dense, "disco", BRANCH_ROUNDS)
        last = [Run("branches", network, "disco", sparsity, seed, disco[-1]) for sparsity in LAST]
        runs += [dense, *disco, *last, Run("branches", network, "scratch", 1.0, seed)]
    return runs


def _balance(seed: int) -> list[Run]:
    start = _chain(Run("latency", "cnn", "dense", 0.0, seed), "disco", ROUNDS[:1])[0]
    return [Run("balance", "cnn", method, 1.0, seed, start) for method in PLANNED]


def _chain(start: Run, method: str, sparsities: tuple[float, ...]) -> list[Run]:
    """Rounds of rising sparsity, each on the network of the one before."""
    runs = [start]
    for sparsity in sparsities:
        runs.append(Run(start.experiment, start.network, method, sparsity, start.seed, runs[-1]))
    return runs[1:]


class Runner:
    """Executes runs; keeps the trained networks in a folder, where runs that go on with them find them."""

    def __init__(self, folder: Path, scale: Scale, tick: Callable[[], None]) -> None:
        self._folder = folder
        self._scale = scale
        self._tick = tick
        folder.mkdir(parents=True, exist_ok=True)

    def execute(self, run: Run) -> dict[str, str]:
        """Train `run` (and its parents, where their networks are gone), anneal and measure it."""
        model, cut, random = self._train(run)
        network = NETWORKS[run.network]
        training, test = data(run.seed == TUNING_SEED, network.difficulty, self._scale)
        for _ in train(model, training, self._scale.anneal_epochs(run), network.rate, random, anneal=True):
            self._tick()
        return {
            "run": run.key,
            "experiment": run.experiment,
            "network": run.network,
            "nodes": str(cut.nodes),
            "method": run.method,
            "sparsity": f"{run.sparsity:g}",
            "seed": str(run.seed),
            "epochs": str(_total_epochs(run, self._scale) + self._scale.anneal_epochs(run)),
            "s_comm": f"{network_sparsity(cut):.4f}",
            "pruned": " ".join(str(int(pruned_sub_rows(layer).sum())) for layer in cut.prunable),
            "accuracy": f"{accuracy(model, test):.4f}",
        }

    def _train(self, run: Run) -> tuple[nn.Module, Plan, torch.Generator]:
        """Prune and train at the constant learning rate, and save what later rounds go on with."""
        model, cut = self._start(run)
        _seed(run)
        random = torch.Generator().manual_seed(torch.initial_seed())
        if run.parent is not None:
            score = RandomScore(torch.initial_seed()) if run.method == "random" else sub_row_norms
            # Of narrow branches 1 % of each layer would be less than one sub-row; of the whole network it is several.
            prune(cut, _sparsity(run), score, rank_within="network" if run.experiment == "branches" else "layer")
        network = NETWORKS[run.network]
        training, _ = data(run.seed == TUNING_SEED, network.difficulty, self._scale)
        for _ in train(model, training, self._scale.epochs(run), network.rate, random):
            self._tick()
        part = self._path(run).with_suffix(".part")  # a file that is there is whole
        torch.save(model.state_dict(), part)
        part.replace(self._path(run))
        return model, cut, random

    def network(self, run: Run) -> tuple[nn.Module, Plan]:
        """The trained network of a run that was executed, with its masks, and its plan."""
        model, cut = _built(run)
        load_checkpoint(model, cut, self._path(run))
        return model, cut

    def _start(self, run: Run) -> tuple[nn.Module, Plan]:
        if run.parent is None:
            return _built(run)
        if not self._path(run.parent).exists():
            self._train(run.parent)
        return self.network(run.parent)

    def _path(self, run: Run) -> Path:
        return self._folder / f"{run.key}.pt"


@cache
def data(tuning: bool, difficulty: Difficulty, scale: Scale) -> tuple[Images, Images]:
    """Training and test images, the same for all seeds; others for tuning."""
    fonts, first = (TUNING_FONTS, 10) if tuning else (TEST_FONTS, 20)
    return draw(scale.train_images, TRAIN_FONTS, first, difficulty), draw(
        scale.test_images, fonts, first + 1, difficulty
    )


_planned: Mapping[str, Callable[[str], dict[str, float]]] = {"equilibrium": balanced, "uniform": even}


def _built(run: Run) -> tuple[nn.Module, Plan]:
    """With new weights; the branches from scratch are cut apart from the start."""
    _seed(run)
    network = NETWORKS[run.network]
    model = network.build()
    cut = plan(model, EXAMPLE, network.nodes)
    attach_masks(cut)  # also of the dense one, so that all files have the same keys
    if run.method == "scratch":
        prune(cut, 1.0)
    return model, cut


def _sparsity(run: Run) -> float | dict[str, float]:
    return _planned[run.method](run.network) if run.method in PLANNED else run.sparsity


def _total_epochs(run: Run, scale: Scale) -> int:
    return scale.epochs(run) + (_total_epochs(run.parent, scale) if run.parent else 0)


def _seed(run: Run) -> None:
    torch.manual_seed(zlib.crc32(run.key.encode()))
