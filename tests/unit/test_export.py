"""The converter on small graphs: ownership, exchanges, memory, and the errors that a user meets."""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from disco_converter import graph as g
from disco_converter.calibration import range_warning
from disco_converter.cli import main
from disco_converter.export import ExportConfig, export
from disco_converter.memory import plan_memory
from disco_converter.node_shares import planned_range, planned_shares
from disco_converter.ownership import Split
from disco_converter.partition import partition
from disco_converter.tflite_reader import read_tflite
from disco_converter.trial import try_out
from disco_firmware.bundle import load_bundle
from disco_firmware.manifest import Manifest
from disco_planning.shares import PLAN_KEY, parse_shares
from disco_targets.errors import DiscoError
from helpers.bundles import EXAMPLE
from helpers.tflite_models import Op, Tensor, build
from helpers.tiny_bundle import export_tiny, tiny_model


def _tensor(name: str, *shape: int) -> g.Tensor:
    return g.Tensor(name, 0, shape, 0.5, 0)


def _filter(out: int, inputs: int, zero: tuple[tuple[int, int], ...] = ()) -> g.Filter:
    weights = np.ones((out, 1, 1, inputs), np.int8)
    for output, channel in zero:
        weights[output, 0, 0, channel] = 0
    return g.Filter(weights, np.ones(out, np.float32), True, np.zeros(out, np.int32))


def _conv(filter_: g.Filter) -> g.Conv2D:
    return g.Conv2D(g.Window((1, 1), (1, 1)), filter_, "NONE")


def _chain(zero: tuple[tuple[int, int], ...] = ()) -> g.Graph:
    """input (3) -> a (4) -> b (4)."""
    tensors = {t.name: t for t in (_tensor("x", 1, 2, 2, 3), _tensor("a", 1, 2, 2, 4), _tensor("b", 1, 2, 2, 4))}
    ops = (
        g.Op(0, "CONV_2D", ("x",), "a", _conv(_filter(4, 3))),
        g.Op(1, "CONV_2D", ("a",), "b", _conv(_filter(4, 4, zero))),
    )
    return g.Graph(tensors, ops, "x", ("b",))


def test_shares_give_the_remainder_to_the_first_nodes() -> None:
    assert Split(3).owners(7).tolist() == [0, 0, 0, 1, 1, 2, 2]


def test_shares_of_unequal_boards() -> None:
    assert Split(2, parse_shares("3,1")).owners(6).tolist() == [0, 0, 0, 0, 0, 1]
    cut = partition(_chain(), 2, parse_shares("3,1"))
    assert [cut.ownership["b"].own(node) for node in range(2)] == [(0, 1, 2), (3,)]


def test_bundles_of_other_shares_are_told_apart_where_nothing_is_sent(tmp_path: Path) -> None:
    """A board that was flashed from the one must not be taken for a node of the other."""
    (tmp_path / "m.tflite").write_bytes(tiny_model())
    configs = [
        ExportConfig(tmp_path / "m.tflite", 2, ("posix",), tmp_path / text, shares=parse_shares(text))
        for text in ("1,1", "3,1")
    ]
    equal, uneven = (export(config).bundle.manifest for config in configs)
    assert equal.exchanges == uneven.exchanges == ()
    assert equal.bundle_id != uneven.bundle_id


def test_only_channels_with_a_weight_are_exchanged() -> None:
    # Channel 1 (node 0) reaches node 1's outputs 2 and 3 no more; channel 2 (node 1) reaches only output 0.
    cut = partition(_chain(zero=((2, 1), (3, 1), (1, 2), (0, 3), (1, 3))), 2, recomputed_macs=0)
    assert [exchange.routes for exchange in cut.exchanges] == [{(0, 1): (0,), (1, 0): (2,)}]
    assert cut.slices[0].buffers["a"].layout == (0, 1, 2)
    assert cut.slices[1].buffers["a"].layout == (2, 3, 0)


