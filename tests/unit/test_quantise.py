"""ONNX to int8 TFLite: what comes out, and every refusal."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from disco_converter import quantise
from disco_converter.calibration import check_calibration, load_calibration
from disco_converter.quantise import quantise_onnx
from disco_converter.tflite_reader import read_tflite
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from pathlib import Path

onnx = pytest.importorskip("onnx", reason="needs onnx (disco-edge[convert])")
from onnx import helper, numpy_helper  # noqa: E402

FLOAT = onnx.TensorProto.FLOAT


def save(
    folder: Path,
    nodes: list[Any],
    shape: list[Any],
    constants: dict[str, np.ndarray] | None = None,
    *,
    inputs: int = 1,
    kind: int = FLOAT,
) -> Path:
    """Write an ONNX model from `input` of `shape` to `output`."""
    names = ["input", *(f"input{index}" for index in range(1, inputs))]
    outputs = [f"out{axis}" for axis in range(len(shape))]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, kind, shape) for name in names],
        [helper.make_tensor_value_info("output", kind, outputs)],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    return path


def relu(folder: Path, shape: list[Any], **options: Any) -> Path:
    return save(folder, [helper.make_node("Relu", ["input"], ["output"])], shape, **options)


def samples(*shape: int) -> np.ndarray:
    return np.random.default_rng(4).random(shape, dtype=np.float32)


def npy_header(shape: str) -> bytes:
    """A .npy file that promises this shape and ends after its header."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal must come before TensorFlow is started."""

    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("the converter was started")

    monkeypatch.setattr(quantise, "run_child", started)


# --- the model file ---


def test_a_missing_model_is_named(tmp_path, no_child):
    with pytest.raises(DiscoError, match=r"nothing\.onnx does not exist"):
        quantise_onnx(tmp_path / "nothing.onnx", samples(1, 4))


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x07" * 40])
def test_a_corrupt_model_is_refused(tmp_path, no_child, content):
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    with pytest.raises(DiscoError, match=r"broken\.onnx .*(corrupt|no operators)"):
        quantise_onnx(path, samples(1, 4))


def test_a_truncated_model_is_refused(tmp_path, no_child):
    weights = {"w": samples(4, 3, 3, 3)}
    path = save(tmp_path, [helper.make_node("Conv", ["input", "w"], ["output"])], [1, 3, 8, 8], weights)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DiscoError, match="corrupt"):
        quantise_onnx(path, samples(1, 8, 8, 3))


def test_a_dynamic_batch_is_refused_by_name(tmp_path, no_child):
    with pytest.raises(DiscoError, match=r"'input' .* dynamic batch \(dimension 0, 'N'\)"):
        quantise_onnx(relu(tmp_path, ["N", 3, 8, 8]), samples(1, 8, 8, 3))


def test_a_dynamic_dimension_is_refused_by_name(tmp_path, no_child):
    with pytest.raises(DiscoError, match=r"'input' .* dynamic dimension 2 \('height'\)"):
        quantise_onnx(relu(tmp_path, [1, 3, "height", 8]), samples(1, 8, 8, 3))


def test_a_larger_batch_is_refused(tmp_path, no_child):
    with pytest.raises(DiscoError, match="batch of 4"):
        quantise_onnx(relu(tmp_path, [4, 3, 8, 8]), samples(1, 8, 8, 3))


@pytest.mark.parametrize("shape", [[1], [1, 2, 3, 4, 5]])
def test_other_ranks_are_refused(tmp_path, no_child, shape):
    with pytest.raises(DiscoError, match=f"has {len(shape)} axes"):
        quantise_onnx(relu(tmp_path, shape), samples(*shape))


def test_two_inputs_are_refused(tmp_path, no_child):
    node = helper.make_node("Add", ["input", "input1"], ["output"])
    with pytest.raises(DiscoError, match=r"2 inputs \(input, input1\)"):
        quantise_onnx(save(tmp_path, [node], [1, 4], inputs=2), samples(1, 4))


def test_an_integer_input_is_refused(tmp_path, no_child):
    with pytest.raises(DiscoError, match="is INT32, it must be float32"):
        quantise_onnx(relu(tmp_path, [1, 4], kind=onnx.TensorProto.INT32), samples(1, 4))


# --- the calibration data ---


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (samples(5, 8, 6, 3).astype(np.float64), r"float64.*must be float32"),
        (np.zeros((5, 8, 6, 3), np.uint8), r"uint8.*must be float32"),
        (samples(5, 3, 8, 6), r"channels first \(NCHW\).*transpose\(0, 2, 3, 1\)"),
        (samples(5, 8, 6), r"are \[5, 8, 6\].*\[n, 8, 6, 3\]"),
        (samples(8, 6, 3), r"one sample.*array\[None\]"),
        (samples(5, 6, 8, 3), r"\[5, 6, 8, 3\].*\[n, 8, 6, 3\]"),
        (samples(0, 8, 6, 3), "no samples"),
        (np.full((5, 8, 6, 3), 0.5, np.float32), "0.5 everywhere"),
    ],
)
def test_calibration_data_that_does_not_fit_is_refused(tmp_path, no_child, array, message):
    with pytest.raises(DiscoError, match=message):
        quantise_onnx(relu(tmp_path, [1, 3, 8, 6]), array)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_calibration_data_that_is_not_finite_is_refused(value):
    array = samples(5, 8, 6, 3)
    array[3, 1, 2, 0] = value
    with pytest.raises(DiscoError, match=r"NaN or infinity, the first at index \(3, 1, 2, 0\)"):
        check_calibration(array, (1, 8, 6, 3))


