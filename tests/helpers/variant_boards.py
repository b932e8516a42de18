"""Runs calls of kernel variants, many in one program, on this PC under the sanitizers or on an emulated board.

A call is either general (one function for all, nothing constant) or specialised as in generated code (all parameters
and addresses constant). Each buffer lies between guard bytes or, on the PC, in a heap block of exactly its size. A
range of output rows finds only those input rows right that it may read.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from disco_converter.streaming import last_input_row
from disco_firmware.c_literals import array_body, initialiser
from disco_firmware.kernel_params import View
from disco_firmware.variants import portable
from disco_firmware.variants.base import Layer, Variant
from helpers import c_build
from helpers.kernel_driver import Case, Int8Array
from helpers.kernel_parts import Generator
from helpers.variant_layers import layer_of, named_fields, sizes, with_any_most_rows

TESTS_C = Path(__file__).parents[1] / "c"
_GUARD = 32
_ALIGNMENT = 16
_ARENA = 1 << 20
_BATCH = 3 << 20
"""Of the boards' 4 MB of code."""
_CODE_OF_A_CALL = 4096


@dataclass(frozen=True)
class Board:
    """An emulated board with semihosting and a CMSDK timer that counts instructions."""

    machine: str
    flags: tuple[str, ...]
    code: int
    data: int
    timer: int
    instructions_per_tick: Fraction
    """Under -icount shift=6."""

    def build_flags(self) -> tuple[str, ...]:
        """For the compiler, link included."""
        return (
            *("-O3", "-mthumb", *self.flags, f"-DVARIANT_TIMER={self.timer:#x}"),
            *("--specs=rdimon.specs", "-T", str(TESTS_C / "semihosted.ld")),
            *(f"-Wl,--defsym=test_code={self.code:#x}", f"-Wl,--defsym=test_data={self.data:#x}"),
        )

    def command(self, program: Path) -> list[str]:
        """Runs a program."""
        return [
            *("qemu-system-arm", "-M", self.machine, "-display", "none", "-monitor", "none", "-serial", "none"),
            *("-icount", "shift=6", "-semihosting-config", "enable=on,target=native", "-kernel", str(program)),
        ]


HOST_BUILDS = {
    "gcc sanitized": ("gcc", ("-Og", *c_build.SANITIZERS, "-DVARIANT_EXACT_BLOCKS")),
    "clang -O2": ("clang", ("-O2",)),
}
BOARDS = {
    "m4": Board("mps2-an386", ("-mcpu=cortex-m4",), 0, 0x20000000, 0x40000000, Fraction(5, 8)),
    "m7": Board("mps2-an500", ("-mcpu=cortex-m7",), 0, 0x20000000, 0x40000000, Fraction(5, 8)),
    "m33": Board("mps2-an505", ("-mcpu=cortex-m33",), 0x10000000, 0x38000000, 0x50000000, Fraction(100, 128)),
}


@dataclass(frozen=True, eq=False)
class Call:
    """One op computed by one variant, in row ranges, and what it must give."""

    variant: Variant
    layer: Layer
    case: Case
    rows: tuple[int, ...]
    """Where the ranges begin and end: 0, ..., multiples of the row step, ..., the last."""

    def wanted(self) -> Int8Array:
        """The whole output buffer after a right run."""
        pixels = self.case.output.pixels.copy()
        pixels[:, :, : self.case.output.channels] = self.case.expected
        return pixels

    def input_rows(self, view: View) -> list[int]:
        """For each range in turn, the first row of an input that it may read, and the end of those rows."""
        spans = itertools.pairwise(self.rows)
        return [row for begin, end in spans for row in _input_span(self.layer, view, begin, end)]


def _input_span(layer: Layer, view: View, begin: int, end: int) -> tuple[int, int]:
    window = portable.window_of(layer.params)
    if window is not None:
        begin = max(begin * window.stride_h - window.pad_top, 0)
    elif view.height != layer.output.height:  # of MEAN all rows, of MUL the one pixel that counts for all
        return 0, view.height
    end = last_input_row(layer.params, view.height, end - 1) + 1
    return min(begin, end), end  # none where the window lies in the padding


def calls_of(variant: Variant, cases: Iterable[Case], rng: Generator | None = None) -> list[Call]:
    """Calls for those of the cases that the variant computes, in ranges of any number of steps of any size.

    Without `rng` all rows are one range.
    """
    layers = [(case, with_any_most_rows(layer_of(case), rng)) for case in cases]
    return [
        Call(variant, layer, case, _rows(variant.row_step(layer), layer.output.height, rng))
        for case, layer in layers
        if variant.fits(layer)
    ]


