"""`make demo`: ResNet-8 on one emulated Cortex-M4 and on two, with dense, learned-sparse and no exchange.

Every step is a command that can be typed by hand; it is printed before it runs. Everything lands in build/demo.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from disco_firmware.build import build_node

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = Path("build/demo")
TARGET = "qemu-mps2-an386"
IMAGES = 50


@dataclass(frozen=True)
class Case:
    """One of the four runs."""

    key: str
    title: str
    model: Path
    nodes: int


def main() -> int:
    """Exit code 0 when all four runs are bit-exact."""
    console = Console(width=120)
    models = Path(HERE.relative_to(ROOT)) / "models"
    dense_int8 = WORK / "single" / "reference.tflite"
    cases = (
        Case("single", "one board, whole dense model", models / "resnet8_dense.onnx", 1),
        Case("dense", "two boards, dense exchange", dense_int8, 2),  # quantised by the export before
        Case("disco", "two boards, DISCO 90 %", models / "resnet8_disco90.onnx", 2),
        Case("independent", "two boards, no exchange (100 %)", models / "resnet8_disco100.onnx", 2),
    )
    (ROOT / WORK).mkdir(parents=True, exist_ok=True)
    for name in ("images", "labels"):
        np.save(ROOT / WORK / f"{name}.npy", np.load(HERE / f"test_{name}.npy")[:IMAGES])
    reports: dict[str, Any] = {}
    for case in cases:
        console.rule(case.title)
        status = _run_case(case, console)
        if status:
            return status
        reports[case.key] = json.loads((ROOT / WORK / f"{case.key}.json").read_text())
    (ROOT / WORK / "report.json").write_text(json.dumps(reports, indent=1) + "\n")
    console.rule("The four runs")
    console.print(_story(cases, reports))
    console.print(
        f"{WORK}/report.json has every figure; open {WORK}/trace.json at https://ui.perfetto.dev", highlight=False
    )
    return 0 if all(report["bit_exact"] for report in reports.values()) else 1


def _run_case(case: Case, console: Console) -> int:
    data = HERE.relative_to(ROOT)
    bundle, figures = WORK / case.key, WORK / f"{case.key}.json"
    export = ["disco-export", case.model, "--nodes", case.nodes, "--target", TARGET]
    export += ["--calibration", data / "calibration.npy", "--json", WORK / f"{case.key}-export.json", "-o", bundle]
    run = ["disco-run", bundle, "--boards", "emulated", "--inputs", WORK / "images.npy"]
    run += ["--labels", WORK / "labels.npy", "--json", figures]
    if case.key == "disco":
        run += ["--trace", WORK / "trace.json"]
    quiet = case.key != "disco"
    return _call(export, console, quiet) or _call(run, console, quiet)


def _call(command: list[Any], console: Console, quiet: bool) -> int:
    """Runs a command of this environment; a quiet one shows its output only when it fails."""
    words = [str(word) for word in command]
    console.print(f"$ {' '.join(words)}", style="bold", highlight=False, soft_wrap=True)
    program = Path(sys.executable).parent / words[0]
    output = subprocess.PIPE if quiet else None
    result = subprocess.run([program, *words[1:]], cwd=ROOT, stdout=output, text=True)
    if result.returncode and quiet:
        sys.stdout.write(result.stdout)
    return result.returncode


def _story(cases: tuple[Case, ...], reports: dict[str, Any]) -> Table:
    table = Table()
    table.add_column("run")
    columns = (
        "accuracy",
        "instructions / node",
        "of one board",
        "bytes / inference",
        "flash / node",
        "RAM / node",
        "bit-exact",
    )
    for name in columns:
        table.add_column(name, justify="right")
    base = max(node["compute"]["median"] for node in reports["single"]["nodes"])
    for case in cases:
        table.add_row(case.title, *_cells(case, reports[case.key], base))
    return table


def _cells(case: Case, report: dict[str, Any], base: float) -> tuple[str, ...]:
    compute = [node["compute"]["median"] for node in report["nodes"]]
    sent = [f"{link['from']}->{link['to']} {link['bytes'] // report['inferences']:,}" for link in report["links"]]
    sizes = _sizes(case)
    return (
        f"{100 * report['accuracy']:.1f} %",
        "\n".join(f"{value / 1e6:.2f} M" for value in compute),
        f"{max(compute) / base:.2f}",
        "\n".join(sent) or "-",
        "\n".join(f"{flash:,}" for flash, _ in sizes),
        "\n".join(f"{ram:,}" for _, ram in sizes),
        "yes" if report["bit_exact"] else "NO",
    )


def _sizes(case: Case) -> list[tuple[int, int]]:
    """(flash, RAM without stack) of each node, as linked."""
    images = [build_node(ROOT / WORK / case.key, node) for node in range(case.nodes)]
    return [(image.flash_bytes, image.ram_bytes) for image in images]


if __name__ == "__main__":
    sys.exit(main())
