"""Runs cases of the Helium kernels on an emulated Cortex-M55 (tests/c/variant_mve_driver.c)."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from disco_firmware import kernel_params as k
from disco_firmware import quantisation as q
from disco_firmware.c_literals import array_body, initialiser
from disco_firmware.variants.add_mve import AddMve
from disco_firmware.variants.base import Layer, Reference, Variant
from disco_firmware.variants.conv2d_mve import Conv2DMve
from disco_firmware.variants.depthwise_mve import DepthwiseMve
from disco_firmware.variants.fully_connected_mve import FullyConnectedMve
from disco_firmware.variants.pool_mve import AveragePoolMve, MaxPoolMve, MeanMve
from helpers import c_build
from helpers.kernel_driver import Buffer, Case

VARIANTS: dict[str, Variant] = {
    "conv2d": Conv2DMve(),
    "depthwise_conv2d": DepthwiseMve(),
    "fully_connected": FullyConnectedMve(),
    "add": AddMve(),
    "average_pool2d": AveragePoolMve(),
    "max_pool2d": MaxPoolMve(),
    "mean": MeanMve(),
}
"""By kernel, in the order of the driver's table."""
EMULATOR = (
    *("qemu-system-arm", "-M", "mps3-an547", "-display", "none", "-monitor", "none"),
    *("-serial", "none", "-semihosting-config", "enable=on,target=native", "-kernel"),
)
FLAGS = ("-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard", "-fno-tree-vectorize")
_INPUT_ENDS = (0x31400000, 0x30080000)
"""test_first_end and test_second_end of variant_mve.ld."""
_C = Path(__file__).parents[1] / "c"


def build_driver(output: Path, *flags: str) -> Sequence[str]:
    """The command that runs the driver; skips the test where compiler or emulator is missing."""
    c_build.tool("qemu-system-arm")
    script = ("--specs=rdimon.specs", "-T", str(_C / "variant_mve.ld"))
    sources = (_C / "variant_mve_driver.c", _C / "variant_mve_start.c")
    include = f"-I{c_build.RUNTIME / 'src'}"
    c_build.compile_c("arm-none-eabi-gcc", sources, output, (*flags, *FLAGS, include, *script))
    return [*EMULATOR, str(output)]


def build_specialised(cases: Sequence[Case], directory: Path) -> Sequence[str]:
    """The same for a driver in which these cases are compiled in, as generated code has its ops."""
    texts = [_specialised(number, case) for number, case in enumerate(cases)]
    names = ", ".join(f"case_{number}" for number in range(len(cases)))
    texts.append(f"static void (*const variant_cases[])(uint16_t begin, uint16_t end) = {{{names}}};")
    (directory / "cases.h").write_text("\n".join(texts) + "\n")
    return build_driver(directory / "driver.elf", "-O3", f'-DVARIANT_CASES="{directory / "cases.h"}"')


def layer_of(case: Case) -> Layer:
    """What the converter would know of the op of a case."""
    return Layer(_params_of(case), tuple(_view(view) for view in case.inputs), _view(case.output))


def fitting(cases: Sequence[Case]) -> list[Case]:
    """The cases that the variant computes, with ranges that begin where it may begin."""
    chosen = []
    for case in cases:
        variant, layer = VARIANTS[case.kernel], layer_of(case)
        if variant.fits(layer):
            step = variant.row_step(layer)
            chosen.append(replace(case, ranges=_aligned(case.ranges, step, case.expected.shape[0])))
    return chosen


def pack(cases: Sequence[Case]) -> bytes:
    """The driver's case file."""
    return struct.pack("<I", len(cases)) + b"".join(_packed(case) for case in cases)


def _specialised(number: int, case: Case) -> str:
    """One op with constant arguments."""
    variant, layer = VARIANTS[case.kernel], layer_of(case)
    constants, name = variant.constants(layer), f"case_{number}"
    lines = [
        f"static _Alignas({array.alignment}) const {array.c_type} {name}_{array.name}[] = "
        f"{{{array_body(array.values.reshape(-1).tolist())}}};"
        for array in constants.arrays
    ]
    lines.append(f"static const {variant.structure} {name}_op = {initialiser(_named(constants.fields, name))};")
    inputs = [
        f"{{(const int8_t *)(uintptr_t){end - view.pixels.size:#x}, {_sizes(view)}}}"
        for view, end in zip(case.inputs, _INPUT_ENDS, strict=False)
    ]
    lines += [
        f"static void {name}(uint16_t begin, uint16_t end) {{",
        f"    const disco_input_t in[] = {{{', '.join(inputs)}}};",
        f"    const disco_output_t out = {{(int8_t *)output_block + GUARD_BYTES, {_sizes(case.output)}}};",
        f"    {variant.function}(&{name}_op, in, &out, scratch_block + GUARD_BYTES, begin, end);",
        "}",
    ]
    return "\n".join(lines)


