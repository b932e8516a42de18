"""Layer tables from every source: CSV, ONNX, TFLite, bundles, the zoo; and sparsity files."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from disco_planning.layers import Layer, read_table, write_table
from disco_planning.shares import PLAN_KEY, PlannedCut, read_plan
from disco_planning.sources import known_models, load_network
from disco_planning.sparsity_file import SparsityPlan, read_sparsity, write_sparsity
from disco_targets.errors import DiscoError, UsageError
from helpers.bundles import EXAMPLE

LAYER = Layer("stem", 3, 8, (10, 4), (2, 2), 49, 10, 1, 120000, 25, 5, (1, 1), 0)
HEADER = "name,in_ch,out_ch,kernel,stride,in_h,in_w,groups,macs,out_h,out_w,dilation,src\n"


def shapes(layers: tuple[Layer, ...]) -> list[Layer]:
    """All but the names."""
    return [dataclasses.replace(layer, name="") for layer in layers]


def test_a_table_survives_its_csv() -> None:
    layers = (LAYER, dataclasses.replace(LAYER, name="b", kernel=(3, 3), src=4))
    text = write_table(layers, "two\nlines")
    assert text.splitlines()[:2] == ["# two", "# lines"]
    assert ",10x4,2," in text
    assert read_table(text, "x") == layers
    assert read_table(text.replace("\n", "\r\n"), "x") == layers


def test_columns_that_may_be_left_out_and_names_of_tensors() -> None:
    text = "name,in_ch,out_ch,kernel,stride,in_h,in_w,groups,macs,source tensor\n"
    text += "a,3,8,3,2,9,8,1,100,image\nb,8,8,1,1,5,4,1,100,pool/out\nc,3,8,1,1,9,8,1,100,image\n"
    layers = read_table(text, "x")
    assert [(layer.out_h, layer.out_w, layer.dilation) for layer in layers[:2]] == [(5, 4, (1, 1))] * 2
    assert [layer.src for layer in layers] == [0, 1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a layer table"),
        ("name,macs\na,1\n", "not a layer table"),
        (HEADER, "no layers"),
        (HEADER + "a,3,8\n", "line 2: expected 13 values"),
        (HEADER + "a,3,8,3,1,8,8,1,1,8,8,1,0,9\n", "line 2: expected 13 values"),
        ("# made by hand\n" + HEADER + "a,3,x,3,1,8,8,1,1,8,8,1,0\n", "line 3: out_ch is 'x'"),
        (HEADER + "a,3,8,3x,1,8,-8,1,1,8,8,1,0\n", "in_w is '-8'"),
        (HEADER + "a,0,8,3,1,8,8,1,1,8,8,1,0\n", "in_ch is '0'"),
        (HEADER + "a,3,8,3,1,8,8,2,1,8,8,1,0\n", "2 groups do not divide 3"),
        (HEADER + ",3,8,3,1,8,8,1,1,8,8,1,0\n", "no name"),
        (HEADER + 2 * "a,3,8,3,1,8,8,1,1,8,8,1,0\n", "two layers are called 'a'"),
    ],
)
def test_a_wrong_table(text: str, message: str) -> None:
    with pytest.raises(DiscoError, match=message):
        read_table(text, "table.csv")


@pytest.mark.parametrize("name", ["resnet50", "deeplabv3plus_resnet101"])
def test_the_zoo_has_the_reference_tables(repository: Path, name: str) -> None:
    reference = (repository / "tests" / "golden" / "layer_tables" / f"{name}.csv").read_text()
    assert load_network(f"zoo:{name}").layers == read_table(reference, name)


@pytest.mark.parametrize(
    ("name", "macs"),
    [
        ("resnet50", 4.089e9),
        ("deeplabv3plus_resnet101", 83.0e9),
        ("ssd300_resnet50", 20.15e9),
        ("mobilenet_v2", 300.8e6),
        ("resnet8", 12.5e6),
        ("ds_cnn", 2.657e6),
    ],
)
def test_multiply_accumulates_as_published(name: str, macs: float) -> None:
    assert sum(layer.macs for layer in load_network(f"zoo:{name}").layers) == pytest.approx(macs, rel=1e-3)


def test_multiply_accumulates_of_deit_small_as_published() -> None:
    # 4.6 billion with the two products of the attention, which are no layers: 12 blocks, 197 x 197 x 384 each.
    layers = sum(layer.macs for layer in load_network("zoo:deit_small").layers)
    assert layers + 12 * 2 * 197 * 197 * 384 == pytest.approx(4.6e9, rel=1e-3)


def test_multiply_accumulates_of_esrgan_by_hand() -> None:
    block = sum(inputs * 32 for inputs in (64, 96, 128, 160)) + 192 * 64
    small = (3 * 64 + 23 * 3 * block + 64 * 64) * 128 * 128
    large = 64 * 64 * (256 * 256 + 2 * 512 * 512) + 64 * 3 * 512 * 512
    assert sum(layer.macs for layer in load_network("zoo:esrgan_rrdb23").layers) == 9 * (small + large)


def test_an_onnx_file_has_the_rows_of_its_definition() -> None:
    onnx = load_network(str(EXAMPLE / "models" / "resnet8_disco90.onnx")).layers
    assert shapes(onnx) == shapes(load_network("zoo:resnet8").layers)
    # The example exports the network with a softmax behind it, as "0" of a Sequential.
    assert [layer.name.removeprefix("0.") for layer in onnx] == [x.name for x in load_network("zoo:resnet8").layers]


@pytest.mark.parametrize(("model", "zoo"), [("ic_resnet8_int8", "resnet8"), ("kws_dscnn_int8", "ds_cnn")])
def test_the_mlperf_tiny_models_have_the_rows_of_the_zoo(shared_models: Path, model: str, zoo: str) -> None:
    layers = load_network(str(shared_models / f"{model}.tflite")).layers
    ours = sorted(shapes(load_network(f"zoo:{zoo}").layers), key=repr)
    assert sorted(shapes(layers), key=repr) == ours


def test_tflite_layers_are_called_like_the_ops_of_a_bundle(tmp_path: Path) -> None:
    from disco_planning.tflite_table import read_tflite
    from helpers.tiny_bundle import tiny_model

    file = tmp_path / "tiny.tflite"
    file.write_bytes(tiny_model())
    layers = load_network(str(file)).layers
    assert [layer.name for layer in layers] == ["conv_2d_0", "conv_2d_1"]
    assert layers[1] == Layer("conv_2d_1", 4, 4, (3, 3), (1, 1), 6, 5, 1, 30 * 9 * 16, 6, 5, (1, 1), 1)
    with pytest.raises(DiscoError, match=r"x is not a .tflite file"):
        read_tflite(b"nothing", "x")
    with pytest.raises(DiscoError, match="damaged"):
        read_tflite(tiny_model()[:200], "x")


def test_a_bundle_knows_its_sparsity(tmp_path: Path) -> None:
    from helpers.tiny_bundle import export_tiny

    bundle = export_tiny(tmp_path / "bundle")
    network = load_network(str(bundle.path))
    assert network.nodes == bundle.manifest.nodes
    assert network.sparsities == {"conv_2d_1": 0.0}  # the first layer reads the input, which all nodes have
    assert network.shares is None
    (bundle.path / "bundle.json").write_text("{}")
    with pytest.raises(DiscoError, match="damaged"):
        load_network(str(bundle.path))


@pytest.mark.parametrize(
    ("model", "message", "code"),
    [
        ("zoo:vgg", r"choose one of .*resnet50", 2),
        ("model.pt", "is no model: give a .csv", 2),
        ("missing.csv", "cannot be read", 1),
        ("missing.onnx", "cannot be read", 1),
        (".", "not a bundle", 1),
    ],
)
def test_what_is_no_network(model: str, message: str, code: int) -> None:
    with pytest.raises(DiscoError, match=message) as caught:
        load_network(model)
    assert caught.value.exit_code == code
    assert isinstance(caught.value, UsageError) == (code == 2)


def test_a_damaged_onnx_file(tmp_path: Path) -> None:
    file = tmp_path / "a.onnx"
    file.write_bytes(b"\xff" * 30)
    with pytest.raises(DiscoError, match="not a valid ONNX file"):
        load_network(str(file))
    file.write_bytes(b"")
    with pytest.raises(DiscoError, match=r"a\.onnx"):
        load_network(str(file))


def onnx_with(operator: str, height: int | str, file: Path) -> str:
    """A model of one operator with the weights [4, 3, 1, 1]."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto
    from onnx.helper import make_graph, make_model, make_node, make_tensor, make_tensor_value_info

    weights = make_tensor("w", TensorProto.FLOAT, [4, 3, 1, 1], [0.0] * 12)
    source = make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, height, 8])
    sink = make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, height, 8])
    graph = make_graph([make_node(operator, ["x", "w"], ["y"], name="n")], "g", [source], [sink], [weights])
    onnx.save(make_model(graph), str(file))
    return str(file)


