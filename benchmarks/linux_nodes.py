"""Two Linux nodes on a wire of known rate: latency of ResNet-50 and ResNet-8 at several sparsities, beside one node.

    make bench-linux
    .venv/bin/python benchmarks/linux_nodes.py --models resnet8 --rates 75 --repeat 5

Each node is an agent in a network namespace of its own on a core of its own; TFLite computes with XNNPACK in one
thread. Everything is measured on the nodes' clocks but `predicted_ms`: the max-plus replay of the measured work of each
stage over the measured link. Every output is compared with the whole model's. Writes build/bench/linux_nodes.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from linux_figures import MeasuredLink, compute_ms, exchange_ms, latency_ms, predicted_ms, sent_bytes
from linux_models import write_model
from linux_network import Namespace, set_rate, two_namespaces, why_not
from linux_page import page, plot
from rich.console import Console

from disco_converter.export import ExportConfig, export
from disco_firmware.bundle import Bundle, load_bundle
from disco_firmware.reference import XNNPACK
from disco_host.config import RunConfig
from disco_host.node.auth import write_token
from disco_host.node.messages import TFLITE
from disco_host.processes import ChildProcess, stop_all
from disco_host.run import run
from disco_targets.errors import DiscoError

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "bench"
MODELS = ("resnet50", "resnet8")
RATES_MBIT = (300, 75, None)
SPARSITIES = (0.0, 0.8, 0.9, 0.99, 1.0)
PORT = 7450
START_S = 30.0
EXCHANGE_DEADLINE_S = 5.0


@dataclass(frozen=True)
class Row:
    """One model at one sparsity on one link."""

    model: str
    nodes: int
    rate_mbit: int | None
    """Of the link, each direction; None: no limit."""
    sparsity: float
    """Communication sparsity of every layer."""
    median_ms: float
    """Latency: from the start of the first node to the end of the last."""
    p95_ms: float
    compute_ms: float
    """In the kernels, of the slower node; median."""
    exchange_ms: float
    """From the moment when all that a stage reads is computed to its beginning to compute, of all its stages; of the
    slower node; median."""
    exchanges: int
    bytes: int
    """Payload of one inference in the direction that carries more."""
    predicted_ms: float


def main() -> int:
    """0 also where this machine cannot do it, 1 when an output differs."""
    options = _options()
    reason = why_not()
    if reason is not None:
        _say(f"skipped: {reason}")
        return 0
    load = os.getloadavg()
    with two_namespaces() as pair, _agents(pair) as boards:
        links: dict[int | None, MeasuredLink] = {}
        for rate in options.rates:
            links[rate] = _probe(pair, set_rate(pair, rate))
            _say(f"link at {rate or 'no'} Mbit/s limit: {links[rate]}")
        rows = []
        for model in options.models:
            bundles = {sparsity: _bundle(model, sparsity) for sparsity in options.sparsities}
            alone = _alone(model, bundles[options.sparsities[0]])
            rows.append(_measure(model, alone, 0.0, None, MeasuredLink(1.0, 0.0, 0), boards[1], options))
            for rate in options.rates:
                set_rate(pair, rate)
                rows += [
                    _measure(model, bundle, sparsity, rate, links[rate], boards[2], options)
                    for sparsity, bundle in bundles.items()
                ]
    document: dict[str, Any] = {
        "versions": _versions(),
        "load_average": [round(value, 2) for value in (*load, *os.getloadavg())],
        "inferences": options.repeat,
        "links": [{"rate_mbit": rate, **asdict(link)} for rate, link in links.items()],
        "rows": [asdict(row) for row in rows],
    }
    (WORK / "linux_nodes.json").write_text(json.dumps(document, indent=1) + "\n")
    if options.table is not None:
        options.table.write_text(page(document))
        picture = plot(document)
        if picture is None:
            _say("no plot: pip install 'disco-edge[plot]'")
        else:
            options.table.with_suffix(".png").write_bytes(picture)
    _say(page(document))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--models", nargs="+", choices=MODELS, default=MODELS)
    add("--rates", nargs="+", type=lambda text: None if text == "none" else int(text), default=RATES_MBIT)
    add("--sparsities", nargs="+", type=float, default=SPARSITIES)
    add("--repeat", type=int, default=30, help="measured inferences")
    add("--warmup", type=int, default=5)
    add("--table", type=Path, help="write the table here, and the plot beside it")
    return parser.parse_args()


# ---- bundles


def _bundle(model: str, sparsity: float) -> Bundle:
    """A network for two nodes; made once."""
    folder = WORK / "linux" / f"{model}-{sparsity * 100:g}"
    with contextlib.suppress(DiscoError):
        return load_bundle(folder)
    _say(f"exporting {model} at {sparsity:.0%}")
    with tempfile.TemporaryDirectory(prefix="disco-bench-") as work:
        onnx, calibration = write_model(model, sparsity, Path(work))
        return export(ExportConfig(onnx, 2, ("linux",), folder, calibration)).bundle


def _alone(model: str, whole: Bundle) -> Bundle:
    """The same network on one node."""
    folder = WORK / "linux" / f"{model}-alone"
    with contextlib.suppress(DiscoError):
        bundle = load_bundle(folder)
        if bundle.manifest.model.reference_sha256 == whole.manifest.model.reference_sha256:
            return bundle
    return export(ExportConfig(whole.reference, 1, ("linux",), folder)).bundle


# ---- nodes


@contextlib.contextmanager
def _agents(pair: tuple[Namespace, Namespace]) -> Iterator[dict[int, Path]]:
    """Starts an agent in each namespace; gives the cluster files for one node and for two."""
    children: list[ChildProcess] = []
    with tempfile.TemporaryDirectory(prefix="disco-bench-") as folder:
        work = Path(folder)
        write_token(work / "token")
        try:
            for core, space in enumerate(pair):
                children.append(_agent(core, space, work))
            tables = [
                f'[[node]]\nboard = "linux"\nport = "disco://{space.host_address}:{PORT}"\n'
                f'peer_address = "{space.pair_address}:{PORT}"\ntoken_file = "token"\n'
                for space in pair
            ]
            files = {}
            for nodes in (1, 2):
                files[nodes] = work / f"cluster{nodes}.toml"
                files[nodes].write_text("\n".join(tables[:nodes]))
            yield files
        finally:
            stop_all(children)


def _agent(core: int, space: Namespace, work: Path) -> ChildProcess:
    ours, theirs = os.pipe()
    command = [*_inside(core, space), sys.executable, "-m", "disco_host.cli_node", "--listen", f"0.0.0.0:{PORT}"]
    command += ["--token-file", str(work / "token"), "--cache", str(work / f"cache{core}"), "--ready-fd", str(theirs)]
    child = ChildProcess(command, work / f"agent{core}.log", [theirs])
    os.close(theirs)
    with os.fdopen(ours) as ready:
        if not ready.readline():
            raise DiscoError(f"agent {core} does not start: {child.epitaph()}")
    return child


def _inside(core: int, space: Namespace) -> list[str]:
    return ["ip", "netns", "exec", space.name, "taskset", "-c", str(core)]


def _probe(pair: tuple[Namespace, Namespace], burst: int) -> MeasuredLink:
    """A stream one way, and small messages after a pause."""
    program = [sys.executable, str(ROOT / "benchmarks" / "linux_probe.py")]
    listen = [*_inside(1, pair[1]), *program, "listen", pair[1].pair_address]
    with subprocess.Popen(listen, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        listener.stdout.readline()
        call = [*_inside(0, pair[0]), *program, "call", pair[1].pair_address]
        probed = json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)
    return MeasuredLink(**probed, burst_bytes=burst)


def _measure(
    model: str,
    bundle: Bundle,
    sparsity: float,
    rate: int | None,
    link: MeasuredLink,
    boards: Path,
    options: argparse.Namespace,
) -> Row:
    config = RunConfig(
        bundle.path,
        str(boards),
        limit=1,
        repeat=options.repeat,
        warmup=options.warmup,
        engine=TFLITE,
        mode=XNNPACK,
        exchange_deadline_s=EXCHANGE_DEADLINE_S,
    )
    outcome = run(config)
    if not outcome.result.bit_exact:
        raise DiscoError(f"{model} at {sparsity:.0%}: outputs differ: {outcome.result.first_difference}")
    manifest, captures = bundle.manifest, outcome.captures
    latencies = [latency_ms(capture) for capture in captures]
    row = Row(
        model=model,
        nodes=manifest.nodes,
        rate_mbit=rate,
        sparsity=sparsity,
        median_ms=round(median(latencies), 3),
        p95_ms=round(quantiles(latencies, n=20)[-1] if len(latencies) > 1 else latencies[0], 3),
        compute_ms=round(median(compute_ms(capture) for capture in captures), 3),
        exchange_ms=round(median(exchange_ms(manifest, capture) for capture in captures), 3),
        exchanges=len(manifest.exchanges),
        bytes=sent_bytes(manifest),
        predicted_ms=round(median(predicted_ms(manifest, capture, link) for capture in captures), 3),
    )
    _say(str(row))
    return row


def _say(text: str) -> None:
    Console(soft_wrap=True).print(text, markup=False, highlight=False)


def _versions() -> dict[str, str]:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        "unknown",
    )
    scheduling = "usual"
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        scheduling = "real time (chrt --rr 5 make bench-linux, as other programs were running: see the load)"
    return {
        "disco-edge": version("disco-edge"),
        "ai-edge-litert": version("ai-edge-litert"),
        "Python": sys.version.split()[0],
        "Linux": os.uname().release,
        "CPU": cpu,
        "scheduling": scheduling,
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DiscoError as error:
        sys.exit(f"bench-linux: {error}")
