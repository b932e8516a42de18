"""Sub-row masks: which input channels the outputs of another node may read.

The unit of DISCO pruning (Qin et al., WACV 2024) is the off-diagonal sub-row: the weights that
connect one input channel to the outputs owned by one *other* node. Pruning it means that this
channel is not sent to that node. Sub-rows on the diagonal, where input and outputs are on one node,
are never pruned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from disco_pruning.ownership import MixingLayer, Owners


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


def sub_row_norms(weight: Tensor, out_owners: Owners) -> Tensor:
    """L1 norm of every sub-row.

    Args:
        weight: [out, in, ...] of a convolution or linear layer.
        out_owners: The node of each output channel.

    Returns:
        [in, nodes]: entry (i, k) is the norm of the weights from input i to the outputs of node k.
    """
    magnitude = weight.detach().abs()
    if magnitude.dim() > 2:
        magnitude = magnitude.flatten(2).sum(2)
    nodes = max(out_owners) + 1
    norms = magnitude.new_zeros((weight.shape[1], nodes))
    return norms.index_add_(1, torch.tensor(out_owners), magnitude.T)


def off_diagonal(in_owners: Owners, nodes: int) -> Tensor:
    """[in, nodes] bool: whether input i and node k are apart, so that the link is needed."""
    return torch.tensor(in_owners)[:, None] != torch.arange(nodes)[None, :]


def weight_mask(keep: Tensor, out_owners: Owners, rank: int) -> Tensor:
    """Spread a sub-row mask over a weight.

    Args:
        keep: [in, nodes] bool, False for pruned sub-rows.
        out_owners: The node of each output channel.
        rank: Number of axes of the weight.

    Returns:
        Bool [out, in, 1, ...] that broadcasts over the weight.
    """
    mask = keep[:, list(out_owners)].T
    return mask.reshape(mask.shape + (1,) * (rank - 2))


def set_mask(layer: MixingLayer, keep: Tensor) -> None:
    """Hold the sub-rows of `layer` that `keep` [in, nodes] denies at zero, from now on."""
    mask = weight_mask(keep, layer.out_owners, layer.module.weight.dim())
    current = _parametrisation(layer.module)
    if current is None:
        parametrize.register_parametrization(layer.module, "weight", SubRowMask(mask))
    else:
        current.mask.copy_(mask)


def bake(model: nn.Module) -> nn.Module:
    """Turn every mask of `model` into plain weights with exact zeros, in place; returns `model`.

    Raises:
        DiscoError: A masked layer has other parametrisations too.
    """
    for name, module in model.named_modules():
        if _parametrisation(module) is None:
            continue
        parametrisations = getattr(module, "parametrizations")  # noqa: B009 - set at run time
        if len(parametrisations) > 1 or len(parametrisations["weight"]) > 1:
            raise DiscoError(f"layer '{name}' has parametrisations beside its mask: remove them before baking")
        _replace_by_plain_weight(module)
    return model


def _replace_by_plain_weight(module: nn.Module) -> None:
    # Not remove_parametrizations: it deletes the property `weight` from the class, which a deep
    # copy shares with its original, and so would break the model that goes on training.
    weight = nn.Parameter(getattr(module, "weight").detach().clone())  # noqa: B009
    del module.parametrizations
    module.__class__ = type(module).__bases__[0]
    module.register_parameter("weight", weight)


def pruned_sub_rows(layer: MixingLayer) -> Tensor:
    """[in, nodes] bool: the off-diagonal sub-rows of `layer` whose weights are all zero.

    Counted on the weights, not on the masks. All False where the input is replicated.
    """
    norms = sub_row_norms(layer.module.weight, layer.out_owners)
    if layer.in_owners is None:
        return torch.zeros_like(norms, dtype=torch.bool)
    return (norms == 0) & off_diagonal(layer.in_owners, norms.shape[1])


def communication_sparsity(layer: MixingLayer) -> float:
    """S_comm: pruned off-diagonal sub-rows over all of them; 1.0 for a replicated input."""
    if layer.in_owners is None:
        return 1.0
    total = int(off_diagonal(layer.in_owners, max(layer.out_owners) + 1).sum())
    return int(pruned_sub_rows(layer).sum()) / total if total else 1.0


def _parametrisation(module: nn.Module) -> SubRowMask | None:
    if not parametrize.is_parametrized(module, "weight"):
        return None
    parametrisations = getattr(module, "parametrizations")["weight"]  # noqa: B009 - set at run time
    return next((entry for entry in parametrisations if isinstance(entry, SubRowMask)), None)