def test_an_onnx_file_by_hand(tmp_path: Path) -> None:
    (layer,) = load_network(onnx_with("Conv", 6, tmp_path / "a.onnx")).layers
    assert layer == Layer("n", 3, 4, (1, 1), (1, 1), 6, 8, 1, 12 * 48, 6, 8, (1, 1), 0)


@pytest.mark.parametrize(
    ("operator", "height", "message"),
    [
        ("Conv", "height", "shape of tensor 'x' is not known"),
        ("ConvInteger", 6, "ConvInteger 'n' has no row"),
        ("MatMul", 6, r"not a valid ONNX file|weights of shape \[4, 3, 1, 1\]"),
        ("Relu", 6, "no convolution|not a valid"),
    ],
)
def test_an_onnx_file_that_cannot_be_tabled(tmp_path: Path, operator: str, height: int | str, message: str) -> None:
    with pytest.raises(DiscoError, match=message):
        load_network(onnx_with(operator, height, tmp_path / "a.onnx"))


def test_a_plan_is_read_strictly_but_for_its_range() -> None:
    """Shares decide how a network is cut; nothing but a warning depends on the range."""
    plan = {"nodes": 2, "shares": [3, 1], "layers": [{"name": "stem"}], "input_range": [-1, 2.5]}
    assert read_plan(json.dumps(plan), "a.onnx") == PlannedCut(2, (0.75, 0.25), ("stem",), (-1.0, 2.5))
    for limits in (None, [], [1, 0], [0, 1e999], [0, 10**400], ["a", {}], {"low": 0, "high": 1}, float("nan")):
        assert read_plan(json.dumps({**plan, "input_range": limits}), "a.onnx").input_range is None
    for change in ({"nodes": "two"}, {"nodes": 1e999}, {"shares": [1]}, {"shares": [10**400, 1]}, {"layers": [1]}):
        with pytest.raises(DiscoError, match=rf"the plan in a.onnx \({PLAN_KEY}\) cannot be read"):
            read_plan(json.dumps({**plan, **change}), "a.onnx")


