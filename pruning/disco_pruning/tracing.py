"""From a network to the graph of its operators, through `torch.export`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx, nn

from disco_pruning.quiet import quiet
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

ExampleInput = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True)
class Trace:
    """The operators of a network in inference mode, for a batch of 1.

    Attributes:
        graph: ATen operators; `meta["val"]` of a node has its shape.
        parameters: Placeholder name to qualified name of a parameter or buffer, as it is without masks.
        applying: The operators that apply trainable parameters to something computed from the inputs.
    """

    graph: fx.Graph
    parameters: dict[str, str]
    applying: frozenset[fx.Node]

    def parameter(self, node: Any) -> str | None:
        """The parameter that an operand is, behind its mask if it has one; None for anything else."""
        while isinstance(node, fx.Node) and node.target is torch.ops.aten.where.self:
            node = node.args[1]
        return self.parameters.get(node.name) if isinstance(node, fx.Node) else None


def trace(model: nn.Module, example_input: ExampleInput) -> Trace:
    """Trace `model`, which is left as it was.

    Args:
        model: The network, on any device, with or without masks.
        example_input: What its forward takes, batch first; only the shape beside the batch matters.

    Raises:
        DiscoError: The network cannot run on this input, or its Python code depends on values.
    """
    inputs = first_sample(example_input)
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    inside: list[str] = []
    with _inference(model), _watched(model, inside), quiet():
        try:
            program = torch.export.export(model, tuple(value.to(device) for value in inputs), strict=False)
        except Exception as error:  # its errors and those of the user's forward have no common type
            raise _untraceable(model, inside[-1] if inside else "", error) from error
    program.graph.eliminate_dead_code()  # such as attention weights that nobody asked for
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    data = _computed_from(program.graph, signature.user_inputs)
    weights = _computed_from(program.graph, signature.inputs_to_parameters) - data
    applying = frozenset(node for node in data if not weights.isdisjoint(node.all_input_nodes))
    return Trace(program.graph, {placeholder: _plain(name) for placeholder, name in names.items()}, applying)


def first_sample(example_input: ExampleInput) -> tuple[Tensor, ...]:
    """The inputs cut down to a batch of 1."""
    inputs: tuple[Any, ...] = tuple(example_input) if isinstance(example_input, tuple | list) else (example_input,)
    other = next((value for value in inputs if not isinstance(value, Tensor)), None)
    if other is not None:
        raise DiscoError(
            f"the example input is or holds a {type(other).__name__}, it must be a torch.Tensor: use "
            "torch.from_numpy(array) or torch.zeros(1, 3, 32, 32)"
        )
    if not inputs or any(value.dim() < 2 for value in inputs):
        raise DiscoError("the example input has no batch axis: give a tensor such as torch.zeros(1, 3, 32, 32)")
    return tuple(value[:1].detach() for value in inputs)


def module_text(node: fx.Node) -> str:
    """The module whose forward called `node`, for messages: 'stages.0' (ResidualBlock)."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return "the network"
    name, kind = stack[-1]
    kind = kind if isinstance(kind, str) else kind.__name__
    return f"'{name}' ({kind.rpartition('.')[2]})" if name else f"the network ({kind.rpartition('.')[2]})"


def _computed_from(graph: fx.Graph, placeholders: Collection[Any]) -> set[fx.Node]:
    """The placeholders, and all that depends on them."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node.name in placeholders or not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def _plain(name: str) -> str:
    """`layer.parametrizations.weight.original` is the parameter `layer.weight`."""
    if name.endswith(".original"):
        name = name.removesuffix(".original").replace("parametrizations.", "", 1)
    return name


@contextmanager
def _inference(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; module by module the mode is restored."""
    modes = {module: module.training for module in model.modules()}
    fast_path = torch.backends.mha.get_fastpath_enabled()
    # The fused path of nn.MultiheadAttention hides its layers from the graph.
    torch.backends.mha.set_fastpath_enabled(False)
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        for module, training in modes.items():
            module.training = training


@contextmanager
def _watched(model: nn.Module, inside: list[str]) -> Iterator[None]:
    """Keep in `inside` the names of the modules whose forward is running, the innermost last."""

    def left(*_: object) -> None:
        inside.pop()

    hooks = []
    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(lambda *_, name=name: inside.append(name)))
        hooks.append(module.register_forward_hook(left))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _untraceable(model: nn.Module, name: str, error: Exception) -> DiscoError:
    kind = type(model.get_submodule(name)).__name__
    where = f"module '{name}' ({kind})" if name else f"the network ({kind})"
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return DiscoError(
        f"{where} cannot be traced: {type(error).__name__}: {reason[:300]}. Check that the example input has the "
        "right shape, and that forward uses no Python branch, loop count or .item() that depends on values of tensors"
    )
