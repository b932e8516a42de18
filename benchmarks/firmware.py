"""`make bench-firmware`: instructions, flash and RAM of the kernels on emulated boards, and times projected from them.

Every row is an export and a run of its own, whose tensors are compared with TFLite's reference kernels. The four
MLPerf Tiny models are not part of this repository: rows of those that are missing are left out, and said so.
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

from firmware_targets import Target, target_table, targets_of
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
LAYER_CASES = ((BOARDS[0], "balanced"), (BOARDS[0], "speed"), (BOARDS[-1], "speed"))
"""Shown layer by layer."""
INTRODUCTION = (
    "Made by `make bench-firmware`: instructions counted on emulated boards, of the busiest node, for one",
    "inference, every tensor equal to TFLite's reference kernels. `instructions` are those of the kernels; `with",
    "protocol` adds what the firmware records as its work on frames and links, the emulated UARTs' driver included;",
    "what it does while it waits, and interrupts, are in neither. `per MAC` counts the MACs that the node executes.",
    "Flash as linked; RAM as linked and the stack in use.",
)
ABOUT_PROJECTIONS = (
    "Two boards, *projected* from these counts onto modelled boards and links (not measured). Exposed communication is",
    "what exchanging adds to the time of the kernels: waiting for links, and protocol work on the boards.",
)
COLUMNS = "model, board, optimize, nodes, S_comm, instructions, with protocol, per MAC, flash, RAM, bit-exact"
PROJECTED_COLUMNS = "model, optimize, cluster, latency ms, exposed, of it waiting, of it protocol work"
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
    bit_exact: bool


@dataclass(frozen=True)
class LayerRow:
    """One op of a case on one board."""

    model: str
    board: str
    optimize: str
    op: str
    kind: str
    kernel: str
    macs: int
    instructions: int
    limit_per_mac: float | None
    """Instructions of the kernel's innermost loop alone, for a MAC."""


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
    """Exit code 0 when every row is bit-exact and no target is lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, metavar="FILE.md", help="also write the tables as a page")
    options = parser.parse_args()
    console = Console(stderr=True)
    WORK.mkdir(parents=True, exist_ok=True)
    rows, projections = [], []
    layers: list[LayerRow] = []
    for case in cases(console):
        row, outcome = measure(case)
        console.print(f"{asdict(row)}", highlight=False)
        rows.append(row)
        if case.nodes == 2 and case.board == BOARDS[0]:
            projections += [projected(case, outcome, cluster) for cluster in sorted(CLUSTERS.glob("m4-*.toml"))]
        if (case.board, case.optimize) in LAYER_CASES and case.nodes == 1 and case.model in TINY_MODELS:
            layers += layer_rows(case, outcome)
    documented = [asdict(row) for row in rows]
    targets = targets_of(documented, projections)
    for line in target_table(targets):
        console.print(line, highlight=False, markup=False)
    document = {
        "versions": versions(),
        "targets": [asdict(target) for target in targets],
        "rows": documented,
        "layers": [asdict(row) for row in layers],
        "projections": projections,
    }
    (WORK / "firmware.json").write_text(json.dumps(document, indent=1) + "\n")
    if options.table is not None:
        options.table.write_text(page(document))
    return 0 if all(row.bit_exact for row in rows) and not any(target.lost for target in targets) else 1


def cases(console: Console) -> Iterator[Case]:
    """All rows: the whole networks on one board of each kind, and the example on one and two."""
    for model in TINY_MODELS:
        if not model.path.is_file():
            console.print(f"{model.name}: no {model.path}, left out; name their folder in DISCO_SHARED_MODELS")
            continue
        for board in BOARDS:
            for optimize in OPTIMIZE:
                yield Case(model, board, optimize, 1)
        for board in PORTABLE_BOARDS:
            yield Case(model, board, "balanced", 1)
    if COMPACT.path.is_file():
        for board in (*BOARDS, *PORTABLE_BOARDS):
            yield Case(COMPACT, board, "balanced", 1)
    for board in BOARDS:
        for optimize in OPTIMIZE:
            yield Case(DISCO, board, optimize, 2)
    yield Case(DENSE, BOARDS[0], "balanced", 1)
    yield Case(DENSE, BOARDS[0], "balanced", 2)
    yield Case(DISCO, BOARDS[0], "balanced", 1)
    yield Case(INDEPENDENT, BOARDS[0], "balanced", 2)


def measure(case: Case) -> tuple[Row, RunOutcome]:
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
    row = Row(
        case.model.name,
        case.board,
        case.optimize,
        case.nodes,
        case.model.sparsity,
        int(max(node.compute.median for node in nodes)),
        int(max(node.compute.median + node.send.median for node in nodes)) if case.nodes > 1 else None,
        max(sum(op.macs_executed for op in program.ops) for program in programs),
        sum(op.macs_dense for op in exported.bundle.manifest.ops),
        max(memory.flash_bytes for memory in memories),
        max(memory.ram_bytes for memory in memories),
        max(sum(op.constant_bytes for op in program.ops) for program in programs),
        outcome.result.bit_exact,
    )
    return row, outcome


def layer_rows(case: Case, outcome: RunOutcome) -> list[LayerRow]:
    """What every op of the one board takes."""
    limits = {(variant.instruction_set, variant.name): variant.instructions_per_mac for variant in VARIANTS}
    best = load_board(case.board).instruction_set
    return [
        LayerRow(
            case.model.name,
            case.board,
            case.optimize,
            op.name,
            op.kind,
            op.kernel,
            op.macs_executed,
            int(result.compute.median),
            limits.get((best, op.kernel)),
        )
        for op, result in zip(outcome.bundle.manifest.programs[0].ops, outcome.result.nodes[0].ops, strict=True)
    ]


def int8_model(model: Model) -> Path:
    """The model quantised once, for all its rows."""
    file = WORK / f"{model.name}.tflite"
    if not file.is_file():
        folder = WORK / f"{model.name}-quantised"
        export(ExportConfig(model.path, 1, ("posix",), folder, calibration=EXAMPLE / "calibration.npy"))
        shutil.copyfile(folder / "reference.tflite", file)
    return file


def projected(case: Case, outcome: RunOutcome, cluster: Path) -> dict[str, Any]:
    """The run's counts on modelled boards and links: projected, not measured."""
    model = load_projection(cluster, case.nodes)
    projection = project(outcome.bundle.manifest, outcome.result, model, cluster.name).projection
    return {
        "model": case.model.name,
        "optimize": case.optimize,
        "nodes": case.nodes,
        "sparsity": case.model.sparsity,
        "cluster": cluster.stem,
        "latency_ms_projected": projection.latency_ms,
        "exposed_ms_projected": projection.exposed_communication_ms,
        "waiting_ms_projected": projection.exposed_waiting_ms,
    }