def test_a_mismatch_of_owners_at_an_add_is_exchanged_and_selected() -> None:
    names = {"x": 3, "a": 4, "b": 4, "c": 8, "d": 8, "e": 8}
    tensors = {name: _tensor(name, 1, 2, 2, channels) for name, channels in names.items()}
    ops = (
        g.Op(0, "CONV_2D", ("x",), "a", _conv(_filter(4, 3))),
        g.Op(1, "CONV_2D", ("x",), "b", _conv(_filter(4, 3))),
        g.Op(2, "CONCATENATION", ("a", "b"), "c", g.Concatenation()),  # owners 0 0 1 1 0 0 1 1
        g.Op(3, "CONV_2D", ("x",), "d", _conv(_filter(8, 3))),  # owners 0 0 0 0 1 1 1 1
        g.Op(4, "ADD", ("c", "d"), "e", g.Add("NONE")),
    )
    cut = partition(g.Graph(tensors, ops, "x", ("e",)), 2, recomputed_macs=0)
    assert [(e.tensor, e.routes) for e in cut.exchanges] == [("d", {(0, 1): (2, 3), (1, 0): (4, 5)})]
    assert [op.kind for op in cut.slices[0].ops][-2:] == ["SELECT_CHANNELS", "ADD"]


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_buffers_that_live_together_do_not_overlap(nodes: int) -> None:
    cut = partition(_chain(), nodes, recomputed_macs=0)
    for slice_ in cut.slices:
        places = list(plan_memory(cut, slice_).placements.values())
        for i, one in enumerate(places):
            for two in places[i + 1 :]:
                apart = one.offset + one.size <= two.offset or two.offset + two.size <= one.offset
                assert apart or one.last_op < two.first_op or two.last_op < one.first_op


def test_more_nodes_than_channels_are_refused() -> None:
    with pytest.raises(DiscoError, match=r"has output channels \(4\): use at most 4 nodes"):
        partition(_chain(), 5)
    tensors = {"x": _tensor("x", 1, 2, 2, 3), "a": _tensor("a", 1, 2, 2, 1)}
    graph = g.Graph(tensors, (g.Op(0, "CONV_2D", ("x",), "a", _conv(_filter(1, 3))),), "x", ("a",))
    with pytest.raises(DiscoError, match=r"\(1\): this network fits on one node only"):
        partition(graph, 2)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["missing.onnx", "--nodes", "2", "--target", "posix"], 1, "does not exist"),
        (["model.onnx", "--nodes", "0", "--target", "posix"], 2, "at least 1"),
        (["model.onnx", "--nodes", "2", "--target", "qemu-mps2-an38"], 1, "did you mean qemu-mps2-an386"),
        (["model.onnx", "--nodes", "2", "--target", "posix,posix,posix"], 2, "3 targets for 2 nodes"),
        (["model.onnx", "--nodes", "2", "--target", "posix"], 2, "needs --calibration"),
        (["model.onnx", "--nodes", "2", "--target", "posix", "--json", "nowhere/x.json"], 1, "cannot be written"),
        (["model.onnx", "--nodes", "99999999999", "--target", "posix"], 2, "at most 254"),
        (["model.onnx", "--nodes", "2", "--target", "posix", "--json", "/dev/null"], 1, "cannot be written"),
        (["broken.tflite", "--nodes", "2", "--target", "posix"], 1, "not a .tflite file"),
        (["model.onnx", "--nodes", "2", "--target", "posix", "--shares", "3,0"], 2, "a number above zero"),
        (["model.onnx", "--nodes", "2", "--target", "posix", "--shares", "3;1"], 2, "a number above zero"),
        (["model.onnx", "--nodes", "2", "--target", "posix", "--shares", "1e308,1e308"], 2, "a number above zero"),
        (["model.onnx", "--nodes", "2", "--target", "posix", "--shares", "3,1,1"], 2, "3 shares for 2 nodes"),
        (["model.onnx", "--nodes", "9", "--target", "qemu-mps2-an386"], 1, "at most 5"),
    ],
)
def test_bad_input_is_one_clear_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_bytes((EXAMPLE / "models" / "resnet8_dense.onnx").read_bytes())
    (tmp_path / "broken.tflite").write_bytes(b"nonsense, but long enough")
    before = sorted(tmp_path.iterdir())
    assert main([*arguments, "-o", "bundle"]) == code
    error = capsys.readouterr().err
    assert text in error
    assert "Traceback" not in error
    assert sorted(tmp_path.iterdir()) == before  # nothing half written


@pytest.mark.parametrize(
    ("values", "trained", "warned"),
    [
        ((0.0, 1.0), (0.1, 0.9), False),
        ((-2.1, 2.6), (0.0, 1.0), False),
        ((0.0, 16.0), (0.0, 1.0), True),
        ((0.0, 255.0), (0.0, 1.0), True),
        ((0.0, 1.0), (0.0, 255.0), True),
        ((100.0, 101.0), (0.0, 1.0), True),
    ],
)
def test_another_range_than_in_training_is_noticed(
    values: tuple[float, float], trained: tuple[float, float], warned: bool
) -> None:
    assert (range_warning(np.array(values, np.float32), trained) is not None) == warned


