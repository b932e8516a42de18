"""The whole of `disco-export` as one function: a model in, a bundle out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from disco_converter import accounting
from disco_converter import graph as g
from disco_converter.c_model import ModelSource
from disco_converter.calibration import load_calibration, range_warning
from disco_converter.constant_channels import without_constant_channels
from disco_converter.describe import manifest_of, program_of
from disco_converter.firmware import NodeFirmware, Origin, firmware_of
from disco_converter.fit import check_flash, check_ram
from disco_converter.kernel_choice import OPTIMIZE
from disco_converter.node_shares import planned_range, planned_shares
from disco_converter.onnx_model import check_input, load_onnx
from disco_converter.order import partition_in_order
from disco_converter.ownership import Ownership, propagate
from disco_converter.proof import Proof, SliceFile, prove
from disco_converter.quantise import quantise_onnx
from disco_converter.recompute import RECOMPUTED_MACS
from disco_converter.stages import stage_file, stages_of
from disco_converter.tflite_reader import read_tflite
from disco_converter.tflite_writer import write_stage
from disco_converter.trial import try_out
from disco_firmware.bundle import REFERENCE_NAME, Bundle, load_bundle, new_bundle, write_manifest
from disco_firmware.inputs import load_inputs
from disco_firmware.manifest import NodeProgram, TensorInfo
from disco_firmware.project import copy_firmware_sources, write_node_project
from disco_firmware.protocol import ADDRESS_HOST
from disco_firmware.reference import XNNPACK
from disco_firmware.render import render
from disco_planning.shares import fractions
from disco_targets.board import Board, load_board
from disco_targets.errors import DiscoError, UsageError

VECTORS = 8
"""Self-check inputs kept in the bundle."""
RANDOM_INPUTS = 8
"""Inputs over the full int8 range, always proved beside the given ones: they saturate what real data does not."""
PROVED_MACS = 20_000_000_000
"""Of all inputs of a proof together: the reference kernels take about a second for 3 * 10**9. A big model is proved
with fewer inputs, half of them random."""


class Progress(Protocol):
    """How a caller watches an export."""

    def step(self, text: str, total: int | None = None) -> AbstractContextManager[Callable[[], None]]:
        """Covers one step; the function it gives is called `total` times where total is known."""


class Silent:
    """Shows nothing."""

    def step(self, text: str, total: int | None = None) -> AbstractContextManager[Callable[[], None]]:  # noqa: ARG002
        """Nothing."""
        return nullcontext(lambda: None)


@dataclass(frozen=True)
class ExportConfig:
    """What to export, and where to."""

    model: Path
    """Float .onnx with a static batch of 1, or full-int8 .tflite."""
    nodes: int
    targets: tuple[str, ...]
    """Names of boards: one for all nodes, or one for each."""
    output: Path
    calibration: Path | None = None
    """.npy, float32 NHWC; needed for .onnx, else only used as inputs of the proof."""
    test_inputs: Path | None = None
    """.npy, more inputs for the proof: float32 or int8, NHWC."""
    optimize: str = "balanced"
    """One of kernel_choice.OPTIMIZE: what flash may be spent on fewer instructions."""
    shares: tuple[float, ...] | None = None
    """The fraction of the channels of each node, or a ratio such as (3, 1); by default those of the plan in the model,
    else equal ones."""
    keep_constants: bool = False
    """Whether nodes compute, store and send channels that are the same for every input."""
    recomputed_macs: int = RECOMPUTED_MACS
    """Up to how many multiply-accumulates a node recomputes another node's value instead of receiving it."""


@dataclass(frozen=True, eq=False)
class ExportResult:
    """A finished export."""

    bundle: Bundle
    proof: Proof
    boards: tuple[Board, ...]
    alone: NodeProgram
    """The whole model on the first of the boards."""
    inputs_left_out: int = 0
    """How many inputs the proof went without, because the model is big."""
    warnings: tuple[str, ...] = ()
    """What is probably not as it was meant."""


