"""Random layers, and a C program that computes each twice: output and input apart, and as near as they may lie.

Both runs are the product's own code (c_kernels.KernelWriter); that the first one is right is for other tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

from disco_converter.c_kernels import KernelWriter
from disco_converter.kernel_choice import Kernel
from disco_converter.overlap import overlap_of
from disco_firmware import kernel_params as k
from disco_firmware import quantisation as q
from disco_firmware.variants import portable
from disco_firmware.variants.base import Layer, Variant
from helpers.variant_layers import with_any_most_rows

PORTABLE = {
    k.Conv2D: "conv2d",
    k.DepthwiseConv2D: "depthwise_conv2d",
    k.AveragePool2D: "average_pool2d",
    k.MaxPool2D: "max_pool2d",
    k.Add: "add",
    k.Mul: "mul",
    k.Relu: "relu",
}
"""Their functions are disco_NAME_s8."""
_GUARD = 64
_MAIN = """
#include <stdio.h>
#include <string.h>
#include "disco/kernels.h"

static int8_t arena[ARENA] __attribute__((aligned(16)));
static int8_t expected[ARENA];

static void provide(unsigned long offset, const int8_t *data, unsigned long size) {
    memset(arena, 0x5A, sizeof arena);
    memcpy(arena + offset, data, size);
}

