"""The whole of `disco-run` as one function: a bundle and inputs in, checked figures out."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from disco_firmware.bundle import Bundle, load_bundle
from disco_firmware.inputs import load_inputs, load_labels
from disco_firmware.protocol import RUN_CHECKSUMS
from disco_host.capture import InferenceCapture
from disco_host.check import Checker, whole_output
from disco_host.cluster import load_cluster
from disco_host.golden import Golden
from disco_host.lines import NodeLine, PeerLine, cluster, direct_line, emulated, posix
from disco_host.measure import link_results, node_results
from disco_host.results import RunResult
from disco_host.session import NodeFacts, Session
from disco_host.stats import summarise
from disco_targets.errors import UsageError

EMULATED, POSIX = "emulated", "posix"


@dataclass(frozen=True)
class RunConfig:
    """What to run, on what, how often."""

    bundle: Path
    boards: str
    """"emulated", "posix", or the path of a cluster file."""
    inputs: Path | None = None
    """.npy, float32 or int8, channels last; None for the bundle's self-check inputs."""
    labels: Path | None = None
    limit: int | None = None
    """Only so many of the inputs."""
    repeat: int = 1
    """How often all inputs are run."""
    warmup: int = 1
    """Inferences that are checked but not measured."""
    check_tensors: bool = False
    deadline_s: float = 30.0
    """Of every wait."""
    logs: Path | None = None
    """Where the output of started processes is kept."""
    peer_line: PeerLine = direct_line
    sanitize: bool = False
    """posix only: build with ASan and UBSan."""


@dataclass(frozen=True)
class RunOutcome:
    """The figures, and the last inference for a trace."""

    bundle: Bundle
    result: RunResult
    last: InferenceCapture


def run(config: RunConfig, progress: Callable[[int, int], None] = lambda done, total: None) -> RunOutcome:
    """Starts or opens the boards, runs every input, compares every output and ends what it started.

    Args:
        config: What to run.
        progress: Told (inferences done, of how many).

    Raises:
        DiscoError: Bundle, inputs, boards or lines are not in order. Wrong outputs are no error here: see RunResult.bit_exact.
    """
    _check_counts(config)
    bundle = load_bundle(config.bundle)
    inputs = _inputs(config, bundle)
    labels = load_labels(config.labels, len(inputs)) if config.labels is not None else None
    limit = len(inputs) if config.limit is None else min(config.limit, len(inputs))
    inputs, labels = inputs[:limit], labels[:limit] if labels is not None else None
    checker = Checker(bundle.manifest, Golden(bundle, keep_tensors=config.check_tensors), tensors=config.check_tensors)
    with _lines(config, bundle) as lines:
        session = Session(bundle, lines, hosted=config.boards == POSIX, deadline_s=config.deadline_s)
        with contextlib.closing(session):
            facts = session.open()
            captures = _infer_all(config, session, inputs, checker, progress)
    return RunOutcome(bundle, _result(config, bundle, facts, captures, checker, labels), captures[-1])


def _check_counts(config: RunConfig) -> None:
    for name, value, least in (("--repeat", config.repeat, 1), ("--warmup", config.warmup, 0), ("--limit", config.limit, 1)):
        if value is not None and value < least:
            raise UsageError(f"{name} {value}: at least {least} is needed")
    if not 0 < config.deadline_s <= 3600:
        raise UsageError(f"--deadline {config.deadline_s}: seconds above 0 and up to 3600 are needed")


def _inputs(config: RunConfig, bundle: Bundle) -> npt.NDArray[np.int8]:
    tensor = bundle.manifest.tensor(bundle.manifest.input)
    return load_inputs(config.inputs or bundle.vector_inputs, tensor)


@contextlib.contextmanager
def _lines(config: RunConfig, bundle: Bundle) -> Iterator[tuple[NodeLine, ...]]:
    with contextlib.ExitStack() as stack:
        logs = config.logs
        if logs is None:
            logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="disco-run-")))
        logs.mkdir(parents=True, exist_ok=True)
        if config.boards == EMULATED:
            yield stack.enter_context(emulated(bundle, logs, config.peer_line))
        elif config.boards == POSIX:
            yield stack.enter_context(posix(bundle, logs, config.peer_line, sanitize=config.sanitize))
        else:
            yield stack.enter_context(cluster(bundle, load_cluster(Path(config.boards))))


def _infer_all(
    config: RunConfig,
    session: Session,
    inputs: npt.NDArray[np.int8],
    checker: Checker,
    progress: Callable[[int, int], None],
) -> list[InferenceCapture]:
    """Warm-up and measured inferences, each compared as it comes."""
    total = config.warmup + config.repeat * len(inputs)
    captures = []
    for done in range(total):
        index = (done - config.warmup) % len(inputs)
        capture = session.infer(done + 1, index, inputs[index], RUN_CHECKSUMS if config.check_tensors else 0)
        checker.judge(capture, inputs[index])
        captures.append(capture)
        progress(done + 1, total)
    return captures


def _result(
    config: RunConfig,
    bundle: Bundle,
    facts: tuple[NodeFacts, ...],
    captures: list[InferenceCapture],
    checker: Checker,
    labels: npt.NDArray[np.int64] | None,
) -> RunResult:
    manifest = bundle.manifest
    measured = captures[config.warmup :]
    return RunResult(
        bundle_id=manifest.bundle_id,
        model=manifest.model.name,
        boards=config.boards if config.boards in (EMULATED, POSIX) else "cluster",
        nodes=node_results(manifest, facts, measured),
        links=link_results(manifest, measured, captures[config.warmup - 1] if config.warmup else None),
        host_round_trip_ms=summarise([capture.round_trip_s * 1000 for capture in measured]),
        inferences=len(measured),
        warmup=config.warmup,
        mismatches=checker.mismatches,
        bit_exact=checker.mismatches == 0,
        checked="tensors" if config.check_tensors else "outputs",
        first_difference=checker.first,
        accuracy=_accuracy(bundle, measured, labels),
    )


def _accuracy(bundle: Bundle, captures: list[InferenceCapture], labels: npt.NDArray[np.int64] | None) -> float | None:
    """Share of the measured inferences whose largest value of output 0, put together from all nodes, is the label."""
    if labels is None:
        return None
    answers = [int(np.argmax(whole_output(bundle.manifest, capture, 0))) for capture in captures]
    right = [answer == labels[capture.input_index] for answer, capture in zip(answers, captures, strict=True)]
    return sum(right) / len(right)
