"""What a kernel variant is: when it applies, how it packs its constants, what it needs and costs, and which C it is.

A variant is a C function in runtime/src/variants and a `Variant` beside it. The generated code calls the function with
constant arguments, so that the compiler specialises it for the layer:

    static inline void FUNCTION(const STRUCTURE *op, const disco_input_t *in, const disco_output_t *out, void *scratch,
                                uint16_t row_begin, uint16_t row_end)

`in` is an array of the op's inputs. The rows of an op are computed in order, beginning with row 0, in ranges that begin
at multiples of `row_step`; only the input rows that those output rows need may be read. Within a range too rows are
computed in order, `rows_at_once`, and no input row above `first_unread` is read any more: the output may lie over input
rows that have been read. ADD, MUL and RELU read a value before they write its result: the output may be an input.
`scratch` is 16-byte aligned, belongs to the op from its first row to its last, and holds anything at row 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from disco_firmware.kernel_params import ActivationRange, KernelParams, View, Window


@dataclass(frozen=True, eq=False)
class Layer:
    """One op of one node, with everything a variant may decide from."""

    params: KernelParams
    inputs: tuple[View, ...]
    output: View
    most_rows: int | None = None
    """Of the output that may be computed together, as rows come from or go to other nodes; None: any number. Variants
    that can choose keep to it, the others are not taken where their `row_step` is larger.
    """

    def blocks_together(self, rows: int = 1) -> int:
        """How many blocks of `rows` output rows may be computed together, at least one; the last may have fewer."""
        blocks = -(-self.output.height // rows)
        return blocks if self.most_rows is None else max(1, min(blocks, self.most_rows // rows))

    def delay(self, instructions: int, rows: int) -> float:
        """What to keep small: `instructions` and, where rows stream, again the part of them until the first `rows` are
        there, as links and other nodes have nothing to do meanwhile.
        """
        first = 0.0 if self.most_rows is None else min(1.0, rows / self.output.height)
        return instructions * (1 + first)


@dataclass(frozen=True, eq=False)
class ConstantArray:
    """An array in flash, in the order of the inner loop."""

    name: str
    """Unique within the op; a field of the structure refers to it by `Reference`."""
    c_type: str
    values: npt.NDArray[Any]
    """Of the dtype that belongs to `c_type`; written out in C order."""
    comment: str
    alignment: int = 4

    @property
    def bytes(self) -> int:
        """Size in flash."""
        return self.values.nbytes


@dataclass(frozen=True)
class Reference:
    """The value of a field that points to a constant array of the op."""

    array: str


@dataclass(frozen=True, eq=False)
class Constants:
    """What the generated code holds for an op."""

    arrays: tuple[ConstantArray, ...]
    fields: Mapping[str, object]
    """Of the parameter structure: int, Reference, None (NULL), or a nested mapping."""

    @property
    def bytes(self) -> int:
        """Flash taken by the arrays."""
        return sum(array.bytes for array in self.arrays)


class Variant(ABC):
    """One way to compute one kind of op."""

    name: ClassVar[str]
    """As shown in tables, e.g. "direct, int16 weights"."""
    header: ClassVar[str]
    """In runtime/src, e.g. "variants/conv2d_dsp.h"."""
    function: ClassVar[str]
    structure: ClassVar[str]
    instruction_set: ClassVar[str]
    """The least of disco_targets.board.INSTRUCTION_SETS that it runs on."""
    params: ClassVar[type]
    """The class of kernel_params that it computes."""
    instructions_per_mac: ClassVar[float | None] = None
    """Of the innermost loop's body alone, loads included: the kernel's own limit. None where there is no such loop."""

    spends_memory: ClassVar[bool] = False
    """On fewer multiplications: larger weights, or as much scratch memory to unpack them. Not for `--optimize size`."""

    @abstractmethod
    def fits(self, layer: Layer) -> bool:
        """Whether it computes this layer exactly; `layer.params` is of `params`."""

    @abstractmethod
    def constants(self, layer: Layer) -> Constants:
        """The packed constants."""

    def scratch_bytes(self, layer: Layer) -> int:  # noqa: ARG002
        """RAM beside input and output while the op runs."""
        return 0

    def row_step(self, layer: Layer) -> int:  # noqa: ARG002
        """Output rows computed together."""
        return 1

    def rows_at_once(self, layer: Layer) -> int:
        """Output rows that are computed in any order within a range, which begins at a multiple of them."""
        return self.row_step(layer)

    def first_unread(self, layer: Layer, begin: int, end: int) -> int:  # noqa: ARG002
        """The first input row that is read after the first value of output rows [begin, end), `rows_at_once` or the
        last ones, has been written. Only of ops with a window; below 0 and beyond the input where padding is.
        """
        return first_row(layer.params.window, begin)  # type: ignore[union-attr]

    def by_channels(self, layer: Layer) -> bool:  # noqa: ARG002
        """Whether of `rows_at_once` rows some channels after others are computed, all that is read for them before
        they are written, and nothing of them is read for others: so that output channels may lie over the same input
        channels of rows that are not read any more.
        """
        return False

    @abstractmethod
    def instructions(self, layer: Layer) -> int:
        """Predicted count for the whole op."""

    @abstractmethod
    def code_bytes(self, layer: Layer) -> int:
        """Upper bound of the size of the specialised code, for arm-none-eabi-gcc 12.2 -O3.

        The most comes of layers with few rounds, which the compiler unrolls whole.
        """


def output_fields(zero_point: int, activation: ActivationRange) -> dict[str, object]:
    """The fields, called alike in every structure, that say what an output is moved and clamped to."""
    return {
        "output_zero_point": zero_point,
        "activation_min": activation.minimum,
        "activation_max": activation.maximum,
    }


def first_row(window: Window, row: int) -> int:
    """The first input row of the window of output row `row`; below 0 where padding is."""
    return row * window.stride_h - window.pad_top


def padded(values: npt.NDArray[Any], axis: int, multiple: int) -> npt.NDArray[Any]:
    """`values` with zeros appended along `axis` up to a multiple."""
    missing = -values.shape[axis] % multiple
    widths = [(0, missing if place == axis % values.ndim else 0) for place in range(values.ndim)]
    return np.pad(values, widths)
