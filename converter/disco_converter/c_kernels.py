"""Writes the constants, parameters and calls of the chosen kernels as C."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from disco_converter.kernel_choice import Kernel
from disco_converter.lowering import LoweredOp
from disco_firmware.c_literals import array_body, comment, identifier, initialiser
from disco_firmware.variants import portable
from disco_firmware.variants.base import ConstantArray, Constants, Reference

_NATURAL_ALIGNMENT = {"int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4, "uint32_t": 4}


@dataclass(frozen=True)
class CArray:
    """A constant array."""

    declaration: str
    comment: str
    body: str
    bytes: int


@dataclass(frozen=True)
class CParameters:
    """One parameter structure, or an array of them."""

    declaration: str
    comment: str
    initialiser: str


@dataclass(frozen=True)
class CFunction:
    """A specialised kernel: the call of a variant with the op's constant arguments."""

    name: str
    comment: str
    inputs: tuple[str, ...]
    """Initialisers of disco_input_t."""
    output: str
    call: str


@dataclass(frozen=True)
class COpKernel:
    """How an op of disco_op_t names its kernel."""

    kind: str
    params: str
    run: str


def constant_array(owner: str, array: ConstantArray) -> CArray:
    """The C of one array; its name begins with the op's."""
    values = np.ascontiguousarray(array.values).reshape(-1)
    aligned = array.alignment > _NATURAL_ALIGNMENT.get(array.c_type, array.alignment)
    attribute = f" __attribute__((aligned({array.alignment})))" if aligned else ""
    declaration = f"{array.c_type} {identifier(owner)}_{array.name}[{values.size}]{attribute}"
    return CArray(declaration, comment(f"{owner}: {array.comment}"), array_body(values.tolist()), values.nbytes)


class KernelWriter:
    """Collects the C of one node's kernels while its ops are written in order."""

    def __init__(self) -> None:
        self.arrays: list[CArray] = []
        self.parameters: list[CParameters] = []
        self.functions: list[CFunction] = []
        self.headers: set[str] = set()

    def write(self, lowered: LoweredOp, kernel: Kernel, offsets: tuple[int, ...], scratch: int | None) -> COpKernel:
        """Args: where in the arena inputs and output (last) begin, and the scratch if there is any."""
        owner = lowered.op.name
        base = portable.kernel(kernel.layer.params)
        self.arrays += [constant_array(owner, array) for array in kernel.constants.arrays]
        if kernel.variant is None:
            params = self._portable_parameters(lowered, base.structure, kernel.constants)
            return COpKernel(base.kind, params, "NULL")
        name = f"{identifier(owner)}_params"
        self._parameters(kernel.variant.structure, name, lowered, _fields(owner, kernel.constants.fields))
        self.headers.add(kernel.variant.header)
        run = self._function(lowered, kernel, offsets, scratch)
        return COpKernel(base.kind, self._window(lowered, kernel), run)

    def _portable_parameters(self, lowered: LoweredOp, structure: str | None, constants: Constants) -> str:
        if structure is None:
            return "NULL"
        name = f"{identifier(lowered.op.name)}_params"
        fields = _fields(lowered.op.name, constants.fields)
        if all(isinstance(value, Mapping) for value in fields.values()):  # one structure for each input
            items = [initialiser(value) for value in fields.values() if isinstance(value, Mapping)]
            self.parameters.append(_declared(structure, f"{name}[{len(items)}]", lowered, f"{{{', '.join(items)}}}"))
            return name
        self._parameters(structure, name, lowered, fields)
        return f"&{name}"

    def _parameters(self, structure: str, name: str, lowered: LoweredOp, fields: dict[str, object]) -> None:
        self.parameters.append(_declared(structure, name, lowered, initialiser(fields)))

    def _window(self, lowered: LoweredOp, kernel: Kernel) -> str:
        """The executor finds in it which rows the kernel needs."""
        window = portable.window_of(kernel.layer.params)
        if window is None:
            return "NULL"
        name = f"{identifier(lowered.op.name)}_window"
        self._parameters("disco_window_t", name, lowered, asdict(window))
        return f"&{name}"

    def _function(self, lowered: LoweredOp, kernel: Kernel, offsets: tuple[int, ...], scratch: int | None) -> str:
        assert kernel.variant is not None
        name = identifier(lowered.op.name)
        views = (*kernel.layer.inputs, kernel.layer.output)
        places = [
            initialiser({"data": f"arena + {offset}", **asdict(view)})
            for offset, view in zip(offsets, views, strict=True)
        ]
        memory = "NULL" if scratch is None else f"arena + {scratch}"
        call = f"{kernel.variant.function}(&{name}_params, in, &out, {memory}, row_begin, row_end);"
        text = comment(f"{lowered.op.name}: {lowered.op.kind}, {kernel.name}")
        self.functions.append(CFunction(f"{name}_run", text, tuple(places[:-1]), places[-1], call))
        return f"{name}_run"


def _declared(structure: str, name: str, lowered: LoweredOp, value: str) -> CParameters:
    return CParameters(f"{structure} {name}", comment(f"{lowered.op.name}: {lowered.op.kind}"), value)


def _fields(owner: str, fields: Mapping[str, object]) -> dict[str, object]:
    return {name: _value(owner, value) for name, value in fields.items()}


def _value(owner: str, value: object) -> object:
    if isinstance(value, Reference):
        return f"{identifier(owner)}_{value.array}"
    if isinstance(value, Mapping):
        return _fields(owner, value)
    return "NULL" if value is None else value
