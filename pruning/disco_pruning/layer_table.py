"""The layer table of a PyTorch network, read on the meta device: shapes only, no memory for weights or activations."""

from __future__ import annotations

import copy
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from disco_planning.layers import Layer
from disco_targets.errors import DiscoError

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.ConvTranspose2d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d)
_HIDDEN = (nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase, nn.Bilinear, nn.Conv3d, nn.ConvTranspose3d)
"""Modules that hold linear layers where no hook sees them, or have more axes than a table has."""


def layer_table(model: nn.Module, *example_inputs: Tensor) -> tuple[Layer, ...]:
    """One row for each call of a convolution or linear module, in the order of execution.

    The name is the module's qualified name; the second call of the same module is called "name:2". `model` is not
    changed.

    Args:
        model: The network; it runs once, in inference mode, as a copy on the meta device.
        example_inputs: What its forward takes; only shapes and types matter.

    Raises:
        DiscoError: It cannot run without values, holds a module whose layers cannot be seen, or has no layer.
    """
    # Copied to the meta device tensor by tensor: the memo keeps deepcopy from doubling the weights first.
    memo: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        shadow = tensor.detach().to("meta")
        memo[id(tensor)] = nn.Parameter(shadow, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else shadow
    shadow_model = copy.deepcopy(model, memo).eval()
    recorder = _Recorder()
    for name, module in shadow_model.named_modules():
        if isinstance(module, _HIDDEN):
            raise DiscoError(
                f"module '{name}' ({type(module).__name__}) has no row in a layer table: write it with Linear, Conv1d "
                "and Conv2d modules"
            )
        if isinstance(module, (*_CONVOLUTIONS, nn.Linear)):
            module.register_forward_hook(recorder.hook(name))
    try:
        with torch.no_grad(), torch.device("meta"):
            shadow_model(*(example.to("meta") for example in example_inputs))
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        raise DiscoError(
            f"the network cannot run on shapes alone ({error}): check the example input; control flow and "
            "shapes must not depend on values"
        ) from error
    if not recorder.layers:
        raise DiscoError("the network has no convolution or linear module")
    return tuple(recorder.layers)


class _Recorder:
    """Rows as hooks see them."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self._inputs: list[Tensor] = []  # kept alive: an id tells tensors apart only while they live
        self._sources: dict[int, int] = {}
        self._calls: dict[str, int] = {}

    def hook(self, name: str) -> Any:
        def record(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            x = inputs[0]
            source = self._sources.setdefault(id(x), len(self._sources))
            self._inputs.append(x)
            calls = self._calls[name] = self._calls.get(name, 0) + 1
            unique = name if calls == 1 else f"{name}:{calls}"
            make = _linear if isinstance(module, nn.Linear) else _convolution
            self.layers.append(make(module, unique, source, x, output))

        return record


def _convolution(module: Any, name: str, source: int, x: Tensor, y: Tensor) -> Layer:
    batch = x.shape[:1] if x.dim() == len(module.kernel_size) + 2 else ()
    (in_h, in_w), (out_h, out_w) = _pair(x.shape[len(batch) + 1 :]), _pair(y.shape[len(batch) + 1 :])
    positions = in_h * in_w if isinstance(module, _TRANSPOSED) else out_h * out_w
    return Layer(
        name=name,
        in_ch=module.in_channels,
        out_ch=module.out_channels,
        kernel=_pair(module.kernel_size),
        stride=_pair(module.stride),
        in_h=in_h,
        in_w=in_w,
        groups=module.groups,
        macs=positions * module.weight.numel(),
        out_h=out_h,
        out_w=out_w,
        dilation=_pair(module.dilation),
        src=source,
    )


def _linear(module: nn.Linear, name: str, source: int, x: Tensor, y: Tensor) -> Layer:
    del y
    # [batch, features], [batch, tokens, features] or [batch, h, w, features].
    tokens = x.shape[1:-1]
    height, width = _pair(tokens) if len(tokens) <= 2 else (prod(tokens), 1)
    return Layer(
        name=name,
        in_ch=module.in_features,
        out_ch=module.out_features,
        kernel=(1, 1),
        stride=(1, 1),
        in_h=height,
        in_w=width,
        groups=1,
        macs=height * width * module.weight.numel(),
        out_h=height,
        out_w=width,
        dilation=(1, 1),
        src=source,
    )


def _pair(values: Any) -> tuple[int, int]:
    """(height, width) of what has two axes, one (then the width is 1) or none."""
    first, second, *_ = (*(int(value) for value in values), 1, 1)
    return first, second