@pytest.mark.parametrize("trained", [None, [0.0, 1.0], [0.0, 255.0], [255.0], ["a", {}], [1.0, 0.0]])
def test_calibration_data_of_another_range_than_in_training_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trained: list[float] | None
) -> None:
    onnx = pytest.importorskip("onnx", reason="needs onnx (disco-edge[convert])")
    shapes = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 3, 6, 5]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "relu", shapes[:1], shapes[1:])
    model = onnx.helper.make_model(graph)
    model.metadata_props.add(key=PLAN_KEY, value=json.dumps({"nodes": 2, "shares": None, "input_range": trained}))
    onnx.save(model, str(tmp_path / "relu.onnx"))
    images = np.random.default_rng(0).random((4, 6, 5, 3), np.float32)
    np.save(tmp_path / "images.npy", images)
    monkeypatch.setattr("disco_converter.export.quantise_onnx", lambda *_: tiny_model())  # TensorFlow takes its time
    arguments = [str(tmp_path / "relu.onnx"), "--nodes", "2", "--target", "posix", "-o", str(tmp_path / "bundle")]
    arguments += ["--calibration", str(tmp_path / "images.npy"), "--json", str(tmp_path / "export.json")]
    assert main(arguments) == 0
    warnings = json.loads((tmp_path / "export.json").read_text())["warnings"]
    assert capsys.readouterr().err == "".join(f"disco-export: warning: {text}\n" for text in warnings)
    assert ["the network was exported with between 0 and 255" in text for text in warnings] == [True] * (
        trained == [0.0, 255.0]
    )


def test_a_plan_that_cannot_be_read_stops_only_what_needs_it() -> None:
    model = SimpleNamespace(metadata_props=[SimpleNamespace(key=PLAN_KEY, value="{")])
    assert planned_shares(model, "a.onnx", 1) is None
    assert planned_range(model, "a.onnx") is None
    with pytest.raises(DiscoError, match=r"the plan in a\.onnx"):
        planned_shares(model, "a.onnx", 2)


def test_a_foreign_folder_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    model = str(EXAMPLE / "models" / "resnet8_dense.onnx")
    assert main([model, "--nodes", "1", "--target", "posix", "-o", str(tmp_path / "mine")]) == 1
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


def test_a_folder_that_is_no_bundle_is_named(tmp_path: Path) -> None:
    with pytest.raises(DiscoError, match="is not a bundle"):
        load_bundle(tmp_path)


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("tiny.tflite/bundle", "File exists"),
        ("/proc/nowhere/bundle", "No such file"),
        ("a" * 300, "too long"),
        (".", "current folder"),
    ],
)
def test_an_output_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], output: str, text: str
) -> None:
    model = tmp_path / "tiny.tflite"
    model.write_bytes(tiny_model())
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path if "/" in output else tmp_path / "here")
    assert main([str(model), "--nodes", "2", "--target", "posix", "-o", output]) == 1
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["here", "tiny.tflite"]


def test_a_failed_export_takes_away_the_folders_that_it_made(tmp_path: Path) -> None:
    (tmp_path / "tiny.tflite").write_bytes(tiny_model())
    arguments = [str(tmp_path / "tiny.tflite"), "--nodes", "9", "--target", "posix"]
    assert main([*arguments, "-o", str(tmp_path / "a" / "b" / "bundle")]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.tflite"]


@pytest.mark.parametrize("kind", ["RELU", "RELU6", "RELU_N1_TO_1"])
def test_activations_of_their_own_are_sliced_and_proved(tmp_path: Path, kind: str) -> None:
    tensors = [Tensor((1, 4), (0.1,), (0,)), Tensor((1, 4), (0.05,), (-100,))]
    (tmp_path / "m.tflite").write_bytes(build(tensors, [Op(kind, (0,), (1,), version=1)], [1]))
    arguments = [str(tmp_path / "m.tflite"), "--nodes", "2", "--target", "posix", "-o", str(tmp_path / "bundle")]
    assert main(arguments) == 0


# --- damaged .tflite files ---


def test_damage_anywhere_is_one_clear_error_or_none() -> None:
    """Bytes of offsets, counts, types and shapes are changed; the reader answers or refuses, it never breaks."""
    good, random = tiny_model(), np.random.default_rng(1)
    refused = 0
    for _ in range(300):
        content = bytearray(good)
        for place in random.integers(0, len(good), 3):
            content[place] = random.integers(0, 256)
        try:
            read_tflite(bytes(content))
        except DiscoError:
            refused += 1
    assert refused > 100
    for size in range(0, len(good), 37):
        with pytest.raises(DiscoError, match=r"damaged|not a \.tflite"):
            read_tflite(good[:size])


def _changed(old: bytes, new: bytes) -> bytes:
    content = tiny_model()
    assert old in content
    return content.replace(old, new, 1)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (_changed(b"tensor3", b"tens\xffr3"), "damaged"),
        (_changed(struct.pack("<f", 0.1), struct.pack("<f", 0.0)), "a scale above 0"),
        (_changed(struct.pack("<f", 0.1), struct.pack("<f", float("nan"))), "a scale above 0"),
        (_changed(struct.pack("<f", 0.005), struct.pack("<f", float("inf"))), "not finite"),
        (tiny_model(outputs=()), "no outputs"),
        (tiny_model(outputs=(1,)), "tensor1"),
    ],
)
def test_what_makes_no_sense_is_named(content: bytes, text: str) -> None:
    with pytest.raises(DiscoError, match=text):
        read_tflite(content, "m.tflite")


