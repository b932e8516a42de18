"""Runs a model once in a process of its own before anything relies on it.

TFLite takes a file as it is: a damaged one can end the whole process, or makes its C++ code write to standard error.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from disco_converter import graph as g
from disco_converter.tflite_reader import read_tflite
from disco_firmware.reference import ReferenceModel
from disco_targets.children import run_child
from disco_targets.errors import DiscoError
from disco_targets.scratch import scratch_folder

_MODEL, _FAILURE = "model.tflite", "failure.txt"


def try_out(content: bytes, where: str) -> None:
    """Runs the .tflite file `content`, called `where` in messages, in TFLite's reference kernels.

    Raises:
        DiscoError: TFLite does not take the file or dies of it, or computes a tensor of another shape than it states.
    """
    with scratch_folder("trial") as work:
        (work / _MODEL).write_bytes(content)
        status = run_child(
            [sys.executable, "-m", "disco_converter.trial", str(work), where],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ).returncode
        if status == 0:
            return
        if (work / _FAILURE).is_file():
            raise DiscoError((work / _FAILURE).read_text())
    raise DiscoError(f"TFLite dies of {where} (status {status}): the file is damaged, make it again")


# --- Everything below runs in the child process. ---


def main(arguments: list[str]) -> int:
    """Tries the model in the work folder given first, called as given second; 0 if it went well."""
    work, where = Path(arguments[0]), arguments[1]
    try:
        _run((work / _MODEL).read_bytes(), where)
    except DiscoError as error:
        (work / _FAILURE).write_text(str(error))
        return error.exit_code
    return 0


def _run(content: bytes, where: str) -> None:
    graph = read_tflite(content, where)
    model = ReferenceModel(content, where, observe=True)
    try:
        model.run([np.zeros(graph.tensors[graph.input].shape, np.int8)])
    except (ValueError, RuntimeError) as error:
        raise DiscoError(
            f"TFLite does not run {where}: {' '.join(str(error).split())}: make the model again"
        ) from error
    for tensor in (graph.tensors[op.output] for op in graph.ops):
        _check_shape(tensor, model.tensor(tensor.index).shape, where)


def _check_shape(tensor: g.Tensor, computed: tuple[int, ...], where: str) -> None:
    if computed != tensor.shape:
        raise DiscoError(
            f"{where}: tensor {tensor.name!r} is stated as {list(tensor.shape)}, but TFLite computes {list(computed)}: "
            "convert the model with a static batch of 1"
        )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
