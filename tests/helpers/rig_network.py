"""A small network over several nodes: exact arithmetic in numpy, and each node's program by hand.

    x [9][7][3] --conv 3x3--> a --conv 3x3--> b --add a--> s --conv 3x3 stride 2--> d
      --average pool--> m --fully connected--> y --on node 0, gathered: channels reversed--> z

a, s, m and y are exchanged; of a and s only some channels. The sum s takes the place of a in the
buffer, so that a node must not be sent s before it has read the halo of a.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from helpers.rig_model import ModelSource, Receive, Send

Int8 = npt.NDArray[np.int8]
Int64 = npt.NDArray[np.int64]

HEIGHT, WIDTH, CHANNELS = 9, 7, 3
WIDE, NARROW, CLASSES = 11, 6, 5
EXCHANGES = 4
ZERO_POINTS = {"x": -3, "a": 5, "b": -7, "s": 2, "d": -11, "y": 4}
OPS = ("conv a", "conv b", "add s", "conv d", "pool m", "fully connected y", "gather z")


def requantise(accumulator: Int64, multiplier: Int64 | int, shift: Int64 | int) -> Int64:
    """Scales by multiplier * 2^(shift - 31), shift <= 0, rounding twice as the reference does."""
    high = (accumulator * multiplier + (1 << 30)) >> 31
    right = -np.asarray(shift, np.int64)
    mask = (np.int64(1) << right) - 1
    remainder = high & mask
    threshold = (mask >> 1) + (high < 0)
    return (high >> right) + (remainder > threshold)


def to_int8(values: Int64, zero_point: int) -> Int8:
    """Moves to the zero point and saturates."""
    return np.clip(values + zero_point, -128, 127).astype(np.int8)


@dataclass(frozen=True)
class Layer:
    """A convolution (or fully connected layer: kernel 1) with a scale per output channel."""

    weights: Int64
    """[out][kh][kw][in]"""
    bias: Int64
    multiplier: Int64
    shift: Int64
    stride: int
    pad: int
    input_zero_point: int
    output_zero_point: int

    def __call__(self, x: Int8) -> Int8:
        """The whole layer."""
        pad = self.pad
        moved = np.pad(x.astype(np.int64) - self.input_zero_point, ((pad, pad), (pad, pad), (0, 0)))
        kernel = self.weights.shape[1]
        out_h = (moved.shape[0] - kernel) // self.stride + 1
        out_w = (moved.shape[1] - kernel) // self.stride + 1
        out = np.zeros((out_h, out_w, len(self.weights)), np.int64)
        for i in range(out_h):
            for j in range(out_w):
                y, z = i * self.stride, j * self.stride
                patch = moved[y : y + kernel, z : z + kernel]
                out[i, j] = np.tensordot(self.weights, patch, 3) + self.bias
        return to_int8(requantise(out, self.multiplier, self.shift), self.output_zero_point)

    def struct(self, source: ModelSource, rows: Sequence[int], columns: Sequence[int]) -> str:
        """Initialiser for the outputs `rows` that read the inputs `columns` in this order."""
        rows, columns = list(rows), list(columns)
        weights = source.array("int8_t", self.weights[rows][..., columns])
        bias = source.array("int32_t", self.bias[rows])
        scale = source.array("int32_t", self.multiplier[rows])
        shift = source.array("int8_t", self.shift[rows])
        kernel = self.weights.shape[1]
        window = f"{{{kernel}, {kernel}, {self.stride}, {self.stride}, 1, 1, {self.pad}, {self.pad}}}"
        requant = f"{{{scale}, {shift}, {self.output_zero_point}, -128, 127}}"
        tail = f"{weights}, {bias}, {self.input_zero_point}, {requant}}}"
        flat = kernel == 1
        return f"disco_fully_connected_t {{{tail}" if flat else f"disco_conv2d_t {{{window}, {tail}"


def average_pool(x: Int8) -> Int8:
    """Over the whole plane, halves away from zero."""
    count = x.shape[0] * x.shape[1]
    total = x.astype(np.int64).sum(axis=(0, 1), keepdims=True)
    rounded = np.where(total > 0, total + count // 2, total - count // 2)
    return (np.sign(rounded) * (np.abs(rounded) // count)).astype(np.int8)


@dataclass(frozen=True)
class AddScales:
    """Of disco_add_t; all shifts are <= 0."""

    multiplier1: int = 1 << 30
    multiplier2: int = 0x5A000000
    output: int = 0x60000000
    shift1: int = 0
    shift2: int = -1
    output_shift: int = -18


class Network:
    """The layers, the owner of every channel and what is sent; random but for the seed."""

    def __init__(self, nodes: int, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.nodes = nodes
        self.owned = {n: np.array_split(np.arange(n), nodes) for n in (WIDE, NARROW, CLASSES)}
        # Of a wide tensor node j sends to node k the channels whose index fits a pattern.
        self.sent = {
            (j, k): [int(c) for c in self.owned[WIDE][j] if (int(c) + k) % 3 != 0]
            for j in range(nodes)
            for k in range(nodes)
            if j != k
        }
        z = ZERO_POINTS
        self.conv_a = self._layer(rng, WIDE, CHANNELS, 3, (1, 1), (z["x"], z["a"]))
        self.conv_b = self._sparse(self._layer(rng, WIDE, WIDE, 3, (1, 1), (z["a"], z["b"])), WIDE)
        self.conv_d = self._sparse(self._layer(rng, NARROW, WIDE, 3, (2, 1), (z["s"], z["d"])), NARROW)
        self.dense = self._layer(rng, CLASSES, NARROW, 1, (1, 0), (z["d"], z["y"]))
        self.add = AddScales()

    @staticmethod
    def _layer(
        rng: np.random.Generator,
        out: int,
        channels: int,
        kernel: int,
        step: tuple[int, int],
        zero_points: tuple[int, int],
    ) -> Layer:
        weights = rng.integers(-127, 128, (out, kernel, kernel, channels))
        spread = 60.0 / (73.0 * 60.0 * np.sqrt(kernel * kernel * channels))
        shift = rng.integers(-9, -6, out)
        multiplier = np.clip(spread * 2.0 ** (31.0 - shift), 2.0**30, 2.0**31 - 1).astype(np.int64)
        bias = rng.integers(-2000, 2000, out)
        return Layer(weights, bias, multiplier, shift, *step, *zero_points)

    def _sparse(self, layer: Layer, out: int) -> Layer:
        for (j, k), channels in self.sent.items():
            unsent = [c for c in self.owned[WIDE][j] if c not in channels]
            for row in self.owned[out][k]:
                layer.weights[row][:, :, unsent] = 0
        return layer

    def whole(self, x: Int8) -> list[Int8]:
        """Every op's output, computed on one device."""
        a = self.conv_a(x)
        b = self.conv_b(a)
        s = self._sum(a, b)
        d = self.conv_d(s)
        m = average_pool(d)
        y = self.dense(m)
        return [a, b, s, d, m, y, y[..., ::-1]]

    def _sum(self, a: Int8, b: Int8) -> Int8:
        z, add = ZERO_POINTS, self.add
        one = requantise((a.astype(np.int64) - z["a"]) << 20, add.multiplier1, add.shift1)
        two = requantise((b.astype(np.int64) - z["b"]) << 20, add.multiplier2, add.shift2)
        return to_int8(requantise(one + two, add.output, add.output_shift), z["s"])

    def own(self, op: int, node: int, value: Int8) -> Int8:
        """The channels of an op's output that a node owns."""
        return value if op == 6 else value[..., self.owned[value.shape[-1]][node]]

    def stream(self, exchange: int, sender: int, receiver: int, outputs: list[Int8]) -> bytes:
        """What goes from one node to another in an exchange."""
        value = outputs[(0, 2, 4, 5)[exchange]]
        return value[..., self._route(exchange, sender, receiver)].tobytes()

    def _route(self, exchange: int, sender: int, receiver: int) -> list[int]:
        if exchange < 2:
            return self.sent[sender, receiver]
        if exchange == 2:
            return [int(c) for c in self.owned[NARROW][sender]]
        return [int(c) for c in self.owned[CLASSES][sender]] if receiver == 0 else []

    def program(self, node: int, open_ops: Sequence[int] = (0, 2, 0, 0), *, joined: bool = False) -> ModelSource:
        """One node's model. With `open_ops` too early it shows what credit is for; with `joined` the ADD's rows are
        computed right after those of the convolution before, into a buffer of their own.
        """
        wide, narrow, classes = (list(map(int, self.owned[n][node])) for n in (WIDE, NARROW, CLASSES))
        peers = [k for k in range(self.nodes) if k != node]
        halos = [[c for j in peers for c in self._route(e, j, node)] for e in range(EXCHANGES)]
        source = ModelSource(node, self.nodes, EXCHANGES if self.nodes > 1 else 0)
        x = source.tensor(HEIGHT, WIDTH, CHANNELS)
        a = source.tensor(HEIGHT, WIDTH, len(wide), len(halos[0]))
        b = source.tensor(HEIGHT, WIDTH, len(wide))
        s = source.tensor(HEIGHT, WIDTH, len(wide), len(halos[1]), over=None if joined else a)
        d = source.tensor(5, 4, len(narrow))
        m = source.tensor(1, 1, len(narrow), len(halos[2]))
        y = source.tensor(1, 1, len(classes), len(halos[3]))
        source.inputs = [x]
        self._ops(source, (x, a, b, s, d, m, y), (wide, narrow, classes), halos)
        source.joined = {2} if joined else set()
        tensors, last_ops = (a, s, m, y), (1, 3, 5, len(source.ops) - 1)
        source.outputs = [y, len(source.tensors) - 1 if node == 0 else None]
        for exchange in range(EXCHANGES):
            first = len((wide, wide, narrow, classes)[exchange])
            own = (wide, wide, narrow, classes)[exchange]
            for peer in peers:
                sends = [own.index(c) for c in self._route(exchange, node, peer)]
                if sends:
                    tensor, last_op = tensors[exchange], last_ops[exchange]
                    source.sends.append(Send(exchange, tensor, peer, sends, last_op))
                count = len(self._route(exchange, peer, node))
                if count:
                    open_op = sum(open_ops[: exchange + 1])
                    receive = Receive(exchange, tensors[exchange], peer, first, count, open_op)
                    source.receives.append(receive)
                first += count
        return source

    def _ops(
        self,
        source: ModelSource,
        tensors: Sequence[int],
        owned: Sequence[list[int]],
        halos: Sequence[list[int]],
    ) -> None:
        x, a, b, s, d, m, y = tensors
        wide, narrow, classes = owned
        z, add = ZERO_POINTS, self.add
        full_a, full_s, full_m = wide + halos[0], wide + halos[1], narrow + halos[2]
        source.op("CONV_2D", [(x, CHANNELS)], a, self.conv_a.struct(source, wide, range(CHANNELS)))
        source.op("CONV_2D", [(a, len(full_a))], b, self.conv_b.struct(source, wide, full_a))
        values = (z["a"], z["b"], z["s"], add.multiplier1, add.multiplier2, add.output)
        values += (add.shift1, add.shift2, add.output_shift, 20, -128, 127)
        struct = f"disco_add_t {{{', '.join(map(str, values))}}}"
        source.op("ADD", [(a, len(wide)), (b, len(wide))], s, struct)
        source.op("CONV_2D", [(s, len(full_s))], d, self.conv_d.struct(source, narrow, full_s))
        pool = "disco_pool2d_t {{5, 4, 5, 4, 1, 1, 0, 0}, -128, 127}"
        source.op("AVERAGE_POOL_2D", [(d, len(narrow))], m, pool)
        dense = self.dense.struct(source, classes, full_m)
        source.op("FULLY_CONNECTED", [(m, len(full_m))], y, dense)
        if source.node == 0:
            out = source.tensor(1, 1, CLASSES)
            gathered = classes + halos[3]
            order = [gathered.index(c) for c in reversed(range(CLASSES))]
            index = source.array("uint16_t", order)
            source.op("SELECT_CHANNELS", [(y, CLASSES)], out, f"disco_select_channels_t {{{index}}}")


def random_input(seed: int) -> Int8:
    """An input that makes every channel vary."""
    rng = np.random.default_rng(seed)
    return rng.integers(-128, 128, (HEIGHT, WIDTH, CHANNELS)).astype(np.int8)
