"""Fixed-point parameters: their own properties, and which floating-point precision TFLite uses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from disco_firmware import kernel_params as k
from disco_firmware import quantisation as q
from disco_firmware.reference import ReferenceModel
from disco_targets.errors import DiscoError
from helpers.tflite_models import Op, Tensor, build

REALS = st.floats(min_value=2.0**-32, max_value=2.0**29, allow_nan=False)
SCALES = st.floats(min_value=2.0**-14, max_value=2.0**6, allow_nan=False, width=32)


def value_of(m: k.Multiplier) -> float:
    return math.ldexp(m.multiplier, m.shift - 31)


@given(REALS)
def test_multiplier_is_the_nearest_31_bit_fraction(real: float) -> None:
    m = q.quantise_multiplier(real)
    if real >= 2.0**-31:
        assert 1 << 30 <= m.multiplier <= q.INT32_MAX
        assert abs(value_of(m) - real) <= real * 2.0**-31
    assert -31 <= m.shift <= 30


@pytest.mark.parametrize(
    ("real", "expected"),
    [
        (0.0, k.Multiplier(0, 0)),
        (1.0, k.Multiplier(1 << 30, 1)),
        (0.5, k.Multiplier(1 << 30, 0)),
        (math.nextafter(1.0, 0.0), k.Multiplier(1 << 30, 1)),  # rounds up into the next power
        (2.0**-32, k.Multiplier(1 << 30, -31)),
        (2.0**-33, k.Multiplier(0, 0)),
        (2.0**29, k.Multiplier(1 << 30, 30)),
    ],
)
def test_multiplier_at_the_borders(real: float, expected: k.Multiplier) -> None:
    assert q.quantise_multiplier(real) == expected


@pytest.mark.parametrize("real", [-1.0, math.inf, math.nan, 2.0**30])
def test_a_multiplier_that_cannot_be_held_is_refused(real: float) -> None:
    with pytest.raises(DiscoError, match="ratio of scales"):
        q.quantise_multiplier(real)


@given(SCALES, st.integers(-128, 127), st.sampled_from(["NONE", "RELU", "RELU6", "RELU_N1_TO_1"]))
def test_activation_ranges_stay_within_int8(scale: float, zero_point: int, name: str) -> None:
    limits = q.activation_range(name, scale, zero_point)
    assert -128 <= limits.minimum <= limits.maximum <= 127
    if name == "RELU":
        assert limits == k.ActivationRange(zero_point, 127)
    if name == "NONE":
        assert limits == k.ActivationRange(-128, 127)


def test_an_unknown_activation_names_the_known_ones() -> None:
    with pytest.raises(DiscoError, match="TANH is not supported; supported: NONE, RELU"):
        q.activation_range("TANH", 0.1, 0)


def test_an_activation_bound_beyond_int32_is_refused() -> None:
    with pytest.raises(DiscoError, match="too small for an activation"):
        q.activation_range("RELU6", 1e-10, 0)


@example(49.111351013183594, 1.42475426197052, 15471)  # both roundings go down
@given(SCALES, SCALES, st.integers(1, 1 << 20))
def test_the_mean_multiplier_is_the_ratio_over_the_count(scale: float, out_scale: float, pixels: int) -> None:
    m = q.mean_parameters((scale, 3), (out_scale, -5), pixels).multiplier
    exact = scale / out_scale / pixels
    # Two steps: the ratio is rounded to 31 bits (half a unit of 2**30: 2**-31), then the division by the count rounds
    # down a value of at least 2**29 (2**-29); coarser where the right shift would pass 31.
    assert value_of(m) <= exact * (1 + 2.0**-30)
    assert value_of(m) >= exact * (1 - 2.0**-29 - 2.0**-31) - 2.0**-62
    assert m.shift >= -31


def test_add_refuses_an_output_scale_that_would_scale_the_sum_up() -> None:
    with pytest.raises(DiscoError, match="ADD"):
        q.add_parameters((1.0, 0), (1.0, 0), (2.0**-20, 0), "NONE")


@given(SCALES, st.floats(0.125, 16.0, width=32))
def test_softmax_differences_within_the_radius_do_not_overflow(scale: float, beta: float) -> None:
    p = q.softmax_parameters(scale, beta)
    assert p.diff_min <= 0
    # The radius is the largest difference that, shifted, still fits 31/32 of Q5.26.
    assert (-p.diff_min << p.multiplier.shift) <= 31 << 26
    assert (-p.diff_min + 1 << p.multiplier.shift) > 31 << 26


def test_softmax_refuses_a_vanishing_scale_and_caps_a_huge_one() -> None:
    with pytest.raises(DiscoError, match="SOFTMAX"):
        q.softmax_parameters(2.0**-27, 1.0)
    assert q.softmax_parameters(100.0, 1.0) == k.Softmax(k.Multiplier(q.INT32_MAX, 31), diff_min=0)


# Which precision: scales and accumulators for which float32 and float64 give different outputs.


def scaled(x: int, m: k.Multiplier) -> int:
    """Round twice, as the kernels do; unbounded integers."""
    high = ((x << max(m.shift, 0)) * m.multiplier + (1 << 30)) >> 31
    right = max(-m.shift, 0)
    half = (1 << right) >> 1
    return (high + half) >> right if high >= 0 else -((-high + half) >> right)


def telling_accumulator(a: k.Multiplier, b: k.Multiplier, limit: int) -> int | None:
    """A value up to `limit` that the two scale to different int8 outputs."""
    for n in range(10, 120):
        near = int((n + 0.5) / value_of(b))
        for x in range(max(near - 2, 0), min(near + 3, limit + 1)):
            if scaled(x, a) != scaled(x, b):
                return x
    return None


def telling_cases(
    multipliers: Callable[[float, float, float], tuple[float, float]], limit: int
) -> Iterator[tuple[tuple[float, float, float], int, int, int]]:
    """20 of (three scales, accumulator, output in float32, output in float64), found by search."""
    rng = np.random.default_rng(7)
    found = 0
    while found < 20:
        out = float(np.float32(np.exp(rng.uniform(-5, -1))))
        weight = float(np.float32(np.exp(rng.uniform(-14, -4))))
        fraction = rng.integers(1, 64) / rng.integers(1, 64) * 0.5 ** rng.integers(0, 3)
        in_ = float(np.float32(out * fraction))
        in32, in64 = (q.quantise_multiplier(real) for real in multipliers(in_, weight, out))
        x = None if in32 == in64 else telling_accumulator(in32, in64, limit)
        if x is not None:
            found += 1
            yield (in_, weight, out), x, scaled(x, in32), scaled(x, in64)


def product_ratios(in_: float, weight: float, out: float) -> tuple[float, float]:
    product = float(np.float32(in_) * np.float32(weight))
    return product / out, in_ * weight / out


def plain_ratios(in_: float, _weight: float, out: float) -> tuple[float, float]:
    return float(np.float32(in_) / np.float32(out)), in_ / out


def run(tensors: list[Tensor], op: Op, value: int = 0) -> int:
    data = np.full(tensors[0].shape, value, np.int8)
    content = build(tensors, [op], list(op.outputs))
    return int(ReferenceModel(content).run([data])[0].flat[0])


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", ["CONV_2D", "FULLY_CONNECTED"])
def test_the_precision_of_weight_scales(kind: str, per_channel: bool) -> None:
    for (in_, weight, out), x, in32, in64 in telling_cases(product_ratios, 1 << 29):
        # Two outputs from a bias alone: the weights are 0.
        count = 2 if per_channel else 1
        ones = (1, 1) if kind == "CONV_2D" else ()
        zeros = np.zeros((2, *ones, 1), np.int8)
        tensors = [
            Tensor((1, *ones, 1), (in_,), (0,)),
            Tensor(zeros.shape, (weight,) * count, (0,) * count, 0, zeros),
            Tensor((2,), (in_ * weight,) * count, (0,) * count, data=np.full(2, x, np.int32)),
            Tensor((1, *ones, 2), (out,), (0,)),
        ]
        strides = {"StrideH": 1, "StrideW": 1}
        op = (
            Op(kind, (0, 1, 2), (3,), "Conv2DOptions", dict(strides))
            if kind == "CONV_2D"
            else Op(kind, (0, 1, 2), (3,), "FullyConnectedOptions", {}, 5)
        )
        got = run(tensors, op)
        assert in32 != in64
        if kind == "CONV_2D":
            p = q.convolution_requantisation(in_, (weight,) * 2, out, 0, "NONE")
        else:
            p = q.fully_connected_requantisation(in_, (weight,) * 2, out, 0, "NONE", per_channel=per_channel)
        assert got == scaled(x, k.Multiplier(p.multipliers[0], p.shifts[0]))


def test_the_precision_of_relu() -> None:
    for (in_, _, out), x, in32, in64 in telling_cases(plain_ratios, 255):
        tensors = [Tensor((1, 1, 1, 1), (in_,), (-128,)), Tensor((1, 1, 1, 1), (out,), (-128,))]
        got = run(tensors, Op("RELU", (0,), (1,)), x - 128) + 128
        assert in32 != in64
        p = q.relu_parameters("RELU", (in_, -128), (out, -128))
        assert got == scaled(x, p.multiplier)


def test_the_precision_of_mean() -> None:
    for (in_, _, out), x, in32, in64 in telling_cases(plain_ratios, 255):
        axes = Tensor((2,), data=np.array([1, 2], np.int32))
        tensors = [Tensor((1, 1, 1, 1), (in_,), (-128,)), axes, Tensor((1, 1), (out,), (-128,))]
        got = run(tensors, Op("MEAN", (0, 1), (2,), "ReducerOptions"), x - 128) + 128
        assert in32 != in64
        p = q.mean_parameters((in_, -128), (out, -128), 1)
        assert got == scaled(x, p.multiplier)
