"""Every operator reaches its kernel with the right views, and an unsound model is refused."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from disco_firmware import quantisation
from disco_firmware.protocol import Status
from helpers import c_build
from helpers.rig_build import FLAGS, build_library, build_node
from helpers.rig_line import connect_all, start_node
from helpers.rig_model import ModelSource, Receive, Send
from helpers.rig_network import Int8, average_pool, requantise, to_int8

HEIGHT, WIDTH, CHANNELS = 4, 6, 6
SOFTMAX_SCALE = 0.05


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtime with sanitizers."""
    return build_library(tmp_path_factory.getbasetemp() / "runtime")


@pytest.fixture
def x() -> Int8:
    return np.random.default_rng(3).integers(-128, 128, (HEIGHT, WIDTH, CHANNELS)).astype(np.int8)


def max_pool(x: Int8) -> Int8:
    h, w, c = x.shape
    pooled: Int8 = x.reshape(h // 2, 2, w // 2, 2, c).max(axis=(1, 3))
    return pooled


def softmax(x: Int8) -> np.ndarray:
    exp = np.exp(x.astype(np.float64) * SOFTMAX_SCALE)
    return np.round(exp / exp.sum(axis=-1, keepdims=True) * 256) - 128


def all_operators(x: Int8) -> tuple[ModelSource, list[tuple[str, np.ndarray]]]:
    """A model of one node that uses each operator, and the expected value of each output."""
    source = ModelSource()
    tensor_x = source.tensor(*x.shape)
    source.inputs = [tensor_x]
    expected: list[tuple[str, np.ndarray]] = []

    def add(kind: str, inputs: list[int], value: np.ndarray, params: str) -> int:
        # Odd strides, so that a kernel that takes the stride for the channels is found out.
        output = source.tensor(*value.shape, halo=1)
        operands = [(i, source.tensors[i].channels) for i in inputs]
        source.op(kind, operands, output, params)
        source.outputs.append(output)
        expected.append((kind, value))
        return output

    padded = np.pad(x, ((1, 1), (2, 0), (0, 0)), constant_values=-9)
    pad = add("PAD", [tensor_x], padded, "disco_pad_t {1, 2, -9}")
    window = "{2, 2, 2, 2, 1, 1, 0, 0}"
    pooled = max_pool(padded)
    pool = add("MAX_POOL_2D", [pad], pooled, f"disco_pool2d_t {{{window}, -128, 127}}")
    mean = average_pool(padded)
    h, w = padded.shape[:2]
    add(
        "AVERAGE_POOL_2D",
        [pad],
        mean,
        f"disco_pool2d_t {{{{{h}, {w}, 1, 1, 1, 1, 0, 0}}, -128, 127}}",
    )
    total = padded.astype(np.int64).sum(axis=(0, 1), keepdims=True)
    mean = to_int8(requantise(total + 3 * h * w, 1 << 30, -4), 7)
    add("MEAN", [pad], mean, f"disco_mean_t {{-3, 7, {1 << 30}, -4}}")
    joined = np.concatenate([pooled, pooled], axis=-1)
    concat = add("CONCATENATION", [pool, pool], joined, "disco_copy_channels_t {0}, {6}")
    order = [11, 0, 3, 5, 6]
    select = source.array("uint16_t", order)
    chosen = joined[..., order]
    picked = add("SELECT_CHANNELS", [concat], chosen, f"disco_select_channels_t {{{select}}}")
    add("RESHAPE", [picked], chosen.reshape(1, 1, -1), "NULL")
    rectified = np.clip(chosen, -4, 60)
    add("RELU", [picked], rectified, f"disco_relu_t {{-4, -4, {1 << 30}, 1, -4, 60}}")
    soft = quantisation.softmax_parameters(SOFTMAX_SCALE, 1.0)
    values = f"{soft.multiplier.multiplier}, {soft.multiplier.shift}, {soft.diff_min}"
    add("SOFTMAX", [picked], softmax(chosen), f"disco_softmax_t {{{values}}}")
    weights = np.arange(1, 6)
    multiplier = source.array("int32_t", [1 << 30] * 5)
    shift = source.array("int8_t", [-2] * 5)
    params = [
        "{1, 1, 1, 1, 1, 1, 0, 0}",
        source.array("int8_t", weights),
        "NULL, 1, 0",
        f"{{{multiplier}, {shift}, 1, -128, 127}}",
    ]
    depthwise = to_int8(requantise(chosen * weights, 1 << 30, -2), 1)
    add(
        "DEPTHWISE_CONV_2D",
        [picked],
        depthwise,
        f"disco_depthwise_conv2d_t {{{', '.join(params)}}}",
    )
    return source, expected


def test_every_operator(x: Int8, library: Path, tmp_path: Path) -> None:
    """CONV_2D, FULLY_CONNECTED and ADD are in test_executor.py."""
    source, expected = all_operators(x)
    with start_node(build_node(source, tmp_path, library), 0, []) as node:
        connect_all([node], session=3)
        node.ask_run(1, x)
        result = node.result()
    for index, (kind, value) in enumerate(expected):
        assert np.unique(value).size > 3, kind
        got = result.outputs[index].reshape(value.shape)
        tolerance = 1 if kind == "SOFTMAX" else 0  # against floating point
        assert np.abs(got.astype(int) - value).max() <= tolerance, kind


# ---- rows


def window_rows(height: int, window: tuple[int, ...], rows: int) -> list[int]:
    """By looking at every tap of every row."""
    kernel, stride, dilation, pad = window
    last = []
    for row in range(rows):
        taps = [row * stride + tap * dilation - pad for tap in range(kernel)]
        last.append(min(max(*taps, 0), height - 1) if len(taps) > 1 else min(max(taps[0], 0), height - 1))
    return last


def test_last_input_row(library: Path, tmp_path: Path) -> None:
    height = 9
    source = ModelSource()
    x = source.tensor(height, 5, 2)
    zeros = source.array("int8_t", [0] * 200)
    numbers = source.array("int32_t", [0] * 8)
    requant = f"{{{numbers}, {zeros}, 0, -128, 127}}"
    expected = []
    for window in [
        (3, 1, 1, 1),
        (3, 2, 1, 0),
        (1, 2, 1, 0),
        (3, 1, 2, 2),
        (5, 3, 1, 4),
        (2, 1, 1, 6),
    ]:
        kernel, stride, dilation, pad = window
        struct = f"{{{kernel}, 1, {stride}, 1, {dilation}, 1, {pad}, 0}}"
        rows = (height + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1
        y = source.tensor(rows, 5, 2)
        source.op("CONV_2D", [(x, 2)], y, f"disco_conv2d_t {{{struct}, {zeros}, NULL, 0, {requant}}}")
        params = f"{{{struct}, {zeros}, NULL, 1, 0, {requant}}}"
        source.op("DEPTHWISE_CONV_2D", [(x, 2)], y, f"disco_depthwise_conv2d_t {params}")
        source.op("MAX_POOL_2D", [(x, 2)], y, f"disco_pool2d_t {{{struct}, -128, 127}}")
        source.op("AVERAGE_POOL_2D", [(x, 2)], y, f"disco_pool2d_t {{{struct}, -128, 127}}")
        expected += [window_rows(height, window, rows)] * 4
    padded = source.tensor(height + 3, 5, 2)
    source.op("PAD", [(x, 2)], padded, "disco_pad_t {2, 0, 0}")
    expected.append([0, 0, *range(height), height - 1])
    same, one = source.tensor(height, 5, 2), source.tensor(1, 1, 2)
    source.op("RELU", [(x, 2)], same, "disco_relu_t {0, 0, 0, 0, 0, 0}")
    source.op("CONCATENATION", [(x, 2)], same, "disco_copy_channels_t {0}")
    expected += [list(range(height))] * 2
    source.op("MEAN", [(x, 2)], one, "disco_mean_t {0, 0, 0, 0}")
    source.op("RESHAPE", [(x, 2)], same, "NULL")
    expected += [[height - 1], [height - 1] * height]
    model = tmp_path / "model.c"
    model.write_text(source.text())
    main = Path(__file__).with_name("executor_rows.c")
    program = c_build.compile_c("gcc", [main, model, library], tmp_path / "rows", FLAGS)
    out = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True).stdout
    assert [[int(v) for v in line.split()] for line in out.splitlines()] == expected


# ---- models that make no sense


def small_model() -> ModelSource:
    """Sound: node 0 of 2, one op, an exchange each way."""
    source = ModelSource(node=0, node_count=2, exchange_count=2)
    x = source.tensor(4, 4, 2)
    y = source.tensor(4, 4, 2, halo=2)
    z = source.tensor(4, 4, 2, halo=1)
    source.inputs, source.outputs = [x], [z]
    source.op("RELU", [(x, 2)], y, "disco_relu_t {0, 0, 1, 0, -128, 127}")
    source.op("ADD", [(y, 2), (y, 2)], z, "disco_add_t {0}")
    source.sends = [Send(0, y, 1, [0, 1], 1), Send(1, z, 1, [1], 1)]
    source.receives = [Receive(0, y, 1, 2, 2, 0), Receive(1, z, 1, 2, 1, 1)]
    return source


def broken(change: Callable[[ModelSource], object]) -> Callable[[], ModelSource]:
    def make() -> ModelSource:
        source = small_model()
        change(source)
        return source

    return make


def set_op(source: ModelSource, index: int, **changes: object) -> None:
    names = ("kind", "inputs", "output", "params")
    values = dict(zip(names, source.ops[index], strict=True)) | changes
    source.ops[index] = tuple(values[name] for name in names)  # type: ignore[assignment]


def set_field(group: str, index: int, name: str, value: object) -> Callable[[ModelSource], object]:
    return lambda source: setattr(getattr(source, group)[index], name, value)


UNSOUND = {
    "layout of another version": lambda s: setattr(s, "abi", s.abi + 1),
    "node beyond the count": lambda s: setattr(s, "node", 2),
    "too many nodes": lambda s: setattr(s, "node_count", 9),
    "buffer beyond the arena": set_field("tensors", 2, "offset", 1000),
    "tensor without rows": set_field("tensors", 0, "height", 0),
    "huge tensor": lambda s: [setattr(s.tensors[0], n, 65535) for n in ("height", "width", "channels")],
    "op reads past the pixel": lambda s: set_op(s, 0, inputs=[(0, 3)]),
    "op reads no tensor": lambda s: set_op(s, 0, inputs=[(3, 2)]),
    "op writes no tensor": lambda s: set_op(s, 0, output=3),
    "op without parameters": lambda s: set_op(s, 0, params="NULL"),
    "add of one input": lambda s: set_op(s, 1, inputs=[(1, 2)]),
    "send to oneself": set_field("sends", 0, "peer", 0),
    "send to nobody": set_field("sends", 0, "peer", 2),
    "send of a halo channel": set_field("sends", 0, "channels", [0, 2]),
    "send of an unknown tensor": lambda s: s.sends.append(Send(1, 3, 1, [0], 1)),
    "send of an unknown exchange": set_field("sends", 1, "exchange", 2),
    "send past the last op": set_field("sends", 1, "last_op", 2),
    "sends out of order": lambda s: [setattr(s.sends[i], "exchange", 1 - i) for i in (0, 1)],
    "receive into own channels": set_field("receives", 0, "first_channel", 1),
    "receive past the pixel": set_field("receives", 0, "count", 3),
    "receive from oneself": set_field("receives", 0, "peer", 0),
    "receives out of order": lambda s: [setattr(s.receives[i], "exchange", 1 - i) for i in (0, 1)],
    "buffers open out of order": lambda s: [setattr(s.receives[i], "open_op", 1 - i) for i in (0, 1)],
    "receive opens past the last op": set_field("receives", 1, "open_op", 2),
    "joined to nothing": lambda s: s.joined.add(0),
    "joined but not row by row": lambda s: [set_op(s, 1, kind="RESHAPE", params="NULL"), s.joined.add(1)],
    "joined to a whole tensor": lambda s: [set_op(s, 0, kind="RESHAPE", params="NULL"), s.joined.add(1)],
    "joined but waits for a halo": lambda s: [set_op(s, 1, inputs=[(1, 4), (1, 2)]), s.joined.add(1)],
    "joined with another height": lambda s: [setattr(s.tensors[2], "height", 2), s.joined.add(1)],
    "unknown input": lambda s: setattr(s, "inputs", [3]),
    "unknown output": lambda s: setattr(s, "outputs", [3]),
}


def exit_status(source: ModelSource, library: Path, directory: Path) -> int:
    """How a node ends whose host's line is closed from the beginning."""
    program = build_node(source, directory, library)
    with open("/dev/null", "rb") as nothing:
        fd = nothing.fileno()
        return subprocess.run([program, str(fd)], pass_fds=[fd], timeout=60, check=False).returncode


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_model_is_refused(name: str, library: Path, tmp_path: Path) -> None:
    source = broken(UNSOUND[name])()
    assert exit_status(source, library, tmp_path) == 100 + Status.ERR_ARGUMENT


@pytest.mark.parametrize("kind", ["14", "99", "4294967295"])
def test_unknown_operator_is_refused(kind: str, library: Path, tmp_path: Path) -> None:
    source = small_model()
    set_op(source, 1, kind=kind)
    assert exit_status(source, library, tmp_path) == 100 + Status.ERR_UNSUPPORTED


@pytest.mark.parametrize("joined", [set(), {1}])
def test_sound_model_is_taken(joined: set[int], library: Path, tmp_path: Path) -> None:
    source = small_model()
    source.joined = joined
    with start_node(build_node(source, tmp_path, library), 0, []) as node:
        assert node.hello(3).node_count == 2
