"""`make bench-firmware`: instructions, flash and RAM of the kernels on emulated boards, and times projected from them.

Every row is an export and a run of its own, whose tensors are compared with TFLite's reference kernels. The four
MLPerf Tiny models are not part of this repository: rows of those that are missing are left out, and said so.

With --only, --board, --optimize or --nodes the rows that they leave are run anew and replace those in the file: with
--table the page's, else build/bench/firmware.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from firmware_page import layer_page, page
from firmware_targets import target_table, targets_of
from rich.console import Console

from disco_converter.export import ExportConfig, export
from disco_firmware.variants.registry import VARIANTS
from disco_host.config import EMULATED, RunConfig
from disco_host.projection import project
from disco_host.projection_file import load_projection
from disco_host.run import RunOutcome, run
from disco_targets.board import load_board

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "resnet8_digits"
CLUSTERS = ROOT / "examples" / "clusters"
WORK = ROOT / "build" / "bench"
TINY = Path(os.environ.get("DISCO_SHARED_MODELS", ROOT.parent / "shared" / "models" / "mlperf_tiny"))
PORTABLE_BOARDS = ("qemu-mps2-an385", "qemu-mps2-an385-armv6m")
"""Those for which there are no kernels of their own: `--optimize` changes nothing."""
BOARDS = ("qemu-mps2-an386", "qemu-mps2-an500", "qemu-mps2-an505", "qemu-mps3-an547")
OPTIMIZE = ("size", "balanced", "speed")
INPUTS = 2
"""Counts depend on the data by some 0.1 %."""


@dataclass(frozen=True)
class Model:
    """A network to measure."""

    name: str
    path: Path
    sparsity: float
    """Of its communication."""
    keep_constants: bool = False
    """Also compute channels that are the same for every input."""


@dataclass(frozen=True)
class Case:
    """One export and run."""

    model: Model
    board: str
    optimize: str
    nodes: int


@dataclass(frozen=True)
class LayerRow:
    """One op of the busiest node."""

    op: str
    kind: str
    kernel: str
    macs: int
    instructions: int
    limit_per_mac: float | None
    """Instructions of the kernel's innermost loop alone, for a MAC."""


@dataclass(frozen=True)
class Projected:
    """The run's counts on modelled boards and links: projected, not measured."""

    cluster: str | None
    """None: one board, to which links are nothing."""
    latency_ms_projected: float
    exposed_ms_projected: float
    """What exchanging adds to the time of the kernels: waiting, and the boards' protocol work."""
    waiting_ms_projected: float


@dataclass(frozen=True)
class Row:
    """The figures of one case; instructions, flash and RAM are of the busiest node."""

    model: str
    board: str
    optimize: str
    nodes: int
    sparsity: float
    instructions: int
    """Of the kernels."""
    instructions_with_protocol: int | None
    """The work on frames and looks at the links besides; waiting is none. None for one board."""
    macs: int
    """Executed."""
    macs_dense: int
    """Of the whole model."""
    flash_bytes: int
    ram_bytes: int
    constant_bytes: int
    """Of the flash: weights, as the kernels want them, biases, requantisation."""
    bit_exact: bool
    projections: tuple[Projected, ...]
    layers: tuple[LayerRow, ...]


TINY_MODELS = tuple(
    Model(name, TINY / file, 0.0, keep_constants=True)  # to compare with kernels that compute all
    for name, file in (
        ("ic", "ic_resnet8_int8.tflite"),
        ("vww", "vww_mobilenet025_int8.tflite"),
        ("kws", "kws_dscnn_int8.tflite"),
        ("ad", "ad_autoencoder_int8.tflite"),
    )
)
COMPACT = Model("vww_without_zero_filters", TINY / "vww_mobilenet025_int8.tflite", 0.0)
DENSE, DISCO, INDEPENDENT = (
    Model(name, EXAMPLE / "models" / f"{name}.onnx", sparsity)
    for name, sparsity in (("resnet8_dense", 0.0), ("resnet8_disco90", 0.9), ("resnet8_disco100", 1.0))
)


