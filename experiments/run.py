"""Run the experiments: train what is missing in the results, then write summary, pictures and page.

Stop it at any time; the next call goes on after the last finished run.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import torch
from page import page
from pictures import draw
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from runs import COLUMNS, TUNING_SEED, Runner, Scale, all_runs, epochs_of
from summary import load, write_summary

from disco_targets.command import run_command
from disco_targets.errors import EXIT_OK

HERE = Path(__file__).resolve().parent
SEEDS = (1, 2, 3)
QUICK = Scale(train_images=256, test_images=256, epoch_factor=0.1)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 done, 1 failed, 130 interrupted."""
    options = _parse(arguments)
    # One thread: the same sums on every machine with the same PyTorch, and nothing to wait for at this size.
    torch.set_num_threads(1)
    seeds = (TUNING_SEED,) if options.tune else SEEDS[:1] if options.quick else tuple(options.seeds)

    def experiment(_errors: Console) -> int:
        _run(options.output, options.work, seeds, QUICK if options.quick else Scale(), tuple(options.only))
        if not options.tune:
            _report(options.output)
        return EXIT_OK

    return run_command("run.py", experiment)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=HERE, help="folder for results/ and README.md")
    parser.add_argument("--work", type=Path, default=Path("build/experiments"), help="folder for trained networks")
    parser.add_argument("--only", nargs="*", default=(), metavar="NETWORK", help="of these networks alone")
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS, metavar="SEED", help="of these seeds alone")
    parser.add_argument("--quick", action="store_true", help="one seed, few images and epochs: tests the machinery")
    parser.add_argument(
        "--tune", action="store_true", help="the seed kept apart for tuning instead of the reported ones"
    )
    return parser.parse_args(arguments)


def _run(output: Path, work: Path, seeds: tuple[int, ...], scale: Scale, only: tuple[str, ...]) -> None:
    results = output / "results" / ("tuning.csv" if seeds == (TUNING_SEED,) else "runs.csv")
    done = _finished(results)
    runs = [run for run in all_runs(seeds) if not only or run.network in only]
    missing = [run for run in runs if run.key not in done]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=epochs_of(missing, done, scale))
        runner = Runner(work, scale, lambda: progress.advance(task))
        for run in missing:
            if run.key in _finished(results):  # by another call at the same time
                continue
            progress.update(task, description=run.key)
            row = runner.execute(run)
            _append(results, row)
            progress.console.print(" ".join(row.values()))


def _report(output: Path) -> None:
    results = load(output / "results" / "runs.csv")
    write_summary(results, output / "results" / "summary.csv")
    (output / "README.md").write_text(page(results), encoding="utf-8")
    draw(results, output / "results")


def _finished(results: Path) -> set[str]:
    if not results.exists():
        return set()
    with results.open(newline="") as file:
        return {row["run"] for row in csv.DictReader(file)}


def _append(results: Path, row: dict[str, str]) -> None:
    """One line at a time: a line that is there is a run that is finished."""
    results.parent.mkdir(parents=True, exist_ok=True)
    new = not results.exists()
    with results.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    raise SystemExit(main())