def _rows(step: int, height: int, rng: Generator | None) -> tuple[int, ...]:
    steps = -(-height // step)
    inner = [] if rng is None else rng.permutation(np.arange(1, max(steps, 1)))[: rng.integers(0, max(steps, 1))]
    return (0, *sorted(int(place) * step for place in inner), height)


def run_on_host(calls: Sequence[Call], directory: Path, build: str = "gcc sanitized") -> None:
    """General calls, in one of HOST_BUILDS; AssertionError names the first wrong call."""
    compiler, flags = HOST_BUILDS[build]
    for batch in _batches(calls):
        _run(batch, [str(_build(batch, directory, compiler, flags, ()))])


def run_on_board(calls: Sequence[Call], board: Board, directory: Path, *, specialised: bool) -> list[int]:
    """Instructions of each call. Skips where a tool is missing; AssertionError names the first wrong call."""
    c_build.tool("qemu-system-arm")
    start = (TESTS_C / "semihosted_start.c",)
    counts = []
    for batch in _batches(calls):
        program = _build(batch, directory, "arm-none-eabi-gcc", board.build_flags(), start, specialised=specialised)
        counts += [int(ticks * board.instructions_per_tick) for ticks in _run(batch, board.command(program))]
    return counts


def compile_calls(calls: Sequence[Call], directory: Path, compiler: str, flags: Sequence[str]) -> None:
    """Compiles specialised calls without running them; fails the test with what the compiler said."""
    (directory / "cases.c").write_text(_program(calls, specialised=True))
    includes = (f"-I{c_build.RUNTIME / 'src'}", f"-I{TESTS_C}")
    c_build.compile_c(compiler, [directory / "cases.c"], directory / "cases.o", (*flags, *includes))


def assert_code_fits(calls: Sequence[Call], directory: Path, flags: Sequence[str]) -> None:
    """The code that the compiler makes of each specialised call takes no more than the variant says."""
    compile_calls(calls, directory, "arm-none-eabi-gcc", ("-c", "-O3", "-mthumb", "-ffunction-sections", *flags))
    sizes = c_build.code_sizes(directory / "cases.o")
    for number, call in enumerate(calls):
        bound = call.variant.code_bytes(call.layer)
        assert 0 < sizes[f"case_{number}_run"] <= bound, (call.layer.inputs, call.layer.output)


def _batches(calls: Sequence[Call]) -> list[list[Call]]:
    """As many calls in each as a board holds."""
    batches: list[list[Call]] = []
    room = 0
    for call in calls:
        pixels = sum(buffer.pixels.size for buffer in call.case.inputs) + 2 * call.case.output.pixels.size
        size = call.variant.constants(call.layer).bytes + pixels + _CODE_OF_A_CALL
        if size > room:
            batches.append([])
            room = _BATCH
        batches[-1].append(call)
        room -= size
    return batches


def _build(
    calls: Sequence[Call],
    directory: Path,
    compiler: str,
    flags: Sequence[str],
    sources: Sequence[Path],
    *,
    specialised: bool = False,
) -> Path:
    cases = directory / "cases.c"
    cases.write_text(_program(calls, specialised=specialised))
    return c_build.compile_c(
        compiler,
        (TESTS_C / "variant_driver.c", cases, *sources),
        directory / "variants.elf",
        (*flags, f"-I{c_build.RUNTIME / 'src'}", f"-I{TESTS_C}"),
    )


def _run(calls: Sequence[Call], command: Sequence[str]) -> list[int]:
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = result.stdout.splitlines()
    wrong = [line for line in lines if "wrong" in line]
    if wrong:
        call = calls[int(wrong[0].split()[1])]
        raise AssertionError(f"{wrong[0]}: {call.variant.name}, {call.layer.inputs} -> {call.layer.output}")
    assert result.returncode == 0, result.stderr
    assert len(lines) == len(calls)
    return [int(line.split()[2]) for line in lines]


def _program(calls: Sequence[Call], *, specialised: bool) -> str:
    headers = sorted({call.variant.header for call in calls})
    parts = ['#include "variant_driver.h"', *(f'#include "{header}"' for header in headers)]
    parts.append(f"int8_t variant_arena[{_ARENA}] __attribute__((aligned({_ALIGNMENT})));")
    parts.append(f"const uint32_t variant_arena_bytes = {_ARENA};")
    if not specialised:
        parts += [_general(variant) for variant in {call.variant.function: call.variant for call in calls}.values()]
    entries = []
    for number, call in enumerate(calls):
        text, entry = _case(number, call, specialised=specialised)
        parts.append(text)
        entries.append(entry)
    parts.append("const variant_case_t variant_cases[] = {\n" + ",\n".join(entries) + "\n};")
    parts.append(f"const uint32_t variant_case_count = {len(calls)};")
    return "\n".join(parts) + "\n"


_ARGUMENTS = "const disco_input_t *in, const disco_output_t *out, void *scratch, uint16_t begin, uint16_t end"


def _general(variant: Variant) -> str:
    name, structure = variant.function, variant.structure
    return (
        f"static __attribute__((noinline)) void general_{name}(const {structure} *op, {_ARGUMENTS}) {{\n"
        f"    {name}(op, in, out, scratch, begin, end);\n}}"
    )


def _case(number: int, call: Call, *, specialised: bool) -> tuple[str, str]:
    variant, layer = call.variant, call.layer
    prefix = f"case_{number}"
    constants = variant.constants(layer)
    scratch = variant.scratch_bytes(layer)
    inputs, output = call.case.inputs, call.case.output
    offsets = _offsets([buffer.pixels.size for buffer in (*inputs, output)] + [scratch])
    parts = [
        _array(f"{prefix}_{array.name}", array.c_type, array.values, array.alignment) for array in constants.arrays
    ]
    fields = initialiser(named_fields(constants.fields, f"{prefix}_"))
    parts.append(f"static const {variant.structure} {prefix}_op = {fields};")
    data = {f"input{i}": buffer.pixels for i, buffer in enumerate(inputs)}
    for name, pixels in {**data, "before": output.pixels, "after": call.wanted()}.items():
        parts.append(_array(f"{prefix}_{name}", "int8_t", pixels, 1))
    parts.append(_array(f"{prefix}_rows", "uint16_t", np.array(call.rows), 2))
    for i, view in enumerate(layer.inputs):
        parts.append(_array(f"{prefix}_input{i}_rows", "uint16_t", np.array(call.input_rows(view)), 2))
    run = f"{variant.function}(&{prefix}_op, in, &out, variant_arena + {offsets[-1]}, begin, end);"
    if specialised:
        views = ", ".join(
            f"{{variant_arena + {offset}, {sizes(buffer)}}}" for offset, buffer in zip(offsets, inputs, strict=False)
        )
        body = (
            f"    const disco_input_t in[] = {{{views}}};\n"
            f"    const disco_output_t out = {{variant_arena + {offsets[-2]}, {sizes(output)}}};\n"
            f"    (void)views; (void)output; (void)scratch;\n    {run}\n"
        )
        arguments = _ARGUMENTS.replace("*in", "*views").replace("*out", "*output")
    else:
        offsets = [0] * len(offsets)
        body = f"    general_{variant.function}(&{prefix}_op, in, out, scratch, begin, end);\n"
        arguments = _ARGUMENTS
    parts.append(f"static __attribute__((noinline)) void {prefix}_run({arguments}) {{\n{body}}}")
    views = ", ".join(f"{{{prefix}_input{i}, {sizes(buffer)}}}" for i, buffer in enumerate(inputs))
    input_rows = ", ".join(f"{prefix}_input{i}_rows" for i in range(len(inputs)))
    places = ", ".join(str(offset) for offset in offsets[: len(inputs)])
    entry = (
        f"    {{{len(inputs)}, {{{views}}}, {{{input_rows}}}, {prefix}_before, {prefix}_after, "
        f"{{NULL, {sizes(output)}}}, {scratch}, {prefix}_rows, {len(call.rows) - 1}, {{{places}}}, {offsets[-2]}, "
        f"{offsets[-1]}, {prefix}_run}}"
    )
    return "\n".join(parts), entry


def _offsets(sizes: Sequence[int]) -> list[int]:
    """Places in the arena with room for guard bytes."""
    offsets, end = [], 0
    for size in sizes:
        start = end + _GUARD
        offsets.append(start)
        end = -(-(start + size + _GUARD) // _ALIGNMENT) * _ALIGNMENT
    assert end <= _ARENA
    return offsets


def _array(name: str, c_type: str, values: npt.NDArray[Any], alignment: int) -> str:
    flat = values if values.dtype.names else values.reshape(-1)
    body = array_body(flat.tolist(), "")
    return f"static const {c_type} {name}[] __attribute__((aligned({alignment}))) = {{{body}}};"