def main() -> int:
    """Exit code 0 when every row is bit-exact and every target met."""
    options = parse_options()
    console = Console(stderr=True)
    WORK.mkdir(parents=True, exist_ok=True)
    wanted = [case for case in cases() if is_wanted(case, options)]
    file = WORK / "firmware.json" if options.table is None else options.table.with_suffix(".json")
    rows = kept_rows(file) if len(wanted) < len(list(cases())) else []
    for case in wanted:
        if not case.model.path.is_file():
            console.print(
                f"{case.model.name}: {case.model.path} is missing, left out; DISCO_SHARED_MODELS names its folder"
            )
            continue
        row = asdict(measure(case))
        console.print({name: value for name, value in row.items() if name != "layers"}, highlight=False)
        rows = merged(rows, row)
    targets = targets_of(rows)
    for line in target_table(targets):
        console.print(line, highlight=False, markup=False)
    document = {"versions": versions(), "rows": rows}
    for written in {file, WORK / "firmware.json"}:
        written.write_text(as_json(document))
    if options.table is not None:
        layers = options.table.with_name(f"{options.table.stem}_layers.md")
        options.table.write_text(page(document, layers.name))
        layers.write_text(layer_page(document, options.table.name))
    return 0 if all(row["bit_exact"] for row in rows) and all(target.met for target in targets) else 1


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--table", type=Path, metavar="FILE.md", help="also write the tables as two pages, beside them FILE.json"
    )
    names = sorted({case.model.name for case in cases()})
    parser.add_argument("--only", action="append", choices=names, metavar="MODEL", help=", ".join(names))
    parser.add_argument("--board", action="append", choices=(*BOARDS, *PORTABLE_BOARDS), metavar="TARGET")
    parser.add_argument("--optimize", action="append", choices=OPTIMIZE)
    parser.add_argument("--nodes", action="append", type=int, choices=(1, 2))
    return parser.parse_args()


def is_wanted(case: Case, options: argparse.Namespace) -> bool:
    """Whether the options leave it."""
    asked = (options.only, options.board, options.optimize, options.nodes)
    values = (case.model.name, case.board, case.optimize, case.nodes)
    return all(some is None or value in some for some, value in zip(asked, values, strict=True))


def kept_rows(file: Path) -> list[dict[str, Any]]:
    """What was counted earlier, with the same tools."""
    document = json.loads(file.read_text()) if file.is_file() else {"versions": versions(), "rows": []}
    if document["versions"] != versions():
        raise SystemExit(f"{file} was counted with {document['versions']}, not {versions()}: run the whole benchmark")
    rows: list[dict[str, Any]] = document["rows"]
    return rows


