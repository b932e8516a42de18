"""The exporter's side of Linux nodes: stages, XNNPACK's proof, big models."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from disco_converter import export as export_module
from disco_converter import firmware
from disco_converter import graph as g
from disco_converter.partition import partition
from disco_converter.proof import SliceFile, prove
from disco_converter.report import print_report
from disco_converter.stages import stages_of
from disco_converter.tflite_reader import read_tflite
from disco_converter.tflite_writer import write_stage
from disco_firmware import reference
from disco_firmware.build import build_node
from disco_firmware.reference import MODES
from disco_targets.errors import DiscoError
from helpers.tiny_bundle import export_tiny, tiny_model

C_FILES = {"disco_model.c", "disco_model.h", "disco_channels.h", "CMakeLists.txt", "disco_board.h"}


@pytest.mark.parametrize(("target", "written"), [("linux", set()), ("posix", C_FILES)])
def test_a_big_model_for_linux_has_no_c_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, written: set[str]
) -> None:
    monkeypatch.setattr(firmware, "MOST_C_BYTES", 100)
    bundle = export_tiny(tmp_path / "tiny", 2, target)
    assert {file.name for file in (bundle.path / "node0").iterdir()} == written | {"stages"}
    assert bundle.manifest.programs[0].constant_bytes > 100
    if not written:
        with pytest.raises(DiscoError, match=r"no C sources for node 0: the model is too big .* engine tflite"):
            build_node(bundle.path, 0, port="posix")


def test_a_small_model_for_linux_has_them(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bundle = export_tiny(tmp_path / "tiny", 2, "linux")
    assert capfd.readouterr() == ("", "")  # nor does TFLite chatter
    assert {file.name for file in (bundle.path / "node0").iterdir()} == C_FILES | {"stages"}


def test_what_tflite_says_beside_its_notes_is_not_hidden(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        os.write(2, b"another's line\nbar INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\nERROR: why\n")
        raise DiscoError("why")

    with pytest.raises(DiscoError), reference._without_notes():
        fail()
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "another's line\nbar ERROR: why\nafterwards\n"


def test_a_big_model_is_proved_with_fewer_inputs_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_module, "PROVED_MACS", 1)
    model = tmp_path / "model.tflite"
    model.write_bytes(tiny_model())
    config = export_module.ExportConfig(model=model, nodes=2, targets=("linux",), output=tmp_path / "bundle")
    result = export_module.export(config)
    assert (result.proof.inferences, result.inputs_left_out) == (2, 6)
    console = Console(record=True, width=200)
    print_report(result, console)
    assert "a big model: 6 more inputs were left out" in console.export_text()


@pytest.mark.parametrize("mode", MODES)
def test_a_changed_weight_is_found_with_either_kernels(mode: str) -> None:
    content = tiny_model()
    graph = read_tflite(content, "model")
    cut = partition(graph, 2, recomputed_macs=0)
    files = tuple(tuple(SliceFile(s, write_stage(graph, x, s)) for s in stages_of(cut, x)) for x in cut.slices)
    inputs = np.random.default_rng(0).integers(-128, 128, (2, 6, 5, 3), np.int8)
    assert prove(cut, content, files, inputs, mode=mode).inferences == 2
    weights = cut.slices[1].ops[1].params
    assert isinstance(weights, g.Conv2D)
    weights.filter.weights[0, 1, 1, 0] ^= 64
    spoilt = SliceFile(files[1][1].stage, write_stage(graph, cut.slices[1], files[1][1].stage))
    with pytest.raises(DiscoError, match=f"network differs .* input 0 with {mode} kernels, conv_2d_1 on node 1"):
        prove(cut, content, (files[0], (files[1][0], spoilt)), inputs, mode=mode)


def test_a_stage_ends_where_its_output_is_sent() -> None:
    """x -> a, and a -> b beside a -> c, where all of a and of b is exchanged and c is not."""

    def conv(weights: np.ndarray) -> g.Conv2D:  # type: ignore[type-arg]
        out = weights.shape[0]
        filter_ = g.Filter(weights.astype(np.int8), np.ones(out, np.float32), True, np.zeros(out, np.int32))
        return g.Conv2D(g.Window((1, 1), (1, 1)), filter_, "NONE")

    tensors = {name: g.Tensor(name, k, (1, 2, 2, 4), 0.5, 0) for k, name in enumerate("xabcde")}
    dense = np.ones((4, 1, 1, 4))
    ops = (
        g.Op(0, "CONV_2D", ("x",), "a", conv(dense)),
        g.Op(1, "CONV_2D", ("a",), "b", conv(dense)),
        g.Op(2, "CONV_2D", ("a",), "c", conv(dense)),
        g.Op(3, "CONV_2D", ("b",), "d", conv(dense)),
        g.Op(4, "ADD", ("c", "d"), "e", g.Add("NONE")),
    )
    cut = partition(g.Graph(tensors, ops, "x", ("e",)), 2, recomputed_macs=0)
    stages = stages_of(cut, cut.slices[0])
    assert [[op.output for op in stage.ops] for stage in stages] == [["a"], ["b"], ["c"], ["d", "e"]]
    assert [(stage.index, stage.level) for stage in stages] == [(0, 0), (1, 1), (2, 1), (3, 2)]
    assert [stage.outputs for stage in stages] == [("a",), ("b",), ("c",), ("e",)]
