"""The machinery of the experiments, on few images and epochs: files, columns, going on, masks."""

from __future__ import annotations

import csv
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch (disco-edge[prune])")

from disco_pruning import network_sparsity  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch, repository: Path):
    """The scripts of experiments/, which are no package."""
    monkeypatch.syspath_prepend(str(repository / "experiments"))
    import glyphs
    import runs
    import summary

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as run.py does: at this size more of them wait for each other
    yield glyphs, runs, summary
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_a_quick_run_writes_everything_and_goes_on_where_it_was_stopped(repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'disco-edge[plot]'")
    command = [sys.executable, str(repository / "experiments" / "run.py"), "--quick", "--only", "cnn"]
    command += ["--output", str(tmp_path), "--work", str(tmp_path / "networks")]
    subprocess.run(command, check=True, capture_output=True)
    runs = tmp_path / "results" / "runs.csv"
    lines = runs.read_text().splitlines(keepends=True)
    rows = list(csv.DictReader(lines))
    assert {row["experiment"] for row in rows} == {"latency", "balance"}
    assert [row["sparsity"] for row in rows if row["method"] == "disco"] == ["0.5", "0.8", "0.9", "0.95", "0.99", "1"]
    for row in rows:
        if row["method"] in ("disco", "random", "scratch"):
            assert float(row["s_comm"]) == pytest.approx(float(row["sparsity"]), abs=0.02)
    with (tmp_path / "results" / "summary.csv").open(newline="") as file:
        points = list(csv.DictReader(file))
    latencies = [float(point["latency_ms"]) for point in points if point["method"] in ("dense", "disco")]
    assert latencies == sorted(latencies, reverse=True)
    even, balanced = (float(point["latency_ms"]) for point in points[-2:])
    assert balanced <= even < 1.001 * balanced
    assert "one seed, no spread" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "results" / "latency_cnn.png").stat().st_size > 10_000
    assert len((tmp_path / "results" / "summary.csv").read_text().splitlines()) == len(lines)

    runs.write_text("".join(lines[:-1]))  # as if it had been stopped before the last
    subprocess.run(command, check=True, capture_output=True)
    assert runs.read_text().splitlines(keepends=True) == lines  # the same figures again


def test_latency_counts_what_the_nodes_exchange(modules) -> None:
    import networks

    layers = {cost.layer.name: cost for cost in networks.costs("deit")}
    link = networks.load_system(networks.SYSTEM).bandwidth_bytes_per_s
    norms = [cost for name, cost in layers.items() if "norm" in name]
    assert sum(cost.transfer_seconds for cost in norms) * link == pytest.approx(9 * 17 * 2 * 2 * 4)
    assert layers["patches"].transfer_seconds == 0  # both nodes have the image
    # Two products of 17x17 scores with 96 features, half of them on each node.
    assert layers["blocks.0.attention"].compute_seconds[0] == pytest.approx(2 * 17**2 * 96 / 1.92e9)
    exchanged = [cost.sub_rows for cost in layers.values() if cost.sub_rows]
    least = networks.latency_ms("deit", exchanged)
    assert least > 1e3 * sum(cost.transfer_seconds for cost in norms)
    assert networks.latency_ms("deit", [0] * len(exchanged)) > 5 * least


def test_images_follow_from_their_seed_and_classes_are_even(modules) -> None:
    glyphs, _, _ = modules
    first, again, other = (glyphs.draw(40, glyphs.TRAIN_FONTS, seed) for seed in (3, 3, 4))
    assert first.images.shape == (40, 3, glyphs.SIZE, glyphs.SIZE)
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, other.images)
    assert first.labels.bincount().tolist() == [40 // glyphs.CLASSES] * glyphs.CLASSES
    fonts = [set(fonts) for fonts in (glyphs.TRAIN_FONTS, glyphs.TUNING_FONTS, glyphs.TEST_FONTS)]
    assert sum(map(len, fonts)) == len(set.union(*fonts))  # no font is in two sets


def test_networks_learn_and_their_masks_hold(modules, tmp_path: Path) -> None:
    _, runs, _ = modules
    torch.manual_seed(0)
    runner = runs.Runner(tmp_path, runs.Scale(train_images=1200, test_images=300, epoch_factor=2), lambda: None)
    dense = runs.Run("branches", "branches2", "dense", 0.0, 1)
    ninety = runs.Run("branches", "branches2", "disco", 0.9, 1, dense)
    row = runner.execute(ninety)
    assert tuple(row) == runs.COLUMNS
    assert float(row["accuracy"]) > 0.2  # a guess is right once in ten times
    _, cut = runner.network(ninety)
    assert network_sparsity(cut) == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize(
    ("better", "worse", "word"),
    [
        ((0.80, 0.82, 0.84), (0.70, 0.71, 0.72), "**shows**"),
        ((0.80, 0.82, 0.84), (0.79, 0.81, 0.83), "**does not show**"),
        ((0.70, 0.71, 0.72), (0.80, 0.82, 0.84), "the opposite does"),
        ((0.80,), (0.70,), "one seed, no spread"),
    ],
)
def test_the_page_says_what_shows(modules, better, worse, word) -> None:
    _, _, summary = modules
    from page import page

    common = {"experiment": "latency", "network": "cnn", "nodes": "2", "sparsity": "0.9", "epochs": "1"}
    rows = [
        {**common, "method": method, "seed": str(seed), "s_comm": "0.9", "latency_ms": "1", "accuracy": str(accuracy)}
        for method, accuracies in (("disco", better), ("random", worse))
        for seed, accuracy in enumerate(accuracies)
    ]
    (line,) = [x for x in page(summary.Results(rows)).splitlines() if x.startswith("- DISCO beats random sub-rows")]
    assert word in line