def export(config: ExportConfig, progress: Progress | None = None) -> ExportResult:
    """Converts, cuts, proves and writes a bundle; writes nothing when anything fails.

    Raises:
        DiscoError: The model, the inputs or the boards do not allow it, or the proof fails.
    """
    progress = progress or Silent()
    boards = _boards(config)
    with new_bundle(config.output) as directory:
        origin, shares, warnings = _int8_model(config, progress)
        graph = read_tflite(origin.content, origin.name)
        try_out(origin.content, origin.name)
        ownership = propagate(graph, config.nodes, shares)
        compacted = _compacted(graph, config, boards, origin.content, ownership)
        cut = partition_in_order(compacted, config.nodes, shares, config.recomputed_macs)
        nodes = firmware_of(cut, boards, config.optimize, origin)
        for node in nodes:
            check_flash(node.slice_.node, node.program, node.constant_bytes, node.board)
            check_ram(node.slice_.node, len(node.slice_.ops), cut.nodes, node.plan, node.board)
        files = tuple(tuple(SliceFile(s, write_stage(graph, x, s)) for s in stages_of(cut, x)) for x in cut.slices)
        inputs, left_out = _proof_inputs(config, graph)
        with progress.step("Proving the slices bit-exact on the host", len(inputs)) as advance:
            proof = prove(cut, origin.content, files, inputs, advance)
        if any(board.tflite for board in boards):
            with progress.step("The same with XNNPACK's kernels", len(inputs)) as advance:
                prove(cut, origin.content, files, inputs, advance, XNNPACK)
        with progress.step("Writing the bundle"):
            _write(directory, origin.content, files, nodes, inputs, proof)
            write_manifest(directory, manifest_of(cut, nodes, origin))
    bundle = load_bundle(config.output)
    alone = bundle.manifest.programs[0] if cut.nodes == 1 else _alone(graph, boards, config, origin)
    return ExportResult(bundle, proof, boards, alone, left_out, warnings)


def _compacted(
    graph: g.Graph, config: ExportConfig, boards: tuple[Board, ...], content: bytes, ownership: dict[str, Ownership]
) -> g.Graph:
    """What constants are is known of TFLite's reference kernels; nodes that run TFLite may have others."""
    if config.keep_constants or any(board.tflite for board in boards):
        return graph
    return without_constant_channels(graph, content, ownership)


def _alone(graph: g.Graph, boards: tuple[Board, ...], config: ExportConfig, origin: Origin) -> NodeProgram:
    """What one board would need for the whole model."""
    cut = partition_in_order(_compacted(graph, config, boards, origin.content, propagate(graph, 1)), 1)
    return program_of(cut, firmware_of(cut, boards[:1], config.optimize, origin)[0])


def _boards(config: ExportConfig) -> tuple[Board, ...]:
    if config.optimize not in OPTIMIZE:
        raise UsageError(f"--optimize {config.optimize}: choose one of {', '.join(OPTIMIZE)}")
    if config.nodes < 1:
        raise UsageError(f"--nodes {config.nodes}: at least 1 is needed")
    if config.recomputed_macs < 0:
        raise UsageError(f"--recompute {config.recomputed_macs}: give 0 (never) or a number of multiply-accumulates")
    if config.nodes > ADDRESS_HOST:  # nodes are addressed by the numbers below the host's
        raise UsageError(f"--nodes {config.nodes}: at most {ADDRESS_HOST} are possible")
    if len(config.targets) not in (1, config.nodes):
        raise UsageError(
            f"{len(config.targets)} targets for {config.nodes} nodes: name one board for all nodes or one for each"
        )
    names = config.targets * config.nodes if len(config.targets) == 1 else config.targets
    boards = tuple(load_board(name) for name in names)
    for board in boards:
        if board.max_nodes is not None and config.nodes > board.max_nodes:
            raise DiscoError(
                f"{config.nodes} nodes: {board.name} has lines to {board.max_nodes - 1} peers, so it can be one of "
                f"at most {board.max_nodes} nodes"
            )
    return boards


