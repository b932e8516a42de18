"""A C program that calls a kernel variant on cases, built for this machine or an emulated board.

Its arrays are globals, so that the address sanitizer sees what lies beyond them. Every range of rows finds only those
input rows right that it may read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from disco_firmware.kernel_params import Conv2D, DepthwiseConv2D
from disco_firmware.variants.base import Layer, Reference, Variant
from helpers.kernel_driver import Buffer, Int8Array

_PROGRAM = """
#include <stdio.h>
#include <string.h>
#include "disco/kernels.h"
#include "HEADER"

/* A case says which rows of its input a range may read, and what then has to be in the output. */
static int failures;

static void provide(int8_t *target, const int8_t *source, long row_bytes, long rows, long begin, long end) {
    for (long y = 0; y < rows; y++) {
        for (long i = 0; i < row_bytes; i++) {
            target[y * row_bytes + i] = y >= begin && y < end ? source[y * row_bytes + i] : (int8_t)(y * 37 + i * 11);
        }
    }
}

static void compare(int number, const int8_t *got, const int8_t *wanted, unsigned long size) {
    for (unsigned long i = 0; i < size; i++) {
        if (got[i] != wanted[i]) {
            printf("case %d: byte %lu of %lu is %d, not %d\\n", number, i, size, got[i], wanted[i]);
            failures++;
            return;
        }
    }
}
"""
_COUNTER = """
#define TIMER ((volatile uint32_t *)0x40000000)
static void start(void) {
    TIMER[2] = TIMER[1] = 0xFFFFFFFFu;
    TIMER[0] = 1;
}
/* 25 MHz, 64 ns per instruction. */
static void stop(int number) {
    printf("count %d %lu\\n", number, (unsigned long)((0xFFFFFFFFu - TIMER[1]) / 8 * 5));
}
"""


@dataclass(frozen=True, eq=False)
class VariantCase:
    """A layer of one input, and what it must give."""

    layer: Layer
    input: Buffer
    output: Buffer
    """Poisoned, halo included."""
    expected: Int8Array


def program(variant: Variant, cases: Sequence[VariantCase], *, specialised: bool = False, count: bool = False) -> str:
    """Prints a line for each case that fails and, if asked, the instructions of each (emulated M4); exits with 1 or 0.

    `specialised` calls the variant with constants, as generated code does, and not all cases through one function.
    """
    parts = [_PROGRAM.replace("HEADER", variant.header), _COUNTER if count else ""]
    arguments = "const disco_input_t *in, const disco_output_t *out, void *scratch, uint16_t begin, uint16_t end"
    parts.append(
        f"static __attribute__((noinline)) void call(const {variant.structure} *op, {arguments}) {{\n"
        f"    {variant.function}(op, in, out, scratch, begin, end);\n}}\n"
    )
    if specialised:
        parts[-1] = ""
    function = variant.function if specialised else "call"
    for number, case in enumerate(cases):
        parts += _case(variant, case, number, function, count)
    calls = "".join(f"    case_{number}();\n" for number in range(len(cases)))
    return "".join(parts) + f"int main(void) {{\n{calls}    return failures > 0;\n}}\n"


def _case(variant: Variant, case: VariantCase, number: int, function: str, count: bool) -> Iterable[str]:
    constants = variant.constants(case.layer)
    names = {array.name: f"{array.name}_{number}" for array in constants.arrays}
    for array in constants.arrays:
        yield _array(f"const {array.c_type}", names[array.name], array.values)
    wanted = case.output.pixels.copy()
    wanted[:, :, : case.output.channels] = case.expected
    yield _array("const int8_t", f"source_{number}", case.input.pixels)
    yield _array("const int8_t", f"wanted_{number}", wanted)
    yield _array("int8_t", f"output_{number}", case.output.pixels)
    yield f"static int8_t input_{number}[{case.input.pixels.size}];\n"
    scratch = max(16, variant.scratch_bytes(case.layer))
    yield f"static uint8_t scratch_{number}[{scratch}] __attribute__((aligned(16)));\n"
    height = len(case.output.pixels)
    views = (_view(f"input_{number}", case.input), _view(f"output_{number}", case.output))
    yield (
        f"static const {variant.structure} op_{number} = {_initialiser(constants.fields, names)};\n"
        f"static __attribute__((noinline)) void run_{number}(uint16_t begin, uint16_t end) {{\n"
        f"    const disco_input_t in[] = {{{views[0]}}};\n    const disco_output_t out = {views[1]};\n"
        f"    {function}(&op_{number}, in, &out, scratch_{number}, begin, end);\n}}\n"
        f"static __attribute__((noinline)) void case_{number}(void) {{\n"
        f"    memset(scratch_{number}, 0xA5, {scratch});\n"
    )
    for begin, end in _ranges(case, variant.row_step(case.layer), height, whole=count):
        first, last = _input_rows(case.layer, begin, end)
        rows, width, in_stride = case.input.pixels.shape
        yield f"    provide(input_{number}, source_{number}, {width * in_stride}, {rows}, {first}, {last});\n"
        call = f"run_{number}({begin}, {end});"
        yield f"    start();\n    {call}\n    stop({number});\n" if count else f"    {call}\n"
    yield f"    compare({number}, output_{number}, wanted_{number}, sizeof wanted_{number});\n}}\n"


def _ranges(case: VariantCase, step: int, height: int, *, whole: bool) -> Iterable[tuple[int, int]]:
    """In order, from multiples of the step; some in one piece, which depends on the case alone."""
    size = height if whole or case.expected.size % 3 == 0 else step * (1 + case.expected.size % 2)
    return ((begin, min(begin + size, height)) for begin in range(0, height, size))


def _input_rows(layer: Layer, begin: int, end: int) -> tuple[int, int]:
    assert isinstance(layer.params, Conv2D | DepthwiseConv2D)
    window = layer.params.window
    first = begin * window.stride_h - window.pad_top
    reach = (end - 1) * window.stride_h + (window.kernel_h - 1) * window.dilation_h + 1
    return first, reach - window.pad_top


def _array(c_type: str, name: str, values: npt.NDArray[Any]) -> str:
    body = ",".join(str(value) for value in values.reshape(-1).tolist())
    return f"static {c_type} {name}[] = {{{body}}};\n"


def _view(name: str, buffer: Buffer) -> str:
    height, width, stride = buffer.pixels.shape
    return f"{{{name}, {height}, {width}, {buffer.channels}, {stride}}}"


def _initialiser(value: object, names: Mapping[str, str]) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f".{key} = {_initialiser(item, names)}" for key, item in value.items()) + "}"
    return names[value.array] if isinstance(value, Reference) else str(value)