def versions() -> dict[str, str]:
    """What the figures depend on."""
    tools = {"gcc": ["arm-none-eabi-gcc", "--version"], "qemu": ["qemu-system-arm", "--version"]}
    found = {
        name: subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
        for name, command in tools.items()
    }
    return {"disco-edge": version("disco-edge"), **found}


def page(document: dict[str, Any]) -> str:
    """The tables as Markdown."""
    lines = ["# Firmware: instructions, flash, RAM", "", *INTRODUCTION, ""]
    lines += [f"- {name}: {text}" for name, text in document["versions"].items()]
    lines += [
        "",
        *heads(COLUMNS),
    ]
    for row in document["rows"]:
        all_work = f"{row['instructions_with_protocol']:,}" if row["nodes"] > 1 else "-"
        lines.append(
            f"| {row['model']} | {row['board']} | {row['optimize']} | {row['nodes']} | {row['sparsity']:.0%} | "
            f"{row['instructions']:,} | {all_work} | {row['instructions'] / row['macs']:.2f} | "
            f"{row['flash_bytes']:,} | {row['ram_bytes']:,} | {'yes' if row['bit_exact'] else 'NO'} |"
        )
    lines += [
        "",
        *ABOUT_PROJECTIONS,
        "",
        *heads(PROJECTED_COLUMNS),
    ]
    for entry in document["projections"]:
        latency, exposed, waiting = (entry[f"{name}_ms_projected"] for name in ("latency", "exposed", "waiting"))
        shares = " | ".join(f"{part / latency:.1%}" for part in (exposed, waiting, exposed - waiting))
        lines.append(f"| {entry['model']} | {entry['optimize']} | {entry['cluster']} | {latency:.2f} | {shares} |")
    lines += ["", "## Targets", "", *target_table([Target(**target) for target in document["targets"]])]
    lines += layer_tables([LayerRow(**row) for row in document["layers"]])
    return "\n".join(lines) + "\n"


def heads(names: str) -> list[str]:
    """The first lines of a table."""
    return [f"| {names.replace(', ', ' | ')} |", f"|{'---|' * (names.count(',') + 1)}"]


def layer_tables(rows: list[LayerRow]) -> list[str]:
    """Layer by layer, each beside the limit of its kernel's innermost loop."""
    lines = ["", "## Layer by layer", ""]
    lines += ["`limit` is what the body of the kernel's innermost loop alone takes for a MAC, loads included; what is"]
    lines += ["above it is spent on requantisation, on the loops, on moving and extending inputs, and on outputs that"]
    lines += ["do not fill a block.", ""]
    lines += ["| model | board | optimize | op | kernel | MACs | instructions | per MAC | limit |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        each = f"{row.instructions / row.macs:.2f}" if row.macs else "-"
        limit = f"{row.limit_per_mac:.2f}" if row.limit_per_mac and row.macs else "-"
        lines.append(
            f"| {row.model} | {row.board} | {row.optimize} | {row.op} | {row.kernel} | {row.macs:,} | "
            f"{row.instructions:,} | {each} | {limit} |"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