static int differs(int number, const int8_t *got, unsigned long pixels, unsigned long stride, unsigned long channels) {
    for (unsigned long i = 0; i < pixels * stride; i++) {
        if (i % stride < channels && got[i] != expected[i]) {
            printf("case %d: byte %lu is %d, not %d\\n", number, i, got[i], expected[i]);
            return 1;
        }
    }
    return 0;
}
"""


@dataclass(frozen=True, eq=False)
class OverlapCase:
    """A layer, its kernel, and how many bytes before its first input the output is to begin."""

    layer: Layer
    variant: Variant | None
    before: int
    cuts: tuple[int, ...]
    """Rows at which the calls begin and end."""


def nearest(layer: Layer, variant: Variant | None) -> tuple[int, ...]:
    """How many bytes before its input the output may begin at least: of both kinds, if there are two."""
    if isinstance(layer.params, (k.Add, k.Mul, k.Relu)):
        return (0,)
    overlap = overlap_of(layer, variant)
    if overlap is None:
        return ()
    return (overlap.distance,) if overlap.exactly is None else (overlap.distance, overlap.exactly)


def random_layer(rng: np.random.Generator) -> Layer:
    """Windows of all kinds, gaps between pixels, an even or odd number of channels; sometimes ADD, MUL and RELU."""
    kind = rng.choice(["conv", "conv", "conv", "depthwise", "depthwise", "pool", "by value"])
    if kind == "by value":
        return _by_value(rng)
    size, stride = int(rng.choice([1, 2, 3, 3])), int(rng.choice([1, 1, 2]))
    dilation = int(rng.choice([1, 1, 1, 2])) if kind != "pool" else 1
    pad = int(rng.integers(0, size))
    reach = (size - 1) * dilation + 1
    height, width = (int(v) for v in rng.integers(reach, 22, 2))
    inputs = int(rng.choice([4, 8, 16, rng.integers(1, 20)]))
    multiplier = int(rng.choice([1, 1, 1, 2])) if kind == "depthwise" else 1
    outputs = inputs * multiplier if kind != "conv" else int(rng.integers(1, 20))
    window = k.Window(size, size, stride, stride, dilation, dilation, pad, pad)
    plane = [(length + 2 * pad - reach) // stride + 1 for length in (height, width)]
    gaps = rng.integers(0, 3, 2) * (rng.random() < 0.4)
    views = k.View(height, width, inputs, inputs + int(gaps[0])), k.View(*plane, outputs, outputs + int(gaps[1]))
    layer = Layer(_params(rng, kind, window, inputs, outputs, multiplier), (views[0],), views[1])
    return with_any_most_rows(layer, rng)


def _params(rng: Any, kind: str, window: k.Window, inputs: int, outputs: int, multiplier: int) -> k.KernelParams:
    if kind == "pool":
        return rng.choice([k.AveragePool2D, k.MaxPool2D])(window, k.ActivationRange(-128, 127))
    area = window.kernel_h * window.kernel_w
    shape = (outputs, window.kernel_h, window.kernel_w, inputs)
    if kind == "depthwise":
        shape = (window.kernel_h, window.kernel_w, outputs)
    weights = rng.integers(-127, 128, shape).astype(np.int8)
    bias = rng.integers(-9999, 9999, outputs).astype(np.int32)
    spread = 90.0 * np.sqrt(area * (inputs if kind == "conv" else 1))
    requantise = q.convolution_requantisation(1.0, [1.0] * outputs, float(spread), int(rng.integers(-128, 20)), "NONE")
    zero_point = int(rng.integers(-128, 20))
    if kind == "conv":
        return k.Conv2D(window, weights, bias, zero_point, requantise)
    return k.DepthwiseConv2D(window, weights, bias, multiplier, zero_point, requantise)


def _by_value(rng: Any) -> Layer:
    channels = int(rng.integers(1, 20))
    view = k.View(*(int(v) for v in rng.integers(1, 12, 2)), channels, channels + int(rng.integers(0, 3)))
    other = k.View(view.height, view.width, channels, channels + int(rng.integers(0, 3)))
    pair = (0.11, 3)
    if rng.random() < 0.3:
        return Layer(q.relu_parameters("RELU6", pair, (0.07, -20)), (view,), view)
    params: k.KernelParams = q.mul_parameters(pair, (0.05, 7), (0.6, -9), "NONE")
    if rng.random() < 0.6:
        params = q.add_parameters(pair, (0.05, 7), (0.15, -9), "NONE")
    return Layer(params, (view, other), view)


def program(cases: Sequence[OverlapCase], seed: int) -> str:
    """Exits with 1 after naming the cases that differ."""
    rng = np.random.default_rng(seed)
    writer = KernelWriter()
    parts, largest = [], 0
    for number, case in enumerate(cases):
        text, size = _case(number, case, writer, rng)
        parts.append(text)
        largest = max(largest, size)
    headers = "".join(f'#include "{header}"\n' for header in sorted(writer.headers))
    arrays = "".join(f"static const {a.declaration} = {{\n{a.body}\n}};\n" for a in writer.arrays)
    parameters = "".join(
        f"static const {p.declaration} = {p.initialiser};\n"
        for p in writer.parameters
        if not p.declaration.startswith("disco_window_t")
    )
    variants = {case.variant.function: case.variant for case in cases if case.variant is not None}
    general = "".join(_general(variant) for variant in variants.values())  # specialised, they take long to compile
    functions = "".join(
        f"static void {f.name}(uint16_t row_begin, uint16_t row_end) {{\n"
        f"    const disco_input_t in[] = {{{', '.join(f.inputs)}}};\n    const disco_output_t out = {f.output};\n"
        f"    general_{f.call}\n}}\n"
        for f in writer.functions
    )
    calls = "".join(f"    failed |= case_{number}();\n" for number in range(len(cases)))
    main = f"int main(void) {{\n    int failed = 0;\n{calls}    return failed;\n}}\n"
    return "\n".join(
        [_MAIN.replace("ARENA", str(largest)), headers, general, arrays, parameters, functions, *parts, main]
    )


def _general(variant: Variant) -> str:
    return (
        f"static __attribute__((noinline)) void general_{variant.function}(const {variant.structure} *op, "
        "const disco_input_t *in, const disco_output_t *out, void *scratch, uint16_t begin, uint16_t end) {\n"
        f"    {variant.function}(op, in, out, scratch, begin, end);\n}}\n"
    )


def _case(number: int, case: OverlapCase, writer: KernelWriter, rng: Any) -> tuple[str, int]:
    """The function that runs it, and the arena it needs."""
    layer = case.layer
    sizes = [view.height * view.width * view.stride for view in (*layer.inputs, layer.output)]
    apart, end = [], _GUARD
    for size in sizes:
        apart.append(end)
        end = _up(end + size + _GUARD)
    near = [*apart[:-1], apart[0] - case.before]
    moved = max(0, _up(-near[-1]))
    near = [offset + moved for offset in near]
    scratch = end = _up(end + moved + _GUARD)
    end += (case.variant.scratch_bytes(layer) if case.variant else 0) + _GUARD
    inputs = [rng.integers(-128, 128, size).tolist() for size in sizes[:-1]]
    lines = [f"static const int8_t data_{number}_{i}[] = {{{_text(data)}}};" for i, data in enumerate(inputs)]
    lines.append(f"static int case_{number}(void) {{")
    for name, offsets in (("apart", apart), ("near", near)):
        lines.append(f"    provide({offsets[0]}, data_{number}_0, sizeof data_{number}_0);")
        others = range(1, len(inputs))
        lines += [f"    memcpy(arena + {offsets[i]}, data_{number}_{i}, sizeof data_{number}_{i});" for i in others]
        call = _call(f"{name}_{number}", case, writer, offsets, scratch)
        lines += [f"    {call.format(begin, stop)}" for begin, stop in pairwise(case.cuts)]
        if name == "apart":
            lines.append(f"    memcpy(expected, arena + {offsets[-1]}, {sizes[-1]});")
    view = layer.output
    lines.append(
        f"    return differs({number}, arena + {near[-1]}, {view.height * view.width}, {view.stride}, {view.channels});"
    )
    return "\n".join([*lines, "}", ""]), end


def _call(name: str, case: OverlapCase, writer: KernelWriter, offsets: Sequence[int], scratch: int) -> str:
    """With {} for the first row and the one behind the last."""
    lowered: Any = SimpleNamespace(op=SimpleNamespace(name=name, kind=""))
    layer, variant = case.layer, case.variant
    constants = portable.constants(layer.params) if variant is None else variant.constants(layer)
    kernel = Kernel(layer, variant, constants, 0, 1, 0, 0)
    written = writer.write(lowered, kernel, tuple(offsets), scratch)
    if variant is not None:
        return f"{written.run}({{}}, {{}});"
    views = [
        f"&(const disco_{kind}_t){{{{arena + {offset}, {v.height}, {v.width}, {v.channels}, {v.stride}}}}}"
        for kind, offset, v in zip(
            ["input"] * len(layer.inputs) + ["output"], offsets, (*layer.inputs, layer.output), strict=True
        )
    ]
    return f"disco_{PORTABLE[type(layer.params)]}_s8({written.params}, {', '.join(views)}, {{}}, {{}});"


def _text(values: Sequence[int]) -> str:
    return ", ".join(str(value) for value in values)


def _up(value: int) -> int:
    return -(-value // 16) * 16
