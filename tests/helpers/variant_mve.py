"""Runs cases of the Helium kernels on an emulated Cortex-M55 (tests/c/variant_mve_driver.c)."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from disco_firmware.c_literals import array_body, initialiser
from disco_firmware.variants.add_mve import AddMve
from disco_firmware.variants.base import Reference, Variant
from disco_firmware.variants.conv2d_mve import Conv2DMve
from disco_firmware.variants.depthwise_mve import DepthwiseMve
from disco_firmware.variants.fully_connected_mve import FullyConnectedMve
from disco_firmware.variants.pool_mve import AveragePoolMve, MaxPoolMve, MeanMve
from helpers import c_build
from helpers.kernel_driver import Case
from helpers.variant_layers import layer_of, named_fields, sizes

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


def compile_tight(cases: Sequence[Case], directory: Path) -> None:
    """Compiles these cases as generated code has its ops, with as much scratch memory as each needs and no more."""
    headers = sorted({VARIANTS[case.kernel].header for case in cases})
    texts = ["#include <stdint.h>", *(f'#include "{header}"' for header in headers)]
    texts += ["#define GUARD_BYTES 0", f"static int8_t output_block[{max(case.output.pixels.size for case in cases)}];"]
    for number, case in enumerate(cases):
        scratch = VARIANTS[case.kernel].scratch_bytes(layer_of(case))
        texts += [
            f"static _Alignas(16) uint8_t scratch_{number}[{scratch}];",
            f"void case_{number}(uint16_t begin, uint16_t end);",
            _specialised(number, case, f"scratch_{number}").replace(
                f"static void case_{number}", f"void case_{number}"
            ),
        ]
    source = directory / "tight.c"
    source.write_text("\n".join(texts) + "\n")
    flags = ("-O3", *FLAGS, f"-I{c_build.RUNTIME / 'src'}", "-c")
    c_build.compile_c("arm-none-eabi-gcc", [source], directory / "tight.o", flags)


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


def _specialised(number: int, case: Case, scratch: str = "scratch_block + GUARD_BYTES") -> str:
    """One op with constant arguments."""
    variant, layer = VARIANTS[case.kernel], layer_of(case)
    constants, name = variant.constants(layer), f"case_{number}"
    lines = [
        f"static _Alignas({array.alignment}) const {array.c_type} {name}_{array.name}[] = "
        f"{{{array_body(array.values.reshape(-1).tolist())}}};"
        for array in constants.arrays
    ]
    lines.append(
        f"static const {variant.structure} {name}_op = {initialiser(named_fields(constants.fields, f'{name}_'))};"
    )
    inputs = [
        f"{{(const int8_t *)(uintptr_t){end - view.pixels.size:#x}, {sizes(view)}}}"
        for view, end in zip(case.inputs, _INPUT_ENDS, strict=False)
    ]
    lines += [
        f"static void {name}(uint16_t begin, uint16_t end) {{",
        f"    const disco_input_t in[] = {{{', '.join(inputs)}}};",
        f"    const disco_output_t out = {{(int8_t *)output_block + GUARD_BYTES, {sizes(case.output)}}};",
        f"    {variant.function}(&{name}_op, in, &out, {scratch}, begin, end);",
        "}",
    ]
    return "\n".join(lines)


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
