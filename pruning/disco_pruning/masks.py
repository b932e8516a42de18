"""Sub-row masks: which input channels the outputs of another node may read.

The unit of DISCO pruning (Qin et al., WACV 2024) is the off-diagonal sub-row: the weights that
connect one input channel to the outputs owned by one *other* node. Pruning it means that this
channel is not sent to that node. Sub-rows on the diagonal, where input and outputs are on one node,
are never pruned.

A table of sub-rows is [in, nodes]: entry (i, k) stands for the weights from input i to the outputs of node k.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from disco_pruning.labels import REPLICATED
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from disco_pruning.planning import MixingLayer


class SubRowMask(nn.Module):
    """Parametrisation of a weight that holds pruned sub-rows at zero through training.

    The optimiser sees the unmasked weight, whose pruned entries get no gradient; the layer and the
    exporter see exact zeros.
    """

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, weight: Tensor) -> Tensor:
        """The weight with every pruned entry replaced by +0.0."""
        # Not a product: that would leave negative zeros, and NaN where a pruned weight overflowed.
        return torch.where(self.mask, weight, weight.new_zeros(()))


def sub_row_norms(layer: MixingLayer) -> Tensor:
    """[in, nodes] L1 norm of every sub-row of `layer`: the score of the paper."""
    magnitude = layer.weight.detach().abs()
    return _per_sub_row(layer, magnitude.flatten(2).sum(2) if magnitude.dim() > 2 else magnitude)


def sub_row_kernels(layer: MixingLayer) -> Tensor:
    """[in, nodes] the number of kernels of every sub-row: the outputs of the node that read this input."""
    parameter = _parameter(layer)
    return _per_sub_row(layer, torch.ones(parameter.shape[:2], device=parameter.device))


def off_diagonal(layer: MixingLayer) -> Tensor:
    """[in, nodes] bool: the sub-rows that need the link. All False where the input is replicated."""
    connected = sub_row_kernels(layer) > 0
    if layer.in_owners is None:
        return torch.zeros_like(connected)
    owners = torch.tensor(layer.in_owners, device=connected.device)[:, None]
    return connected & (owners != torch.arange(connected.shape[1], device=connected.device)) & (owners != REPLICATED)


def kept_sub_rows(layer: MixingLayer) -> Tensor:
    """[in, nodes] bool: what the mask of `layer` leaves, all of it if it has none."""
    current = _parametrisation(layer.module, layer.parameter)
    if current is None:
        return torch.ones_like(off_diagonal(layer))
    mask = current.mask.flatten(1) if current.mask.dim() > 2 else current.mask
    return (_per_sub_row(layer, mask.float()) > 0) | ~off_diagonal(layer)


def set_mask(layer: MixingLayer, keep: Tensor) -> None:
    """Hold the sub-rows of `layer` that `keep` [in, nodes] denies at zero, from now on."""
    parameter = _parameter(layer)
    outs, width = parameter.shape[:2]
    table = keep.to(parameter.device).T[list(layer.out_owners)]  # [out, in]
    mask = torch.cat([table[rows, columns] for rows, columns in group_slices(layer)])
    mask = mask.reshape(outs, width, *[1] * (parameter.dim() - 2))
    current = _parametrisation(layer.module, layer.parameter)
    if current is None:
        _register(layer.module, layer.parameter, SubRowMask(mask))
    else:
        current.mask.copy_(mask)


def _register(module: nn.Module, name: str, mask: SubRowMask) -> None:
    """Put `mask` in front of a parameter that optimisers and data-parallel wrappers may hold already."""
    parameter = getattr(module, name)
    # Registering overwrites the parameter's storage, which would detach the hooks of DistributedDataParallel. So it is
    # done to a stand-in.
    setattr(module, name, nn.Parameter(parameter.detach(), requires_grad=parameter.requires_grad))
    parametrize.register_parametrization(module, name, mask)
    getattr(module, "parametrizations")[name].original = parameter  # noqa: B009 - set at run time


def bake(model: nn.Module) -> nn.Module:
    """Turn every mask of `model` into plain weights with exact zeros, in place; returns `model`.

    Raises:
        DiscoError: A masked layer has other parametrisations too.
    """
    for name, module in model.named_modules():
        if parametrize.is_parametrized(module):
            _bake_module(name, module)
    return model


def _bake_module(name: str, module: nn.Module) -> None:
    parametrisations = getattr(module, "parametrizations")  # noqa: B009 - set at run time
    masked = {
        parameter: all(isinstance(entry, SubRowMask) for entry in entries)
        for parameter, entries in parametrisations.items()
    }
    if not any(isinstance(entry, SubRowMask) for entries in parametrisations.values() for entry in entries):
        return
    if not all(masked.values()):
        raise DiscoError(f"layer '{name}' has parametrisations beside its mask: remove them before baking")
    # Not remove_parametrizations: it deletes the property from the class, which a deep
    # copy shares with its original, and so would break the model that goes on training.
    weights = {parameter: getattr(module, parameter).detach().clone() for parameter in masked}
    del module.parametrizations
    module.__class__ = type(module).__bases__[0]
    for parameter, weight in weights.items():
        module.register_parameter(parameter, nn.Parameter(weight))


def pruned_sub_rows(layer: MixingLayer) -> Tensor:
    """[in, nodes] bool: the off-diagonal sub-rows of `layer` whose weights are all zero.

    Counted on the weights, not on the masks. All False where the input is replicated.
    """
    return (sub_row_norms(layer) == 0) & off_diagonal(layer)


def communication_sparsity(layer: MixingLayer) -> float:
    """S_comm: pruned off-diagonal sub-rows over all of them; 1.0 where there are none."""
    total = int(off_diagonal(layer).sum())
    return int(pruned_sub_rows(layer).sum()) / total if total else 1.0


def group_slices(layer: MixingLayer) -> list[tuple[slice, slice]]:
    """(outputs, inputs) of each group of a convolution; all of them where it has one."""
    outs, width = _parameter(layer).shape[:2]
    size = outs // layer.groups
    return [(slice(g * size, (g + 1) * size), slice(g * width, (g + 1) * width)) for g in range(layer.groups)]


def _per_sub_row(layer: MixingLayer, kernels: Tensor) -> Tensor:
    """Sum the values of kernels [out, in / groups] over each sub-row."""
    owners = torch.tensor(layer.out_owners, device=kernels.device)
    table = kernels.new_zeros((kernels.shape[1] * layer.groups, max(layer.out_owners) + 1))
    for outputs, inputs in group_slices(layer):
        table[inputs] = table[inputs].index_add(1, owners[outputs], kernels[outputs].T)
    return table


def _parameter(layer: MixingLayer) -> Tensor:
    """What the optimiser sees: of the shape of the weight, without the work of masking it."""
    if parametrize.is_parametrized(layer.module, layer.parameter):
        original = getattr(layer.module, "parametrizations")[layer.parameter].original  # noqa: B009 - set at run time
        assert isinstance(original, Tensor)
        return original
    return layer.weight


def _parametrisation(module: nn.Module, parameter: str) -> SubRowMask | None:
    if not parametrize.is_parametrized(module, parameter):
        return None
    parametrisations = getattr(module, "parametrizations")[parameter]  # noqa: B009 - set at run time
    return next((entry for entry in parametrisations if isinstance(entry, SubRowMask)), None)