def merged(rows: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows with the new one in its place, in the order of the cases."""
    places = [(case.model.name, case.board, case.optimize, case.nodes) for case in cases()]
    known = {(row["model"], row["board"], row["optimize"], row["nodes"]): row for row in (*rows, new)}
    return [known[place] for place in places if place in known]


def as_json(document: dict[str, Any]) -> str:
    """A line for each row."""
    rows = ",\n".join(json.dumps(row) for row in document["rows"])
    return f'{{"versions": {json.dumps(document["versions"])},\n"rows": [\n{rows}\n]}}\n'


def cases() -> Iterator[Case]:
    """All rows: the whole networks on one board of each kind, and the example on one and two."""
    for model in TINY_MODELS:
        for board in BOARDS:
            for optimize in OPTIMIZE:
                yield Case(model, board, optimize, 1)
        for board in PORTABLE_BOARDS:
            yield Case(model, board, "balanced", 1)
    for board in (*BOARDS, *PORTABLE_BOARDS):
        yield Case(COMPACT, board, "balanced", 1)
    for model in (TINY_MODELS[2], COMPACT):
        yield Case(model, BOARDS[0], "balanced", 2)
    for board in BOARDS:
        for optimize in OPTIMIZE:
            yield Case(DISCO, board, optimize, 2)
    for optimize in OPTIMIZE:
        yield Case(DENSE, BOARDS[0], optimize, 1)
    yield Case(DENSE, BOARDS[0], "balanced", 2)
    yield Case(DISCO, BOARDS[0], "balanced", 1)
    yield Case(INDEPENDENT, BOARDS[0], "balanced", 2)


def measure(case: Case) -> Row:
    """Exports and runs one case."""
    bundle = WORK / f"{case.model.name}-{case.board}-{case.optimize}-{case.nodes}"
    onnx = case.model.path.suffix == ".onnx"
    exported = export(
        ExportConfig(
            int8_model(case.model) if onnx else case.model.path,
            case.nodes,
            (case.board,),
            bundle,
            optimize=case.optimize,
            keep_constants=case.model.keep_constants,
        )
    )
    outcome = run(RunConfig(bundle, EMULATED, limit=INPUTS, check_tensors=True))
    nodes, programs = outcome.result.nodes, exported.bundle.manifest.programs
    memories = [node.memory for node in nodes if node.memory is not None]
    counts = [int(node.compute.median) for node in nodes]
    return Row(
        case.model.name,
        case.board,
        case.optimize,
        case.nodes,
        case.model.sparsity,
        max(counts),
        max(int(node.compute.median + node.send.median) for node in nodes) if case.nodes > 1 else None,
        max(sum(op.macs_executed for op in program.ops) for program in programs),
        sum(op.macs_dense for op in exported.bundle.manifest.ops),
        max(memory.flash_bytes for memory in memories),
        max(memory.ram_bytes for memory in memories),
        max(sum(op.constant_bytes for op in program.ops) for program in programs),
        outcome.result.bit_exact,
        tuple(projections(case, outcome)),
        layer_rows(case, outcome),
    )


def layer_rows(case: Case, outcome: RunOutcome) -> tuple[LayerRow, ...]:
    """What every op of node 0 takes."""
    limits = {(variant.instruction_set, variant.name): variant.instructions_per_mac for variant in VARIANTS}
    best = load_board(case.board).instruction_set
    return tuple(
        LayerRow(
            op.name,
            op.kind,
            op.kernel,
            op.macs_executed,
            int(0 if result.compute is None else result.compute.median),
            limits.get((best, op.kernel)),
        )
        for op, result in zip(outcome.bundle.manifest.programs[0].ops, outcome.result.nodes[0].ops, strict=True)
    )


def int8_model(model: Model) -> Path:
    """The model quantised once, for all its rows."""
    file = WORK / f"{model.name}.tflite"
    if not file.is_file():
        folder = WORK / f"{model.name}-quantised"
        export(ExportConfig(model.path, 1, ("posix",), folder, calibration=EXAMPLE / "calibration.npy"))
        shutil.copyfile(folder / "reference.tflite", file)
    return file


def projections(case: Case, outcome: RunOutcome) -> Iterator[Projected]:
    """Of the example on Cortex-M4 boards: on two, on every cluster of the examples; on one."""
    if case.board != BOARDS[0] or case.model not in (DENSE, DISCO, INDEPENDENT):
        return
    clusters = sorted(CLUSTERS.glob("m4-*.toml"))
    for cluster in clusters if case.nodes > 1 else clusters[:1]:
        model = load_projection(cluster, case.nodes)
        projection = project(outcome.bundle.manifest, outcome.result, model, cluster.name).projection
        name = cluster.stem if case.nodes > 1 else None
        exposed = projection.exposed_communication_ms
        yield Projected(name, projection.latency_ms, exposed, projection.exposed_waiting_ms)


def versions() -> dict[str, str]:
    """What the figures depend on."""
    tools = {"gcc": ["arm-none-eabi-gcc", "--version"], "qemu": ["qemu-system-arm", "--version"]}
    found = {
        name: subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
        for name, command in tools.items()
    }
    return {"disco-edge": version("disco-edge"), **found}


if __name__ == "__main__":
    sys.exit(main())
