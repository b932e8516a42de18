"""From a trained PyTorch network to a float ONNX file with a static batch of 1."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from disco_planning.shares import PLAN_KEY
from disco_pruning.masks import bake
from disco_pruning.quiet import quiet
from disco_pruning.tracing import first_sample
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from disco_pruning.planning import Plan

_OPSET = 18  # the lowest that the exporter writes without converting versions


def export_onnx(
    model: nn.Module, path: str | Path, example_input: Tensor | tuple[int, ...], plan: Plan | None = None
) -> None:
    """Write `model` in inference mode, its masks baked to exact zeros. `model` is not changed.

    Args:
        model: The network, with or without masks.
        path: The `.onnx` file to write; input `input`, output `output`, opset 18, a static batch of 1.
        example_input: As for `plan`; or the shape without the batch, e.g. (3, 32, 32). The range of the values of real
            inputs goes into the file beside the plan: `disco-export` warns of calibration data that lie far outside.
        plan: Its plan, written into the file's metadata as JSON under `disco.plan`.

    Raises:
        DiscoError: The network cannot be exported, or the `onnx` or `onnxscript` package is missing.
    """
    try:
        import onnx
    except ImportError as error:
        raise _missing(error) from error
    network = bake(copy.deepcopy(model)).cpu().eval()
    example = _example(example_input)
    try:
        with quiet():
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
    except torch.onnx.errors.OnnxExporterError as error:
        raise DiscoError(f"the network cannot be exported to ONNX ({str(error).splitlines()[0]})") from error
    assert program is not None
    proto = program.model_proto
    _strip_notes(proto)
    if plan is not None:
        proto.metadata_props.add(key=PLAN_KEY, value=plan_text(plan, example_input))
    try:
        Path(path).write_bytes(proto.SerializeToString(deterministic=True))
    except OSError as error:
        raise DiscoError(f"the model file {path} cannot be written: {error.strerror}") from error
    onnx.checker.check_model(str(path))


def plan_text(plan: Plan, example_input: Tensor | tuple[int, ...]) -> str:
    """What stands under `disco.plan`: the plan, and the range of `example_input`, null where it is nothing real."""
    limits = [float(limit) for limit in torch.aminmax(example_input)] if isinstance(example_input, Tensor) else [0.0]
    return json.dumps({**plan.metadata(), "input_range": limits if limits[0] < limits[-1] else None}, sort_keys=True)


def _example(example_input: Any) -> Tensor:
    """A batch of 1."""
    if isinstance(example_input, tuple | list) and all(isinstance(size, int) for size in example_input):
        return torch.zeros((1, *example_input))
    return first_sample(example_input)[0].cpu()


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