@pytest.mark.parametrize(("kind", "package"), [("onnx", "onnx"), ("tflite", "tflite")])
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    file = tmp_path / f"a.{kind}"
    file.write_bytes(b"x")
    with pytest.raises(DiscoError, match=r"pip install 'disco-edge\[plan\]'"):
        load_network(str(file))


def test_every_table_of_the_zoo_opens() -> None:
    assert {"deit_small", "esrgan_rrdb23", "ssd300_resnet50", "deit_micro"} <= set(known_models())
    for name in known_models():
        assert load_network(f"zoo:{name}").layers


def test_a_sparsity_file_survives(tmp_path: Path) -> None:
    plan = SparsityPlan("zoo:resnet8", "paper", 2, {"stem": 0.0, "stages.0.conv1": 0.875})
    write_sparsity(tmp_path / "a.json", plan)
    assert read_sparsity(tmp_path / "a.json") == plan
    uneven = dataclasses.replace(plan, shares=(0.75, 0.25))
    write_sparsity(tmp_path / "a.json", uneven)
    assert read_sparsity(tmp_path / "a.json") == uneven


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a sparsity file"),
        ({"version": 2}, "has version 2"),
        ({"extra": 1}, "unknown or missing keys extra"),
        ({"nodes": 0}, "nodes must be"),
        ({"layers": {"a": 1.5}}, "layer 'a' is 1.5"),
        ({"layers": {"a": True}}, "layer 'a' is True"),
        ({"layers": []}, "layers an object"),
        ({"shares": [0.5, 0.4]}, r"shares are \[0.5, 0.4\]"),
        ({"shares": 2}, "shares are 2: a list"),
    ],
)
def test_a_wrong_sparsity_file(tmp_path: Path, change, message: str) -> None:
    document = {"format": "disco-sparsity", "version": 1, "model": "m", "system": "s", "nodes": 2, "layers": {"a": 0.5}}
    file = tmp_path / "a.json"
    file.write_text(json.dumps(document | change))
    with pytest.raises(DiscoError, match=message):
        read_sparsity(file)


def test_what_is_no_sparsity_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(DiscoError, match="cannot be read"):
        read_sparsity(tmp_path / "missing.json")
    (tmp_path / "a.json").write_text("no")
    with pytest.raises(DiscoError, match="not a sparsity file"):
        read_sparsity(tmp_path / "a.json")