def _int8_model(config: ExportConfig, progress: Progress) -> tuple[Origin, tuple[float, ...] | None, tuple[str, ...]]:
    """The quantised model, the share of each node, and warnings."""
    given = None if config.shares is None else fractions(config.shares, config.nodes)
    if not config.model.is_file():
        raise DiscoError(f"model file {config.model} does not exist: give a float .onnx or a full-int8 .tflite")
    raw = config.model.read_bytes()
    digest = hashlib.sha256(raw).hexdigest()
    if config.model.suffix.lower() == ".tflite" or raw[4:8] == b"TFL3":
        return Origin(config.model.name, digest, raw), given, ()
    if config.calibration is None:
        raise UsageError(
            "an .onnx model needs --calibration FILE.npy: sample inputs from which the int8 scales are taken"
        )
    model = load_onnx(config.model)
    shares = given or planned_shares(model, config.model.name, config.nodes)
    shape = check_input(model, config.model).channels_last_shape
    calibration = load_calibration(config.calibration, shape)
    trained = planned_range(model, config.model.name)
    warning = None if trained is None else range_warning(calibration, trained)
    with progress.step("Quantising with TensorFlow (onnx2tf, full int8)"):
        content = quantise_onnx(config.model, calibration)
    return Origin(config.model.name, digest, content), shares, () if warning is None else (warning,)


def _proof_inputs(config: ExportConfig, graph: g.Graph) -> tuple[g.Int8Array, int]:
    """The inputs, and how many were left out."""
    tensor = graph.tensors[graph.input]
    info = TensorInfo(tensor.name, tensor.index, tensor.shape, tensor.scale, tensor.zero_point, "replicated")
    paths = [path for path in (config.calibration, config.test_inputs) if path is not None]
    given = [load_inputs(path, info) for path in paths]
    noise = np.random.default_rng(0).integers(-128, 128, (RANDOM_INPUTS, *tensor.shape[1:]), dtype=np.int8)
    real = np.concatenate([noise[:0], *given])
    macs = sum(accounting.dense_macs(graph, op) for op in graph.ops)
    most = max(2, PROVED_MACS // max(1, macs))
    total = len(real) + len(noise)
    if total > most:
        noise = noise[: max(most // 2, most - len(real))]
        real = real[: most - len(noise)]
    inputs = np.concatenate([real, noise])
    return inputs, total - len(inputs)


def _write(
    directory: Path,
    content: bytes,
    files: tuple[tuple[SliceFile, ...], ...],
    nodes: tuple[NodeFirmware, ...],
    inputs: g.Int8Array,
    proof: Proof,
) -> None:
    (directory / REFERENCE_NAME).write_bytes(content)
    vectors = directory / "vectors"
    vectors.mkdir()
    np.save(vectors / "inputs.npy", inputs[:VECTORS])
    for place, outputs in enumerate(proof.outputs):
        np.save(vectors / f"outputs{place}.npy", outputs[:VECTORS])
    copy_firmware_sources([node.board for node in nodes], directory)
    for stage_files, node in zip(files, nodes, strict=True):
        folder = directory / f"node{node.slice_.node}"
        (folder / "stages").mkdir(parents=True)
        for file in stage_files:
            (directory / stage_file(file.stage)).write_bytes(file.content)
        if node.source is not None:
            _write_source(folder, node.source)
            write_node_project(node.board, node.slice_.node, len(nodes), folder)


def _write_source(folder: Path, source: ModelSource) -> None:
    for name in ("disco_model.c", "disco_model.h", "disco_channels.h"):
        (folder / name).write_text(render(f"{name}.j2", source), encoding="utf-8")