def test_an_op_that_reads_what_nothing_writes_is_named() -> None:
    tensors = [Tensor((1, 4), (0.1,), (0,)) for _ in range(3)]
    ops = [Op("ADD", (0, 2), (1,), "AddOptions", version=2), Op("ADD", (0, 1), (2,), "AddOptions", version=2)]
    with pytest.raises(DiscoError, match="reads tensor 'tensor2' before it is written"):
        read_tflite(build(tensors, ops, [1]))


def test_a_pad_that_changes_the_scale_is_refused() -> None:
    paddings = Tensor((4, 2), data=np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))
    tensors = [Tensor((1, 4, 4, 2), (0.1,), (0,)), paddings, Tensor((1, 6, 6, 2), (0.2,), (1,))]
    with pytest.raises(DiscoError, match="changes the scale"):
        read_tflite(build(tensors, [Op("PAD", (0, 1), (2,), "PadOptions", version=1)], [2]))


def test_a_shape_other_than_stated_is_named() -> None:
    old, new = (np.array([1, 6, 5, 4], np.int32).tobytes(), np.array([1, 6, 6, 4], np.int32).tobytes())
    with pytest.raises(DiscoError, match=r"'tensor\d' is stated as \[1, 6, 6, 4\], but TFLite computes \[1, 6, 5, 4\]"):
        try_out(_changed(old, new), "m.tflite")


def test_a_file_that_tflite_dies_of_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tflite_runtime").mkdir()
    (tmp_path / "tflite_runtime" / "__init__.py").write_text("import os\nprint('chatter', flush=True)\nos.abort()\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(DiscoError, match=r"TFLite dies of m\.tflite \(status -6\)"):
        try_out(tiny_model(), "m.tflite")
    assert capfd.readouterr() == ("", "")


# --- damaged bundles ---


def test_an_old_bundle_stays_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = export_tiny(tmp_path / "bundle")
    replace = os.replace

    def refuse(source: Path, target: Path) -> None:
        if target == old.path and source.name.startswith(".disco-export-") and source.parent == tmp_path:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(DiscoError, match=rf"the disk is full at {tmp_path}: free some space there, or name a folder"):
        export_tiny(tmp_path / "bundle", nodes=3)
    assert load_bundle(tmp_path / "bundle").manifest == old.manifest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "bundle.tflite"]


def test_a_changed_manifest_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    manifest = export_tiny(tmp_path / "bundle").path / "bundle.json"
    good = json.loads(manifest.read_text())
    for change in ({"nodes": 3}, {"targets": 0}, {"files": {}}, {"more": 1}):
        manifest.write_text(json.dumps({**good, **change}))
        with pytest.raises(DiscoError, match=r"was changed after the export: export the model again"):
            load_bundle(tmp_path / "bundle")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1, "files": 5}', "[" * 100_000])
def test_a_damaged_manifest_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "bundle.json").write_text(text)
    with pytest.raises(DiscoError, match=r"bundle\.json is damaged"):
        load_bundle(tmp_path)


def test_a_manifest_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    document = export_tiny(tmp_path / "bundle").manifest.to_json()
    for change in ({"nodes": 3}, {"targets": ["posix"]}, {"nodes": 0, "targets": [], "programs": []}):
        with pytest.raises(DiscoError, match="export the model again"):
            Manifest.from_json(json.loads(json.dumps({**document, **change})))
