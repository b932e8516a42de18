"""What a kernel variant is: when it applies, how it packs its constants, what it needs and costs, and which C it is.

A variant is a C function in runtime/src/variants and a `Variant` beside it. The generated code calls the function with
constant arguments, so that the compiler specialises it for the layer:

    static inline void FUNCTION(const STRUCTURE *op, const disco_input_t *in, const disco_output_t *out, void *scratch,
                                uint16_t row_begin, uint16_t row_end)

`in` is an array of the op's inputs. The rows of an op are computed in order, beginning with row 0, in ranges that begin
at multiples of `row_step`; only the input rows that those output rows need may be read. `scratch` is 16-byte aligned,
belongs to the op from its first row to its last, and holds anything at row 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from disco_firmware.kernel_params import KernelParams, View


@dataclass(frozen=True, eq=False)
class Layer:
    """One op of one node, with everything a variant may decide from."""

    params: KernelParams
    inputs: tuple[View, ...]
    output: View


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

    @abstractmethod
    def instructions(self, layer: Layer) -> int:
        """Predicted count for the whole op."""

    @abstractmethod
    def code_bytes(self, layer: Layer) -> int:
        """Estimated size of the specialised code."""


def padded(values: npt.NDArray[Any], axis: int, multiple: int) -> npt.NDArray[Any]:
    """`values` with zeros appended along `axis` up to a multiple."""
    missing = -values.shape[axis] % multiple
    widths = [(0, missing if place == axis % values.ndim else 0) for place in range(values.ndim)]
    return np.pad(values, widths)
