"""`disco-run`: parses, calls, reports."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from disco_host.report import mismatch_text, print_report
from disco_host.run import RunConfig, RunOutcome, run
from disco_host.trace import chrome_trace
from disco_targets.errors import EXIT_FAILED, exit_code

_EXAMPLES = """examples:
  disco-run bundle --boards emulated --inputs images.npy --labels labels.npy
  disco-run bundle --boards posix --check tensors
  disco-run bundle --boards cluster.toml --inputs images.npy --repeat 20 --json run.json --trace trace.json

cluster.toml has one table per node, in the order of the nodes:
  [[node]]
  board = "qemu-mps2-an386"
  port = "/dev/ttyACM0"      # or a pyserial URL such as socket://127.0.0.1:4000
  baud = 921600
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Exit code 0 bit-exact, 1 failed or not bit-exact, 2 wrong usage, 130 interrupted."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    errors = Console(stderr=True)
    config = RunConfig(
        bundle=options.bundle,
        boards=options.boards,
        inputs=options.inputs,
        labels=options.labels,
        limit=options.limit,
        repeat=options.repeat,
        warmup=options.warmup,
        check_tensors=options.check == "tensors",
        deadline_s=options.deadline,
        logs=options.keep_logs,
    )
    try:
        with _bar(errors) as progress:
            outcome = run(config, progress)
        _write(options, outcome)
    except (Exception, KeyboardInterrupt) as error:
        code = exit_code(error)
        _complain(errors, str(error) or "interrupted")
        return code
    print_report(outcome.result, Console())
    if not outcome.result.bit_exact:
        _complain(errors, mismatch_text(outcome.result))
        return EXIT_FAILED
    return 0


def _complain(console: Console, text: str) -> None:
    console.print(f"disco-run: {text}", markup=False, highlight=False, soft_wrap=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _write(options: argparse.Namespace, outcome: RunOutcome) -> None:
    if options.json is not None:
        options.json.write_text(json.dumps(outcome.result.to_json(), indent=1) + "\n", encoding="utf-8")
    if options.trace is not None:
        trace = chrome_trace(outcome.bundle.manifest, outcome.result, outcome.last)
        options.trace.write_text(json.dumps(trace) + "\n", encoding="utf-8")


@contextmanager
def _bar(console: Console) -> Iterator[Callable[[int, int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("Building and starting", total=None)

        def advance(done: int, total: int) -> None:
            progress.update(task, description="Inferences", completed=done, total=total)

        yield advance


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="disco-run",
        description="Run a bundle on its boards, compare every output with TFLite's reference kernels and measure.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="folder written by disco-export")
    parser.add_argument("--boards", required=True, metavar="emulated|posix|FILE.toml", help="start emulated boards, start processes, or open the ports of a cluster file")
    parser.add_argument("--inputs", type=Path, metavar="FILE.npy", help="float32 or int8 inputs [n,h,w,c], channels last (default: the bundle's self-check inputs)")
    parser.add_argument("--labels", type=Path, metavar="FILE.npy", help="one whole number per input, for the accuracy")
    parser.add_argument("--limit", type=int, metavar="N", help="run only the first N inputs")
    parser.add_argument("--repeat", type=int, default=1, metavar="R", help="run all inputs R times (default 1)")
    parser.add_argument("--warmup", type=int, default=1, metavar="W", help="inferences checked but not measured, first (default 1)")
    parser.add_argument("--check", choices=("outputs", "tensors"), default="outputs", help="compare the outputs, or every op's own channels too")
    parser.add_argument("--deadline", type=float, default=30.0, metavar="SECONDS", help="of every wait (default 30)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write the last inference as a Chrome/Perfetto trace")
    parser.add_argument("--keep-logs", type=Path, metavar="DIR", help="keep what started processes print")
    return parser


if __name__ == "__main__":
    sys.exit(main())
