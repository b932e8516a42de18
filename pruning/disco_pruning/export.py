"""From a trained PyTorch network to a float ONNX file with a static batch of 1."""

from __future__ import annotations

import copy
import logging
import warnings
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from disco_pruning.masks import bake
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPSET = 18  # the lowest that the exporter writes without converting versions


def export_onnx(model: nn.Module, path: str | Path, input_shape: tuple[int, ...]) -> None:
    """Write `model` in inference mode, its masks baked to exact zeros. `model` is not changed.

    Args:
        model: The network, with or without masks.
        path: The `.onnx` file to write; input `input`, output `output`, opset 18.
        input_shape: The input without its batch, e.g. (3, 32, 32).

    Raises:
        DiscoError: The `onnx` or `onnxscript` package is missing.
    """
    try:
        import onnx
    except ImportError as error:
        raise _missing(error) from error
    network = bake(copy.deepcopy(model)).eval()
    example = torch.zeros((1, *input_shape))
    try:
        with _quiet():
            program = torch.onnx.export(
                network,
                (example,),
                dynamo=True,
                opset_version=_OPSET,
                input_names=["input"],
                output_names=["output"],
            )
    except ImportError as error:
        raise _missing(error) from error
    assert program is not None
    proto = program.model_proto
    _strip_notes(proto)
    Path(path).write_bytes(proto.SerializeToString(deterministic=True))
    onnx.checker.check_model(str(path))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter: it reports progress on stdout and warns about its own internals."""
    level = logging.root.manager.disable
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(level)


def _strip_notes(proto: Any) -> None:
    """Remove stack traces and other notes: they name files of the machine that exported."""
    graph = proto.graph
    del proto.metadata_props[:]
    for part in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    for tensor in graph.initializer:
        del tensor.metadata_props[:]
        tensor.doc_string = ""


def _missing(error: ImportError) -> DiscoError:
    return DiscoError(f"exporting ONNX needs the package {error.name or error}: pip install 'disco-edge[prune]'")
