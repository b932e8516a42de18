"""The golden: TFLite's reference kernels (BUILTIN_REF), the same arithmetic as the C runtime's, bit for bit.

XNNPACK (and TFLite's optimised kernels where it has none) differs from them by 1 from the first convolution on. It is
the golden of nodes that compute with it, and of no others: in the same release of ai-edge-litert, on the same kind of
processor.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from disco_targets.errors import DiscoError

Int8Array = npt.NDArray[np.int8]
REFERENCE, XNNPACK = "reference", "xnnpack"
MODES = (REFERENCE, XNNPACK)
"""Which kernels compute."""
_STDERR = 2
_NOTE = re.compile(rb"INFO: [^\n]*\n")
_REDIRECTING = threading.Lock()
"""The descriptor is the process's."""


class TfliteModel:
    """One .tflite file in TFLite. Inputs and outputs are int8, in the file's order."""

    def __init__(
        self, content: bytes, where: str = "model", *, mode: str = REFERENCE, threads: int = 1, observe: bool = False
    ) -> None:
        """Loads the file.

        Args:
            content: The file.
            where: What it is called in messages.
            mode: One of MODES.
            threads: Of the kernels that can use several.
            observe: Keep the output of every op, for `tensor`.

        Raises:
            DiscoError: TFLite does not take the file.
        """
        self._interpreter = _interpreter(content, where, mode, threads)
        self._inputs = [int(detail["index"]) for detail in self._interpreter.get_input_details()]
        self._outputs = [int(detail["index"]) for detail in self._interpreter.get_output_details()]
        self._indices = {d["name"]: int(d["index"]) for d in self._interpreter.get_tensor_details()}
        if observe:
            # Only a model output is safe to read: TFLite 2.14 lets ADD, RESHAPE and SOFTMAX write over their inputs,
            # even with experimental_preserve_all_tensors.
            written = [int(i) for op in self._interpreter._get_ops_details() for i in op["outputs"]]  # noqa: SLF001
            everything = dict.fromkeys([*self._outputs, *written])
            self._interpreter = _interpreter(with_outputs(content, list(everything)), where, mode, threads)

    def run(self, inputs: Sequence[Int8Array]) -> list[Int8Array]:
        """Outputs for one inference; shapes with the batch of 1."""
        for index, value in zip(self._inputs, inputs, strict=True):
            self._interpreter.set_tensor(index, value)
        self._interpreter.invoke()
        return [self._interpreter.get_tensor(index) for index in self._outputs]

    def invoke(self) -> None:
        """Computes the outputs from what the inputs hold."""
        self._interpreter.invoke()

    def input_view(self, place: int) -> Int8Array:
        """Input `place` itself, to be written. Nothing can be computed while it is held."""
        view: Int8Array = self._interpreter.tensor(self._inputs[place])()
        return view

    def output_view(self, place: int) -> Int8Array:
        """Output `place` of the last run itself. Nothing can be computed while it is held."""
        view: Int8Array = self._interpreter.tensor(self._outputs[place])()
        return view

    def tensor(self, index: int) -> Int8Array:
        """Activation `index` (as numbered in the file) of the last run; needs `observe`."""
        value: Int8Array = self._interpreter.get_tensor(index)
        return value

    def tensor_index(self, name: str) -> int:
        """Index of the tensor called `name` (KeyError when there is none)."""
        return self._indices[name]


class ReferenceModel(TfliteModel):
    """One .tflite file in TFLite's reference kernels."""

    def __init__(self, content: bytes, where: str = "model", *, observe: bool = False) -> None:
        """As for TfliteModel."""
        super().__init__(content, where, observe=observe)


def with_outputs(content: bytes, outputs: Sequence[int]) -> bytes:
    """The same .tflite file with other tensors as outputs of its (only) subgraph.

    A FlatBuffers offset points forward, so a new vector at the end of the file can take the place of the old one.
    """
    data = bytearray(content)
    data += b"\0" * (-len(data) % 4)
    subgraphs = _follow(data, _field(data, _follow(data, 0), 2))
    subgraph = _follow(data, subgraphs + 4)
    field = _field(data, subgraph, 2)
    struct.pack_into("<I", data, field, len(data) - field)
    return bytes(data + struct.pack(f"<I{len(outputs)}i", len(outputs), *outputs))


def _follow(data: bytearray, position: int) -> int:
    return position + int(struct.unpack_from("<I", data, position)[0])


def _field(data: bytearray, table: int, number: int) -> int:
    """Position of field `number` of a FlatBuffers table."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    return table + int(struct.unpack_from("<H", data, vtable + 4 + 2 * number)[0])


def _interpreter(content: bytes, where: str, mode: str, threads: int) -> Any:
    module = _runtime(mode)
    kinds = {REFERENCE: module.OpResolverType.BUILTIN_REF, XNNPACK: module.OpResolverType.AUTO}
    try:
        with _without_notes() if mode == XNNPACK else contextlib.nullcontext():
            interpreter = module.Interpreter(
                model_content=content, experimental_op_resolver_type=kinds[mode], num_threads=threads
            )
            interpreter.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise DiscoError(
            f"TFLite does not run {where}: {' '.join(str(error).split())}: make the model again"
        ) from error
    return interpreter


@contextlib.contextmanager
def _without_notes() -> Iterator[None]:
    """Keeps TFLite's notes (INFO: Created TensorFlow Lite XNNPACK delegate) off standard error, and nothing else.

    Its C++ code writes them to the descriptor, and the packages have no switch for it.
    """
    with _REDIRECTING, contextlib.ExitStack() as stack:
        try:
            kept = os.dup(_STDERR)
        except OSError:  # it is closed
            yield
            return
        stack.callback(os.close, kept)
        caught = stack.enter_context(os.fdopen(os.memfd_create("stderr"), "w+b"))
        os.dup2(caught.fileno(), _STDERR)
        try:
            yield
        finally:
            os.dup2(kept, _STDERR)
            caught.seek(0)
            with os.fdopen(kept, "wb", closefd=False) as stderr:
                stderr.write(_NOTE.sub(b"", caught.read()))


def _runtime(mode: str) -> Any:
    """The package whose kernels are meant: tflite-runtime has XNNPACK for float operators only."""
    names = ["tflite_runtime", "ai_edge_litert"] if mode == REFERENCE else ["ai_edge_litert"]
    for name in names:
        with contextlib.suppress(ImportError):
            return import_module(f"{name}.interpreter")
    package = names[-1].replace("_", "-")
    raise DiscoError(f"{mode} kernels need the package {package}: pip install {package}")
