"""`disco-export`: parses, calls, reports."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from disco_targets.board import known_boards
from disco_targets.command import check_writable, command_parser, run_command, say, write_json
from disco_targets.errors import EXIT_OK, DiscoError
from disco_targets.tables import report_console

_EXAMPLES = """examples:
  disco-export model.onnx --nodes 2 --target qemu-mps2-an386 --calibration images.npy -o bundle
  disco-export model_int8.tflite --nodes 3 --target posix -o bundle
  disco-export model.onnx --nodes 2 --shares 3,1 --target posix --calibration images.npy -o bundle
  disco-export model.onnx --nodes 1 --target qemu-mps2-an386 --calibration images.npy -o single
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Exit code 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    options = _parser().parse_args(arguments)
    return run_command("disco-export", lambda errors: _export(options, errors))


def _export(options: argparse.Namespace, errors: Console) -> int:
    # Imported here, so that --help and usage errors need no conversion packages.
    try:
        from disco_converter.export import ExportConfig, export
        from disco_converter.recompute import RECOMPUTED_MACS
        from disco_converter.report import print_report, summary
        from disco_planning.shares import parse_shares
    except ModuleNotFoundError as error:
        raise DiscoError(
            f"the package {error.name} is missing: install what converting needs with pip install 'disco-edge[convert]'"
        ) from error
    config = ExportConfig(
        model=options.model,
        nodes=options.nodes,
        targets=tuple(options.target.split(",")),
        output=options.output,
        calibration=options.calibration,
        test_inputs=options.test_inputs,
        optimize=options.optimize,
        shares=None if options.shares is None else parse_shares(options.shares),
        keep_constants=options.keep_constants,
        recomputed_macs=RECOMPUTED_MACS if options.recompute is None else options.recompute,
    )
    check_writable(options.json)
    result = export(config, _Bars(errors))
    write_json(options.json, summary(result))
    print_report(result, report_console())
    for warning in result.warnings:
        say(errors, f"disco-export: warning: {warning}")
    return EXIT_OK


class _Bars:
    """A spinner for each step, a bar where the number of steps is known; nothing where nobody looks."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, text: str, total: int | None = None) -> Iterator[Callable[[], None]]:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(
            *columns, console=self._console, transient=True, disable=not self._console.is_terminal
        ) as progress:
            task = progress.add_task(text, total=total)
            yield lambda: progress.advance(task)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "disco-export",
        "Quantise a model once, cut it into a slice per node, prove them bit-exact, write a bundle.",
        _EXAMPLES,
    )
    parser.add_argument(
        "model", type=Path, metavar="MODEL", help="float .onnx with a static batch of 1, or a full-int8 .tflite"
    )
    parser.add_argument(
        "--nodes", type=int, required=True, metavar="N", help="number of boards; 1 is the single-board baseline"
    )
    parser.add_argument(
        "--target",
        required=True,
        metavar="BOARD[,BOARD...]",
        help=f"one board for all nodes or one for each; known: {', '.join(known_boards())}",
    )
    parser.add_argument(
        "--shares",
        metavar="SHARE,SHARE[,...]",
        help="how the channels of each layer are shared out, e.g. 3,1 for a board that is three times as fast as the "
        "other (default: as the model was pruned, else equally)",
    )
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE.npy", help="float32 inputs [n,h,w,c], channels last; needed for .onnx"
    )
    parser.add_argument(
        "--test-inputs", type=Path, metavar="FILE.npy", help="more inputs for the proof, float32 or int8"
    )
    parser.add_argument(
        "--optimize",
        default="balanced",
        metavar="none|size|balanced|speed",
        help="kernels: portable ones; faster ones where 1%% more flash saves 1%% of the instructions; with up to 2.5 "
        "times the smallest constants (or a twentieth of the board's flash); with all the flash there is (default: "
        "balanced)",
    )
    parser.add_argument(
        "--keep-constants",
        action="store_true",
        help="also compute channels that are the same for every input, such as those of all-zero filters (default: "
        "they are listed in bundle.json and folded into biases)",
    )
    parser.add_argument(
        "--recompute",
        type=int,
        metavar="MACS",
        help="channels of another node that a node can compute from the network's input with up to so many "
        "multiply-accumulates a value are computed there instead of sent (default: 64; 0: never)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="where the bundle goes; an old bundle there is replaced",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the totals as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
