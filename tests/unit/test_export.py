"""The converter on small graphs: ownership, exchanges, memory, and the errors that a user meets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from disco_converter import graph as g
from disco_converter.cli import main
from disco_converter.memory import plan_memory
from disco_converter.ownership import shares
from disco_converter.partition import partition
from disco_firmware.bundle import load_bundle
from disco_targets.errors import DiscoError
from helpers.bundles import EXAMPLE


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
    assert shares(7, 3).tolist() == [0, 0, 0, 1, 1, 2, 2]


def test_only_channels_with_a_weight_are_exchanged() -> None:
    # Channel 1 (node 0) reaches node 1's outputs 2 and 3 no more; channel 2 (node 1) reaches only output 0.
    cut = partition(_chain(zero=((2, 1), (3, 1), (1, 2), (0, 3), (1, 3))), 2)
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
    cut = partition(g.Graph(tensors, ops, "x", ("e",)), 2)
    assert [(e.tensor, e.routes) for e in cut.exchanges] == [("d", {(0, 1): (2, 3), (1, 0): (4, 5)})]
    assert [op.kind for op in cut.slices[0].ops][-2:] == ["SELECT_CHANNELS", "ADD"]


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_buffers_that_live_together_do_not_overlap(nodes: int) -> None:
    cut = partition(_chain(), nodes)
    for slice_ in cut.slices:
        places = list(plan_memory(cut, slice_).placements.values())
        for i, one in enumerate(places):
            for two in places[i + 1 :]:
                apart = one.offset + one.size <= two.offset or two.offset + two.size <= one.offset
                assert apart or one.last_op < two.first_op or two.last_op < one.first_op


def test_more_nodes_than_channels_are_refused() -> None:
    with pytest.raises(DiscoError, match="use at most 4 nodes"):
        partition(_chain(), 5)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["missing.onnx", "--nodes", "2", "--target", "posix"], 1, "does not exist"),
        (["model.onnx", "--nodes", "0", "--target", "posix"], 2, "at least 1"),
        (["model.onnx", "--nodes", "2", "--target", "qemu-mps2-an38"], 1, "did you mean qemu-mps2-an386"),
        (["model.onnx", "--nodes", "2", "--target", "posix,posix,posix"], 2, "3 targets for 2 nodes"),
        (["model.onnx", "--nodes", "2", "--target", "posix"], 2, "needs --calibration"),
        (["model.onnx", "--nodes", "2", "--target", "posix", "--json", "nowhere/x.json"], 1, "cannot be written"),
        (["broken.tflite", "--nodes", "2", "--target", "posix"], 1, "not a .tflite file"),
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


def test_a_foreign_folder_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    model = str(EXAMPLE / "models" / "resnet8_dense.onnx")
    assert main([model, "--nodes", "1", "--target", "posix", "-o", str(tmp_path / "mine")]) == 1
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


def test_a_folder_that_is_no_bundle_is_named(tmp_path: Path) -> None:
    with pytest.raises(DiscoError, match="is not a bundle"):
        load_bundle(tmp_path)