def _named(fields: Mapping[str, object], name: str) -> dict[str, object]:
    """`fields` with the names of the arrays in C."""
    named: dict[str, object] = {}
    for field, value in fields.items():
        if isinstance(value, Reference):
            named[field] = f"{name}_{value.array}"
        else:
            named[field] = _named(value, name) if isinstance(value, Mapping) else value
    return named


def _sizes(view: Buffer) -> str:
    height, width, stride = view.pixels.shape
    return f"{height}, {width}, {view.channels}, {stride}"


@dataclass
class _Flat:
    numbers: list[int]
    arrays: list[str]


def _packed(case: Case) -> bytes:
    variant, layer = VARIANTS[case.kernel], layer_of(case)
    constants = variant.constants(layer)
    flat = _Flat([], [])
    _flatten(constants.fields, flat)
    arrays = {array.name: array.values for array in constants.arrays}
    parts = [struct.pack("<2I", list(VARIANTS).index(case.kernel), len(flat.numbers))]
    parts.append(struct.pack(f"<{len(flat.numbers)}i", *flat.numbers))
    parts.append(struct.pack("<I", len(flat.arrays)))
    parts += [struct.pack("<I", arrays[name].nbytes) + arrays[name].tobytes() for name in flat.arrays]
    parts.append(struct.pack("<2I", variant.scratch_bytes(layer), len(case.inputs)))
    parts += [view.packed() for view in case.inputs]
    parts.append(case.output.packed())
    parts.append(struct.pack("<I", len(case.ranges)))
    parts += [struct.pack("<2H", *limits) for limits in case.ranges]
    return b"".join(parts)


def _flatten(fields: Mapping[str, object], flat: _Flat) -> None:
    """Numbers and names of arrays in the order of the structure."""
    for value in fields.values():
        if isinstance(value, Reference):
            flat.arrays.append(value.array)
        elif isinstance(value, Mapping):
            _flatten(value, flat)
        else:
            assert isinstance(value, int)
            flat.numbers.append(value)


def _aligned(ranges: tuple[tuple[int, int], ...], step: int, rows: int) -> tuple[tuple[int, int], ...]:
    """From row 0 on, in order, each beginning at a multiple of the step."""
    last = max((end for _, end in ranges), default=0)
    inner = {begin // step * step for begin, _ in ranges} | {0}
    ends = sorted({begin for begin in inner if begin < last} | {last if last == rows else last // step * step})
    return tuple(itertools.pairwise(ends))


def _view(buffer: Buffer) -> k.View:
    height, width, stride = buffer.pixels.shape
    return k.View(height, width, buffer.channels, stride)


def _requantisation(case: Case, first: int) -> q.Requantisation:
    multipliers, shifts = case.arrays[2:4]
    assert multipliers is not None
    assert shifts is not None
    zero_point, low, high = case.params[first : first + 3]
    return q.Requantisation(
        tuple(int(m) for m in multipliers), tuple(int(s) for s in shifts), zero_point, q.ActivationRange(low, high)
    )


def _params_of(case: Case) -> k.KernelParams:
    p = case.params
    if case.kernel == "fully_connected":
        weights, bias = case.arrays[:2]
        assert weights is not None
        return k.FullyConnected(weights, bias, p[0], _requantisation(case, 1))
    if case.kernel == "add":
        one, two, out = (q.Multiplier(*pair) for pair in zip(p[3:6], p[6:9], strict=True))
        return k.Add(q.AddParameters(p[0], p[1], p[2], one, two, out, p[9], q.ActivationRange(p[10], p[11])))
    if case.kernel == "mean":
        return k.Mean(q.MeanParameters(p[0], p[1], q.Multiplier(p[2], p[3])))
    window = k.Window(*p[:8])
    if case.kernel in ("average_pool2d", "max_pool2d"):
        kind = k.AveragePool2D if case.kernel == "average_pool2d" else k.MaxPool2D
        return kind(window, q.ActivationRange(p[8], p[9]))
    weights, bias = case.arrays[:2]
    assert weights is not None
    if case.kernel == "conv2d":
        return k.Conv2D(window, weights, bias, p[8], _requantisation(case, 9))
    filters = np.ascontiguousarray(weights[0])
    return k.DepthwiseConv2D(window, filters, bias, p[12], p[8], _requantisation(case, 9))
