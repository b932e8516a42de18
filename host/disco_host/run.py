"""`disco-run` as a function: boots or opens the boards of a bundle, runs inputs, checks, measures."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from disco_firmware.bundle import Bundle, load_bundle
from disco_firmware.inputs import load_inputs, load_labels
from disco_firmware.reference import REFERENCE, XNNPACK
from disco_host.boards_open import Boards, open_boards
from disco_host.check import Checker, share_right
from disco_host.cluster import EMULATED_PORT, ClusterNode, load_cluster
from disco_host.config import CYCLES_ESTIMATE, EMULATED, INSTRUCTIONS, LINUX, POSIX, RunConfig
from disco_host.estimate import check_units
from disco_host.golden import Golden
from disco_host.measure import link_results, node_results
from disco_host.node.messages import NATIVE, TFLITE
from disco_host.projection import Projected, project
from disco_host.projection_file import load_projection
from disco_host.remote.clocks import NodeClock, node_clock
from disco_host.remote.probes import ProbedLink, probe_links
from disco_host.results import NodeResult, RunResult
from disco_host.session import Session
from disco_host.stats import summarise
from disco_targets.errors import DiscoError, UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from disco_firmware.manifest import Manifest
    from disco_host.capture import InferenceCapture
    from disco_host.session import NodeFacts

    Int8Array = npt.NDArray[np.int8]

MOST_INFERENCES = 1_000_000
"""Of one run: every capture is kept until its end."""


class Progress(Protocol):
    """Who wants to know how far a run is."""

    def step(self, text: str) -> None:
        """A new step begins."""

    def inference(self, done: int, total: int) -> None:
        """`done` of `total` inferences, warm-up included, are over."""


class Silent:
    """Nobody wants to know."""

    def step(self, text: str) -> None:
        """Nothing."""

    def inference(self, done: int, total: int) -> None:
        """Nothing."""


@dataclass(frozen=True)
class RunOutcome:
    """The figures of a run, and the measured inferences for a trace."""

    bundle: Bundle
    result: RunResult
    captures: tuple[InferenceCapture, ...]
    projected: Projected | None = None
    """Only where it was asked for."""

    def to_json(self) -> dict[str, Any]:
        """All figures as plain values."""
        if self.projected is None:
            return self.result.to_json()
        return {**self.result.to_json(), "projection": self.projected.projection.to_json()}

    @property
    def last(self) -> InferenceCapture:
        """The last inference."""
        return self.captures[-1]


def run(config: RunConfig, progress: Progress | None = None) -> RunOutcome:
    """Runs a bundle on its boards and compares every output with the golden.

    Args:
        config: What to run. Nothing is started before all of it was checked.
        progress: Is told about every step.

    Returns:
        The outcome, also where outputs differ (`result.bit_exact` is False then).

    Raises:
        UsageError: A number or choice in `config` makes no sense.
        DiscoError: Bad bundle or inputs, no tools, or a board that fails.
    """
    progress = progress or Silent()
    _check_config(config)
    progress.step("checking the bundle")
    bundle = load_bundle(config.bundle)
    cluster = _cluster(config, bundle)
    manifest = bundle.manifest
    _check_linux_nodes(config, manifest.nodes, cluster)
    _check_logs(config, cluster)
    config = replace(config, engine=_engine(config, cluster))
    _check_modes(config, cluster)
    model = load_projection(config.project, manifest.nodes) if config.project is not None else None
    input_tensor = manifest.tensor(manifest.input)
    samples = load_inputs(config.inputs or bundle.vector_inputs, input_tensor)
    classes = math.prod(manifest.tensor(manifest.outputs[0]).shape)
    labels = load_labels(config.labels, len(samples), classes) if config.labels is not None else None
    samples = samples[: config.limit]
    _check_amount(config, len(samples))
    golden = Golden(bundle, keep_tensors=config.check_tensors, mode=_kernels(config, cluster))
    checker = Checker(manifest, golden, tensors=config.check_tensors)
    progress.step("starting the boards")
    with open_boards(config, bundle, cluster, progress) as boards:
        facts, captures, clocks = _converse(config, manifest, boards, samples, checker, progress)
        probed = _probe(config, boards, progress)
    accuracy = None
    if labels is not None:
        accuracy = share_right(manifest, captures[config.warmup :], labels)
    nodes = node_results(manifest, facts, captures[config.warmup :], boards.images)
    outcome = _outcome(config, bundle, nodes, captures, checker, accuracy, clocks, boards.relayed, probed)
    if model is None:
        return outcome
    return replace(outcome, projected=project(manifest, outcome.result, model, str(config.project)))


def _converse(
    config: RunConfig, manifest: Manifest, boards: Boards, samples: Int8Array, checker: Checker, progress: Progress
) -> tuple[tuple[NodeFacts, ...], list[InferenceCapture], tuple[NodeClock, ...]]:
    """Who the nodes are, all inferences, and the clocks of Linux nodes meanwhile."""
    watch = boards.watch
    with Session(
        manifest, boards.lines, config.deadline_s, exchange_deadline_s=boards.exchange_deadline_s, watch=watch
    ) as session:
        facts = session.greet()
        check_units(facts, config.count)
        session.connect()
        before = watch.clocks() if watch is not None else {}
        if watch is not None:
            watch.expect_beats(boards.silence_s)
        progress.step("running")
        captures = _infer_all(config, session, samples, checker, progress)
        after = watch.clocks() if watch is not None else {}
    return facts, captures, tuple(node_clock(node, before[node], after[node]) for node in sorted(before))


def _check_config(config: RunConfig) -> None:
    least = (("repeat", config.repeat, 1), ("warmup", config.warmup, 0), ("limit", config.limit, 1))
    for name, value, minimum in least:
        if value is not None and value < minimum:
            raise UsageError(f"{name} is {value}, it must be at least {minimum}")
    for name, seconds in (("deadline", config.deadline_s), ("exchange deadline", config.exchange_deadline_s)):
        if seconds is not None and not 0 < seconds <= 3600:
            raise UsageError(f"{name} is {seconds:g} s, it must be above 0, at most 3600")
    if config.count not in (INSTRUCTIONS, CYCLES_ESTIMATE):
        raise UsageError(f"count is {config.count!r}, it must be {INSTRUCTIONS} or {CYCLES_ESTIMATE}")
    if config.count == CYCLES_ESTIMATE and config.boards != EMULATED:
        raise UsageError("cycles are estimated on emulated boards only: run with --boards emulated, or without --count")
    if config.sanitize and config.boards != POSIX:
        raise UsageError("sanitize goes with posix boards only")


def _check_amount(config: RunConfig, inputs: int) -> None:
    inferences = config.warmup + inputs * config.repeat
    if inferences > MOST_INFERENCES:
        raise UsageError(
            f"{inferences} inferences are too many for one run, at most {MOST_INFERENCES}: lower repeat or warmup"
        )


def _cluster(config: RunConfig, bundle: Bundle) -> tuple[ClusterNode, ...] | None:
    if config.boards in (EMULATED, POSIX, LINUX):
        return None
    cluster = load_cluster(Path(config.boards))
    if len(cluster) != bundle.manifest.nodes:
        raise DiscoError(
            f"{config.boards} lists {len(cluster)} nodes, the bundle has {bundle.manifest.nodes}: "
            "write one [[node]] table for each"
        )
    return cluster


def _check_linux_nodes(config: RunConfig, nodes: int, cluster: tuple[ClusterNode, ...] | None) -> None:
    """Options that depend on how many there are."""
    linux = nodes if config.boards == LINUX else sum(node.is_linux for node in cluster or ())
    if config.probe_links and linux < 2:
        raise UsageError(
            "links are probed between Linux nodes: run with --boards linux, or a cluster file with two of them"
        )
    if config.project is not None and (linux or config.boards == POSIX):
        kind = POSIX if config.boards == POSIX else LINUX
        raise UsageError(f"{kind} nodes measure time, which is not projected: use --project with emulated boards")


def _check_logs(config: RunConfig, cluster: tuple[ClusterNode, ...] | None) -> None:
    if config.logs is not None and cluster is not None and all(node.port != EMULATED_PORT for node in cluster):
        raise UsageError(f"{config.boards} has no board that runs on this PC, whose log could be kept: no --keep-logs")


def _probe(config: RunConfig, boards: Boards, progress: Progress) -> tuple[ProbedLink, ...]:
    if not config.probe_links or boards.linux is None:
        return ()
    progress.step("probing the links")
    return probe_links(boards.linux.watch, boards.linux.addresses)


def _engine(config: RunConfig, cluster: tuple[ClusterNode, ...] | None) -> str:
    """That of Linux nodes where the cluster file does not say; boards understand native nodes only."""
    if config.engine is None:
        return TFLITE if cluster is None or all(node.is_linux for node in cluster) else NATIVE
    linux = [node for node in cluster or () if node.is_linux]
    if config.boards != LINUX and not linux:
        raise UsageError(f"engine {config.engine} is for Linux nodes: run with --boards linux, or without --engine")
    if linux and all(node.engine not in (None, config.engine) for node in linux):
        raise UsageError(
            f"{config.boards} says the engine of each Linux node, none is {config.engine}: leave --engine out"
        )
    return config.engine


def _check_modes(config: RunConfig, cluster: tuple[ClusterNode, ...] | None) -> None:
    for node in cluster or ():
        if node.mode == XNNPACK and (node.engine or config.engine) != TFLITE:
            raise UsageError(f'{config.boards}: node {node.node}: mode = "{XNNPACK}" is for engine {TFLITE} alone')


def _kernels(config: RunConfig, cluster: tuple[ClusterNode, ...] | None) -> str:
    """Which kernels the nodes compute with: those of the golden."""
    if config.boards == LINUX:
        modes = {(config.engine, config.mode)}
    else:
        modes = {(node.engine or config.engine, node.mode or config.mode) for node in cluster or () if node.is_linux}
        modes |= {(NATIVE, REFERENCE) for node in cluster or () if not node.is_linux}
    kernels = {mode if engine == TFLITE else REFERENCE for engine, mode in modes}
    if len(kernels) > 1:
        raise UsageError(f"some nodes compute with {XNNPACK} and some do not, which gives other values: take one mode")
    if config.mode not in kernels | {REFERENCE}:
        raise UsageError(f"no node computes with {config.mode}: Linux nodes do, with --engine tflite")
    return kernels.pop() if kernels else REFERENCE


def schedule(inputs: int, repeat: int, warmup: int) -> list[int]:
    """Which input each inference gets: warm-up first, then all inputs in order, `repeat` times.

    Neighbours differ wherever there are two inputs or more, so that an answer left over from the
    inference before is not taken for a right one; the warm-up takes those that come before input 0.
    """
    before = [(index - warmup) % inputs for index in range(warmup)]
    return before + list(range(inputs)) * repeat


def _infer_all(
    config: RunConfig, session: Session, samples: Int8Array, checker: Checker, progress: Progress
) -> list[InferenceCapture]:
    order = schedule(len(samples), config.repeat, config.warmup)
    captures = []
    for number, index in enumerate(order, start=1):
        sample = samples[index]
        capture = session.infer(number, index, sample, checksums=config.check_tensors)
        checker.judge(capture, sample)
        captures.append(capture)
        progress.inference(number, len(order))
    return captures


def _outcome(
    config: RunConfig,
    bundle: Bundle,
    nodes: tuple[NodeResult, ...],
    captures: list[InferenceCapture],
    checker: Checker,
    accuracy: float | None,
    clocks: tuple[NodeClock, ...],
    relayed: tuple[tuple[int, int], ...],
    probed: tuple[ProbedLink, ...],
) -> RunOutcome:
    manifest = bundle.manifest
    measured = captures[config.warmup :]
    before = captures[config.warmup - 1] if config.warmup else None
    result = RunResult(
        bundle_id=manifest.bundle_id,
        model=manifest.model.name,
        boards=config.boards if config.boards in (EMULATED, POSIX, LINUX) else "cluster",
        nodes=nodes,
        links=link_results(manifest, measured, before),
        host_round_trip_ms=summarise([capture.round_trip_s * 1000 for capture in measured]),
        inferences=len(measured),
        warmup=config.warmup,
        mismatches=checker.mismatches,
        bit_exact=checker.mismatches == 0,
        checked="tensors" if config.check_tensors else "outputs",
        first_difference=checker.first,
        accuracy=accuracy,
        clocks=clocks,
        relayed=relayed,
        probed=probed,
        kernels=checker.kernels,
    )
    return RunOutcome(bundle, result, tuple(measured))
