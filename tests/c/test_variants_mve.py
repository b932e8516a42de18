"""The Helium kernels equal TFLite's reference kernels bit for bit and touch nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tflite

from helpers import c_build, kernel_cases, variant_mve
from helpers.kernel_driver import Case, assert_equal, run_driver
from helpers.kernel_parts import Window, random_window
from helpers.variant_layers import layer_of

CASES = int(os.environ.get("DISCO_VARIANT_CASES", "150"))
SPECIALISED_CASES = min(CASES // 10, 40)
GENERATORS = {
    name: kernel_cases.GENERATORS[name]
    for name in (
        *("conv2d", "padded_conv2d", "depthwise_conv2d", "fully_connected", "add"),
        *("average_pool2d", "max_pool2d", "mean"),
    )
}


def deep_conv2d(rng: np.random.Generator) -> Case:
    """CONV_2D of whole vectors of channels and of a few more or less."""
    depth = int(rng.choice([16, 32, 48, 64, rng.integers(1, 70)]))
    shape = (1, int(rng.integers(1, 8)), int(rng.integers(1, 12)), depth)
    window = random_window(rng, shape) if rng.random() < 0.5 else square_window(rng, shape, int(rng.choice([1, 3])))
    return kernel_cases.conv2d_of(rng, shape, window, int(rng.integers(1, 24)))


def deep_depthwise_conv2d(rng: np.random.Generator) -> Case:
    """DEPTHWISE_CONV_2D 3x3 of more channels than a vector, of more columns than a tile."""
    shape = (1, int(rng.integers(1, 10)), int(rng.integers(1, 24)), int(rng.integers(1, 40)))
    window = square_window(rng, shape, int(rng.choice([2, 3, 3, 3, 4])))
    return kernel_cases.depthwise_conv2d_of(rng, shape, window, int(rng.choice([1, 1, 2])))


def square_window(rng: np.random.Generator, shape: tuple[int, int, int, int], size: int) -> Window:
    """A square window with SAME padding, of stride 1 or 2."""
    stride = int(rng.choice([1, 1, 2]))
    pads = [max((-(-length // stride) - 1) * stride + size - length, 0) // 2 for length in shape[1:3]]
    return Window((size, size), (stride, stride), (1, 1), (pads[0], pads[1]), tflite.Padding.SAME, shape[1:3])


GENERATORS |= {"deep_conv2d": deep_conv2d, "deep_depthwise_conv2d": deep_depthwise_conv2d}


@pytest.fixture(scope="session", params=["-O3", "-Os"])
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """The command that runs the test program."""
    return variant_mve.build_driver(tmp_path_factory.mktemp("variant_mve") / "driver.elf", request.param)


@pytest.fixture(scope="session")
def cases_of() -> dict[str, list[Case]]:
    """Filled by the tests, so that both builds run the same cases."""
    return {}


@pytest.mark.parametrize("name", GENERATORS)
def test_equals_the_reference(
    driver: Sequence[str], name: str, cases_of: dict[str, list[Case]], tmp_path: Path
) -> None:
    if name not in cases_of:
        generators = [np.random.default_rng([len(name), number]) for number in range(CASES)]
        cases_of[name] = variant_mve.fitting([GENERATORS[name](rng) for rng in generators])
    cases = cases_of[name]
    assert len(cases) > CASES / 4
    assert_equal(cases, run_driver(driver, variant_mve.pack(cases), tmp_path))
    assert sum(np.unique(case.expected).size > 1 for case in cases) > len(cases) / 3


def test_equals_the_reference_without_optimisation(tmp_path: Path) -> None:
    """Dot products are C there."""
    rng = np.random.default_rng(5)
    names = ("deep_conv2d", "fully_connected", "deep_depthwise_conv2d")
    cases = variant_mve.fitting([GENERATORS[name](rng) for name in names for _ in range(12)])
    driver = variant_mve.build_driver(tmp_path / "driver.elf", "-O0")
    assert_equal(cases, run_driver(driver, variant_mve.pack(cases), tmp_path))


@pytest.mark.parametrize("name", GENERATORS)
def test_specialised_code_equals_the_reference_and_takes_no_more_than_it_says(name: str, tmp_path: Path) -> None:
    generators = [np.random.default_rng([1, len(name), number]) for number in range(SPECIALISED_CASES)]
    cases = variant_mve.fitting([GENERATORS[name](rng) for rng in generators])
    driver = variant_mve.build_specialised(cases, tmp_path)
    sizes = c_build.code_sizes(tmp_path / "driver.elf")
    for number, case in enumerate(cases):
        layer = layer_of(case)
        bound = variant_mve.VARIANTS[case.kernel].code_bytes(layer)
        assert 0 < sizes[f"case_{number}"] <= bound, (layer.inputs, layer.output)
    assert_equal(cases, run_driver(driver, variant_mve.pack(cases), tmp_path))


def test_the_compiler_sees_nothing_beyond_the_scratch_memory(tmp_path: Path) -> None:
    """It may end where the arena does; what the compiler takes for a place beyond would end the build."""
    rng = np.random.default_rng(3)
    layers = [
        kernel_cases.depthwise_conv2d_of(rng, (1, side, side, 8), square_window(rng, (1, side, side, 8), 3), 1)
        for side in (6, 12, 13, 24)
    ]
    variant_mve.compile_tight(variant_mve.fitting(layers), tmp_path)


def test_a_byte_read_beyond_the_input_ends_the_emulator(driver: Sequence[str], tmp_path: Path) -> None:
    cases = variant_mve.fitting([kernel_cases.GENERATORS["add"](np.random.default_rng([7, n])) for n in range(9)])
    case = next(case for case in cases if case.inputs[0].pixels.shape[2] == case.inputs[0].channels)
    first, second = case.inputs
    short = replace(first, pixels=first.pixels[:-1])
    with pytest.raises(AssertionError):
        run_driver(driver, variant_mve.pack([replace(case, inputs=(short, second))]), tmp_path)