def test_good_calibration_data_comes_back(tmp_path):
    array = samples(5, 8, 6, 3)
    assert check_calibration(array, (1, 8, 6, 3)) is array
    np.save(tmp_path / "good.npy", array)
    assert np.array_equal(load_calibration(tmp_path / "good.npy", (1, 8, 6, 3)), array)


def test_calibration_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(DiscoError, match="does not exist"):
        load_calibration(tmp_path / "none.npy", (1, 4))
    (tmp_path / "text.npy").write_text("hello")
    with pytest.raises(DiscoError, match="not a readable"):
        load_calibration(tmp_path / "text.npy", (1, 4))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object))
    with pytest.raises(DiscoError, match="not a readable"):
        load_calibration(tmp_path / "objects.npy", (1, 4))
    for content in (
        b"PK\x03\x04 no archive",
        npy_header("(99999999999, 4)"),
        npy_header("(9" + "9" * 30 + ",)"),
        npy_header("(" * 50),
    ):
        (tmp_path / "broken.npy").write_bytes(content)
        with pytest.raises(DiscoError, match="not a readable"):
            load_calibration(tmp_path / "broken.npy", (1, 4))
    np.savez(tmp_path / "many.npz", a=samples(1, 4), b=samples(1, 4))
    with pytest.raises(DiscoError, match="several arrays"):
        load_calibration(tmp_path / "many.npz", (1, 4))


# --- the child process ---


@pytest.mark.parametrize("package", ["tensorflow", "onnx2tf"])
def test_a_missing_package_names_what_to_install(tmp_path, monkeypatch, package):
    """A package that cannot be imported, found before the real one."""
    (tmp_path / f"{package}.py").write_text(f"raise ImportError('gone', name='{package}')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(DiscoError, match=rf"{package} is not installed.*disco-edge\[convert\]"):
        quantise_onnx(relu(tmp_path, [1, 4]), samples(2, 4))


def test_a_child_that_crashes_tells_its_last_lines(tmp_path, monkeypatch):
    (tmp_path / "onnxsim.py").write_text("import os, sys\nprint('boom', file=sys.stderr, flush=True)\nos._exit(9)\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(DiscoError, match=r"status 9.*boom"):
        quantise_onnx(relu(tmp_path, [1, 4]), samples(2, 4))


@pytest.fixture(scope="session")
def tensorflow() -> None:
    pytest.importorskip("onnx2tf", reason="needs TensorFlow and onnx2tf (disco-edge[convert])")


def interpreter(content: bytes) -> Any:
    runtime = pytest.importorskip("tflite_runtime.interpreter", reason="needs tflite-runtime")
    loaded = runtime.Interpreter(
        model_content=content, experimental_op_resolver_type=runtime.OpResolverType.BUILTIN_REF
    )
    loaded.allocate_tensors()
    return loaded


def operators(loaded: Any) -> list[str]:
    return [operator["op_name"] for operator in loaded._get_ops_details()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "node", "message"),
    [
        ("unknown to onnx2tf", ("Magic", "acme"), r"Magic \(node 'spell'\)"),
        ("without an int8 form", ("Erf", ""), r"Erf \(node 'spell'\)"),
    ],
)
def test_an_operator_that_cannot_be_converted_is_named(tmp_path, tensorflow, kind, node, message):
    op, domain = node
    nodes = [helper.make_node(op, ["input"], ["output"], name="spell", domain=domain)]
    with pytest.raises(DiscoError, match=message):
        quantise_onnx(save(tmp_path, nodes, [1, 8]), samples(4, 8))


@pytest.mark.slow
def test_an_operator_that_would_stay_in_float_is_named(tmp_path, tensorflow):
    nodes = [helper.make_node("CumSum", ["input", "axis"], ["output"], name="sum")]
    path = save(tmp_path, nodes, [1, 8], {"axis": np.array(1, np.int64)})
    with pytest.raises(DiscoError, match=r"CUMSUM .* would run in float"):
        quantise_onnx(path, samples(4, 8))


def conv_model(folder: Path) -> Path:
    """A 3x3 convolution with bias; kernels (output 1, input 0) and (output 3, input 2) are zero."""
    rng = np.random.default_rng(8)
    weight = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    weight[1, 0] = weight[3, 2] = 0.0
    bias = rng.standard_normal(4).astype(np.float32)
    node = helper.make_node("Conv", ["input", "w", "b"], ["output"], pads=[1, 1, 1, 1])
    return save(folder, [node], [1, 3, 8, 6], {"w": weight, "b": bias})


@pytest.mark.slow
def test_a_convolution_is_int8_channels_last_close_and_repeatable(tmp_path, tensorflow, monkeypatch, capfd):
    """One conversion looked at from all sides, and a second one that must give the same bytes."""
    work = tmp_path / "cwd"
    work.mkdir()
    monkeypatch.chdir(work)
    path, data = conv_model(tmp_path), samples(20, 8, 6, 3)
    content = quantise_onnx(path, data)
    assert quantise_onnx(path, data) == content
    assert list(work.iterdir()) == []
    assert capfd.readouterr() == ("", "")
    assert str(tmp_path).encode() not in content

    loaded = interpreter(content)
    source, result = loaded.get_input_details()[0], loaded.get_output_details()[0]
    assert source["shape"].tolist() == [1, 8, 6, 3]
    assert result["shape"].tolist() == [1, 8, 6, 4]
    assert source["dtype"] == result["dtype"] == np.int8
    assert operators(loaded) == ["CONV_2D"]

    (weight,) = (
        loaded.get_tensor(tensor["index"])
        for tensor in loaded.get_tensor_details()
        if tensor["shape"].tolist() == [4, 3, 3, 3]
    )
    zero = {(o, i) for o in range(4) for i in range(3) if not weight[o, :, :, i].any()}
    assert zero == {(1, 0), (3, 2)}
    assert_close_to_onnx(path, loaded, data[:3])


@pytest.mark.slow
def test_what_the_converter_writes_in_another_layout_or_as_groups_can_be_sliced(tmp_path, tensorflow):
    """A depthwise convolution with two strides, and a concatenation behind a residual add."""
    rng = np.random.default_rng(8)
    shapes = {"stem": (4, 3, 3, 3), "depthwise": (4, 1, 3, 3), "conv": (4, 4, 3, 3), "last": (6, 8, 3, 3)}
    weights = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}

    def conv(name: str, source: str, output: str, **options: Any) -> Any:
        return helper.make_node("Conv", [source, name], [output], name=name, pads=[1, 1, 1, 1], **options)

    nodes = [
        conv("stem", "input", "a"),
        conv("depthwise", "a", "x", strides=[2, 1], group=4),
        conv("conv", "x", "b"),
        helper.make_node("Add", ["b", "x"], ["y"]),
        helper.make_node("Concat", ["x", "y"], ["both"], axis=1),
        conv("last", "both", "output"),
    ]
    path, data = save(tmp_path, nodes, [1, 3, 8, 6], weights), samples(8, 8, 6, 3)
    content = quantise_onnx(path, data)
    kinds = [op.kind for op in read_tflite(content).ops]
    assert kinds == ["CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D", "ADD", "CONCATENATION", "CONV_2D"]
    assert_close_to_onnx(path, interpreter(content), data[:3])


