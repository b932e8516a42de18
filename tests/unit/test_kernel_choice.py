"""Which kernel an op gets: what `--optimize size` spends memory on, and what it does not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from disco_converter import graph as g
from disco_converter.kernel_choice import Kernel, Limits, choose_kernels
from disco_converter.lowering import LoweredOp, lower
from disco_converter.partition import partition
from disco_firmware.footprint import RUNTIME_FLASH_BYTES
from disco_firmware.variants.registry import candidates

SIDE, CHANNELS = 12, 16
WHOLE = g.Window((SIDE, SIDE), (1, 1))
SAME = g.Window((3, 3), (1, 1), padding=g.Padding(1, 1, 1, 1))


def _filter(*shape: int) -> g.Filter:
    weights = np.random.default_rng(0).integers(-127, 128, shape).astype(np.int8)
    return g.Filter(weights, np.full(CHANNELS, 0.001, np.float32), True, np.zeros(CHANNELS, np.int32))


def _program() -> tuple[LoweredOp, ...]:
    """A 3x3 convolution, a depthwise-separable block, a global mean and its softmax."""
    params: Mapping[str, g.Params] = {
        "CONV_2D": g.Conv2D(SAME, _filter(CHANNELS, 3, 3, CHANNELS), "RELU"),
        "DEPTHWISE_CONV_2D": g.DepthwiseConv2D(SAME, _filter(1, 3, 3, CHANNELS), 1, "RELU"),
        "POINTWISE": g.Conv2D(g.Window((1, 1), (1, 1)), _filter(CHANNELS, 1, 1, CHANNELS), "RELU"),
        "AVERAGE_POOL_2D": g.Pool2D(WHOLE, "NONE"),
        "SOFTMAX": g.Softmax(1.0),
    }
    names = ("x", *params)
    plane = (1, SIDE, SIDE, CHANNELS)
    tensors = {name: g.Tensor(name, 0, plane, 0.5, -128) for name in names}
    tensors["AVERAGE_POOL_2D"] = g.Tensor("AVERAGE_POOL_2D", 0, (1, 1, 1, CHANNELS), 0.5, -128)
    tensors["SOFTMAX"] = g.Tensor("SOFTMAX", 0, (1, 1, 1, CHANNELS), 1 / 256, -128)
    ops = tuple(
        g.Op(i, "CONV_2D" if name == "POINTWISE" else name, (names[i],), name, params[name])
        for i, name in enumerate(params)
    )
    cut = partition(g.Graph(tensors, ops, "x", ("SOFTMAX",)), 1)
    return lower(cut, cut.slices[0])


@pytest.fixture(scope="module")
def program() -> tuple[LoweredOp, ...]:
    return _program()


def _chosen(program: tuple[LoweredOp, ...], optimize: str, flash: int | None = None) -> tuple[Kernel, ...]:
    return choose_kernels(program, Limits("dsp", flash, None), optimize)


def _flash(kernels: tuple[Kernel, ...]) -> int:
    return sum(kernel.flash_bytes for kernel in kernels)


def _instructions(kernels: tuple[Kernel, ...]) -> int:
    return sum(kernel.instructions for kernel in kernels)


def test_size_is_fast_where_it_matters_and_small_where_it_does_not(program: tuple[LoweredOp, ...]) -> None:
    names = [kernel.name for kernel in _chosen(program, "size")]
    assert names == ["direct, int8 weights", "3x3, int16 planes", "direct, int16 weights", "portable", "portable"]


def test_winograd_is_not_for_size(program: tuple[LoweredOp, ...]) -> None:
    small, fast = (_chosen(program, optimize)[0].variant for optimize in ("size", "balanced"))
    assert small is not None
    assert fast is not None
    assert fast.spends_memory
    assert not small.spends_memory


def test_no_other_kernel_makes_flash_times_instructions_less(program: tuple[LoweredOp, ...]) -> None:
    chosen = _chosen(program, "size")

    def product(flash: int, instructions: int) -> int:
        return (RUNTIME_FLASH_BYTES + flash) * instructions

    least = product(_flash(chosen), _instructions(chosen))
    tried = 0
    for lowered, kernel, slow in zip(program, chosen, _chosen(program, "none"), strict=True):
        flash, count = _flash(chosen) - kernel.flash_bytes, _instructions(chosen) - kernel.instructions
        others = [(slow.flash_bytes, slow.instructions)]
        for variant in candidates(lowered.layer, "dsp"):
            if not variant.spends_memory:
                bytes_ = variant.constants(lowered.layer).bytes + variant.code_bytes(lowered.layer)
                others.append((bytes_, variant.instructions(lowered.layer)))
        tried += len(others)
        assert all(product(flash + other[0], count + other[1]) >= least for other in others)
    assert tried > 2 * len(program)


def test_modes_go_from_small_to_fast(program: tuple[LoweredOp, ...]) -> None:
    none, size, balanced, speed = (_chosen(program, mode) for mode in ("none", "size", "balanced", "speed"))
    assert _flash(none) < _flash(size) < _flash(balanced) <= _flash(speed)
    assert _instructions(none) > 3 * _instructions(size) > 3 * _instructions(balanced)
    assert _instructions(balanced) >= _instructions(speed)


def test_size_stays_within_the_flash_of_the_board(program: tuple[LoweredOp, ...]) -> None:
    free = _chosen(program, "size")
    limit = _flash(free) - 1000
    tight = _chosen(program, "size", limit)
    assert _flash(tight) <= limit
    assert _instructions(free) < _instructions(tight) < _instructions(_chosen(program, "none"))
