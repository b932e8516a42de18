"""`disco-run`: parses, calls, reports."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from disco_firmware.reference import MODES, REFERENCE
from disco_host.config import CYCLES_ESTIMATE, DEFAULT_DEADLINE_S, EMULATED, INSTRUCTIONS, LINUX, POSIX, RunConfig
from disco_host.node.messages import ENGINES
from disco_targets.command import check_reports, command_parser, run_command, write_json
from disco_targets.errors import EXIT_FAILED, EXIT_OK, UsageError
from disco_targets.tables import report_console

if TYPE_CHECKING:
    from collections.abc import Sequence

TRACED = 20
"""How many inferences a trace holds at most, the last ones."""
_EXAMPLES = """examples:
  disco-run bundle --boards emulated --inputs images.npy --labels labels.npy
  disco-run bundle --boards posix --inputs images.npy --check tensors
  disco-run bundle --boards cluster.toml --inputs images.npy --repeat 10 --json run.json --trace run_trace.json
  disco-run bundle --boards linux --probe-links system.toml
  disco-run bundle --boards emulated --project examples/clusters/m4-168mhz-uart-3mbaud.toml
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Exit code 0 bit-exact, 1 failed or outputs differ, 2 wrong usage, 130 interrupted."""
    options = _parser().parse_args(arguments)
    return run_command("disco-run", lambda errors: _run(options, errors))


def _run(options: argparse.Namespace, errors: Console) -> int:
    # Imported here, where an interrupt is already caught.
    from disco_host.progress import Bar
    from disco_host.projection_report import add_projection, print_projection
    from disco_host.remote.probes import write_system
    from disco_host.report import print_report
    from disco_host.run import run
    from disco_host.trace import chrome_trace

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
        project=options.project,
        count=options.count,
        engine=options.engine,
        mode=options.mode,
        exchange_deadline_s=options.exchange_deadline,
        probe_links=options.probe_links is not None,
    )
    _check_files(options)
    with Bar(errors) as bar:
        outcome = run(config, bar)
    write_json(options.json, outcome.to_json())
    if options.probe_links is not None:
        write_system(options.probe_links, outcome.result, outcome.result.probed)
    if options.trace is not None:
        captures = outcome.captures[-TRACED:]
        trace = chrome_trace(outcome.bundle.manifest, outcome.result, *captures)
        if outcome.projected is not None:
            add_projection(trace, outcome.bundle.manifest.nodes, outcome.projected)
        write_json(options.trace, trace, indent=None)
    console = report_console()
    print_report(outcome.result, console)
    if outcome.projected is not None:
        print_projection(outcome.projected.projection, console)
    return EXIT_OK if outcome.result.bit_exact else EXIT_FAILED


def _check_files(options: argparse.Namespace) -> None:
    if options.probe_links is not None and options.probe_links.suffix != ".toml":
        raise UsageError(f"--probe-links {options.probe_links}: a system for disco-latency is a file NAME.toml")
    check_reports({"--json": options.json, "--trace": options.trace, "--probe-links": options.probe_links})


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "disco-run",
        "Run a bundle on its boards, compare every output with the golden and measure.",
        _EXAMPLES,
    )
    add = parser.add_argument
    add("bundle", type=Path, metavar="BUNDLE", help="folder that disco-export wrote")
    boards = (
        f"{EMULATED} (QEMU), {POSIX} (processes on this PC), {LINUX} (agents on this PC, over TCP) or a cluster file"
    )
    add("--boards", required=True, metavar="emulated|posix|linux|FILE.toml", help=boards)
    inputs = "[n,h,w,c], float32 or int8, channels last; default: the bundle's self-check inputs"
    add("--inputs", type=Path, metavar="FILE.npy", help=inputs)
    add("--labels", type=Path, metavar="FILE.npy", help="the right class of each input: accuracy")
    add("--limit", type=int, metavar="N", help="only the first N inputs")
    add("--repeat", type=int, default=1, metavar="R", help="run all inputs R times (default 1)")
    warmup = "inferences before the measured ones, checked all the same (default 1)"
    add("--warmup", type=int, default=1, metavar="W", help=warmup)
    check = "compare the outputs (default), or the output of every op on every node"
    add("--check", choices=("outputs", "tensors"), default="outputs", help=check)
    count = "what emulated boards count; cycles are estimated for Cortex-M4 and M7 (default instructions)"
    add("--count", choices=(INSTRUCTIONS, CYCLES_ESTIMATE), default=INSTRUCTIONS, help=count)
    deadline = f"of every single wait (default {DEFAULT_DEADLINE_S:g})"
    add("--deadline", type=float, default=DEFAULT_DEADLINE_S, metavar="SECONDS", help=deadline)
    exchange = (
        "of the nodes' waits for each other (default: 1.5 between Linux nodes, 10 with boards among them, else as "
        "--deadline); heartbeats of Linux nodes may be late by 0.8 of it: more for slow links and busy machines"
    )
    add("--exchange-deadline", type=float, metavar="SECONDS", help=exchange)
    engine = (
        "what Linux nodes run the network with, where the cluster file does not say: TFLite, or C compiled "
        "there (default tflite; native among boards)"
    )
    add("--engine", choices=ENGINES, help=engine)
    mode = (
        "kernels of tflite; with xnnpack the outputs are compared with the whole model in XNNPACK on this PC (default "
        "reference)"
    )
    add("--mode", choices=MODES, default=REFERENCE, help=mode)
    add("--json", type=Path, metavar="FILE", help="write all figures")
    add(
        "--trace",
        type=Path,
        metavar="FILE",
        help=f"write a timeline of the last {TRACED} inferences for Perfetto or chrome://tracing",
    )
    project = (
        "turn the counts into time on the boards and links of this file (see examples/clusters), labelled projected"
    )
    add("--project", type=Path, metavar="FILE.toml", help=project)
    probe = "measure the links between Linux nodes after the run and write them as a system for disco-latency --system"
    add("--probe-links", type=Path, metavar="FILE.toml", help=probe)
    add("--keep-logs", type=Path, metavar="DIR", help="keep what boards on this PC print")
    return parser


if __name__ == "__main__":
    sys.exit(main())