def assert_close_to_onnx(path: Path, loaded: Any, data: np.ndarray) -> None:
    """The int8 answers are within a few steps of the float ones, image by image."""
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    source, result = loaded.get_input_details()[0], loaded.get_output_details()[0]
    scale, zero_point = source["quantization"]
    out_scale, out_zero_point = result["quantization"]
    for sample in data:
        steps = np.clip(np.round(sample / scale) + zero_point, -128, 127).astype(np.int8)
        loaded.set_tensor(source["index"], steps[None])
        loaded.invoke()
        found = (loaded.get_tensor(result["index"])[0] - float(out_zero_point)) * out_scale
        (expected,) = session.run(None, {"input": sample.transpose(2, 0, 1)[None]})
        assert np.abs(found - expected[0].transpose(1, 2, 0)).max() < 4 * out_scale


@pytest.mark.slow
@pytest.mark.parametrize(
    ("node", "shape", "weight", "expected"),
    [
        (("Gemm", {"transB": 1}), [1, 8], (4, 8), [1, 8]),
        (("MatMul", {}), [1, 6, 8], (8, 4), [1, 6, 8]),
        (("Conv", {"pads": [1, 1]}), [1, 3, 16], (4, 3, 3), [1, 16, 3]),
    ],
)
def test_other_ranks_convert(tmp_path, tensorflow, node, shape, weight, expected):
    """Features as they are, tokens as they are, a sequence of channels channels last."""
    op, attributes = node
    nodes = [helper.make_node(op, ["input", "w"], ["output"], **attributes)]
    path = save(tmp_path, nodes, shape, {"w": samples(*weight) - 0.5})
    loaded = interpreter(quantise_onnx(path, samples(6, *expected[1:])))
    assert loaded.get_input_details()[0]["shape"].tolist() == expected
    scales = [
        len(tensor["quantization_parameters"]["scales"])
        for tensor in loaded.get_tensor_details()
        if tensor["shape"].tolist() == [4, 8]
    ]
    # Per-channel scales, but one scale where FULLY_CONNECTED keeps leading axes.
    assert scales == {"Gemm": [4], "MatMul": [1], "Conv": []}[op]


def test_importing_the_module_does_not_import_tensorflow():
    code = (
        "import sys, disco_converter.quantise;"
        "print([name for name in ('tensorflow', 'onnx2tf', 'onnx') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert answer.strip() == "[]"
