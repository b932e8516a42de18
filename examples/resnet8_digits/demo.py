"""`make demo`: ResNet-8 on one emulated Cortex-M4 and on two, with dense, learned-sparse and no exchange.

Every step is a command that can be typed by hand; it is printed before it runs. Everything lands in build/demo.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = Path("build/demo")
TARGET = "qemu-mps2-an386"
IMAGES = 50
SHOWN = "disco"
"""The case whose commands show all they print."""


@dataclass(frozen=True)
class Case:
    """One of the runs."""

    key: str
    title: str
    model: Path
    nodes: int
    optimize: str = "balanced"


def main() -> int:
    """Exit code 0 when all runs are bit-exact."""
    console = Console(width=120)
    models = Path(HERE.relative_to(ROOT)) / "models"
    dense_int8 = WORK / "single" / "reference.tflite"
    cases = (
        Case("single", "one board, dense model", models / "resnet8_dense.onnx", 1),
        Case("portable", "the same, portable kernels", dense_int8, 1, "none"),  # quantised by the export before
        Case("dense", "two boards, dense exchange", dense_int8, 2),
        Case("disco", "two boards, DISCO 90 %", models / "resnet8_disco90.onnx", 2),
        Case("independent", "two boards, no exchange", models / "resnet8_disco100.onnx", 2),
    )
    (ROOT / WORK).mkdir(parents=True, exist_ok=True)
    for name in ("images", "labels"):
        np.save(ROOT / WORK / f"{name}.npy", np.load(HERE / f"test_{name}.npy")[:IMAGES])
    reports: dict[str, Any] = {}
    with ThreadPoolExecutor(max_workers=1) as worker:  # exports and builds the next ones while the boards run
        try:
            firmware = [worker.submit(_prepare, case) for case in cases]
            for case, prepared in zip(cases, firmware, strict=True):
                console.rule(case.title)
                status = _show_prepared(case, prepared, console) or _run_boards(case, console)
                if status:
                    return status
                report = json.loads((ROOT / WORK / f"{case.key}.json").read_text())
                reports[case.key] = report
        finally:
            worker.shutdown(cancel_futures=True)
    (ROOT / WORK / "report.json").write_text(json.dumps(reports, indent=1) + "\n")
    console.rule("The runs")
    console.print(_story(cases, reports))
    console.print(
        f"{WORK}/report.json has every figure; open {WORK}/trace.json at https://ui.perfetto.dev", highlight=False
    )
    return 0 if all(report["bit_exact"] for report in reports.values()) else 1


def _preparation(case: Case) -> tuple[list[str], ...]:
    data = HERE.relative_to(ROOT)
    export = ["disco-export", case.model, "--nodes", case.nodes, "--target", TARGET]
    export += ["--calibration", data / "calibration.npy", "--json", WORK / f"{case.key}-export.json"]
    export += ["--optimize", case.optimize, "-o", WORK / case.key]
    return [str(word) for word in export], ["disco-flash", str(WORK / case.key)]


def _prepare(case: Case) -> list[subprocess.CompletedProcess[str]]:
    """Exports and builds, as far as it goes; nothing is shown yet."""
    results = []
    for command in _preparation(case):
        results.append(_call(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        if results[-1].returncode:
            break
    return results


def _show_prepared(case: Case, prepared: Future[list[subprocess.CompletedProcess[str]]], console: Console) -> int:
    """Exit code of the last command."""
    with console.status("exporting the model and building the firmware"):
        results = prepared.result()
    for command, result in zip(_preparation(case), results, strict=False):
        _announce(command, console)
        if case.key == SHOWN or result.returncode:
            sys.stdout.write(result.stdout)
            sys.stdout.flush()
    return results[-1].returncode


def _run_boards(case: Case, console: Console) -> int:
    """Exit code of `disco-run`."""
    command = ["disco-run", WORK / case.key, "--boards", "emulated", "--inputs", WORK / "images.npy"]
    command += ["--labels", WORK / "labels.npy", "--json", WORK / f"{case.key}.json"]
    if case.key == SHOWN:
        command += ["--trace", WORK / "trace.json"]
    words = [str(word) for word in command]
    _announce(words, console)
    result = _call(words, stdout=None if case.key == SHOWN else subprocess.PIPE)
    if result.returncode and result.stdout:
        sys.stdout.write(result.stdout)
    return result.returncode


def _announce(command: list[str], console: Console) -> None:
    console.print(f"$ {' '.join(command)}", style="bold", highlight=False, soft_wrap=True)


def _call(command: list[str], stdout: int | None, stderr: int | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a command of this environment."""
    program = Path(sys.executable).parent / command[0]
    return subprocess.run([program, *command[1:]], cwd=ROOT, stdout=stdout, stderr=stderr, text=True)


def _story(cases: tuple[Case, ...], reports: dict[str, Any]) -> Table:
    table = Table()
    table.add_column("run", no_wrap=True)
    columns = (
        "accuracy",
        "instructions\nof kernels",
        "of one board\n(with protocol)",
        "bytes /\ninference",
        "flash /\nnode",
        "RAM /\nnode",
        "bit-exact",
    )
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    base = max(node["compute"]["median"] for node in reports["single"]["nodes"])
    for case in cases:
        table.add_row(case.title, *_cells(reports[case.key], base))
    return table


def _cells(report: dict[str, Any], base: float) -> tuple[str, ...]:
    compute = [node["compute"]["median"] for node in report["nodes"]]
    work = [node["compute"]["median"] + node["send"]["median"] for node in report["nodes"]]
    memories = [node["memory"] for node in report["nodes"]]
    sent = [f"{link['from']}→{link['to']} {link['bytes'] // report['inferences']:,}" for link in report["links"]]
    return (
        f"{100 * report['accuracy']:.1f} %",
        "\n".join(f"{value / 1e6:.2f} M" for value in compute),
        f"{max(compute) / base:.2f}" + (f" ({max(work) / base:.2f})" if len(work) > 1 else ""),
        "\n".join(sent) or "-",
        "\n".join(f"{memory['flash_bytes']:,}" for memory in memories),
        "\n".join(f"{memory['ram_bytes']:,}" for memory in memories),
        "yes" if report["bit_exact"] else "NO",
    )


if __name__ == "__main__":
    sys.exit(main())
