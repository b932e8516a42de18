"""What pruning reached: sparsity per layer, a picture of a layer's mask."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from disco_pruning.masks import (
    communication_sparsity,
    group_slices,
    off_diagonal,
    pruned_sub_rows,
    sub_row_kernels,
)
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from torch import Tensor

    from disco_pruning.planning import MixingLayer, Plan


@dataclass(frozen=True)
class LayerReport:
    """One layer, or the whole network; everything counted on the weights.

    Attributes:
        name: Of the layer; "network" for all together.
        sub_rows: Off-diagonal sub-rows: channels that a node would have to receive.
        pruned: How many of them are zero.
        s_comm: Communication sparsity, `pruned / sub_rows`.
        s_wt: Weights in pruned sub-rows over all weights of the layer.
        s_comp: The same in multiply-accumulates; of a layer equal to `s_wt`.
        macs: Multiply-accumulates of one inference, dense.
    """

    name: str
    sub_rows: int
    pruned: int
    s_comm: float
    s_wt: float
    s_comp: float
    macs: int


def report(plan: Plan) -> tuple[LayerReport, ...]:
    """Every mixing layer in order of execution, then the network as a whole.

    The network's `s_comm` is over the layers that can be pruned, its `s_wt` and `s_comp` over all mixing layers.
    """
    layers = [_of_layer(layer) for layer in plan.layers]
    weights = [layer.weight.numel() for layer in plan.layers]
    pruned, sub_rows = sum(row.pruned for row in layers), sum(row.sub_rows for row in layers)
    macs = sum(row.macs for row in layers)
    network = LayerReport(
        "network",
        sub_rows,
        pruned,
        pruned / sub_rows if sub_rows else 1.0,
        sum(row.s_wt * count for row, count in zip(layers, weights, strict=True)) / max(1, sum(weights)),
        sum(row.s_comp * row.macs for row in layers) / max(1, macs),
        macs,
    )
    return (*layers, network)


def format_report(rows: tuple[LayerReport, ...], accuracy: float | None = None) -> str:
    """`rows` as a text table, with the accuracy (0 to 1) of the network in the last line if given."""
    width = max(len(row.name) for row in rows)
    lines = [f"{'layer':{width}}  sub-rows   pruned  S_comm    S_wt  S_comp          MACs"]
    lines += [
        f"{row.name:{width}}  {row.sub_rows:8}  {row.pruned:7}  {_percent(row):>6}  {row.s_wt:6.1%}  {row.s_comp:6.1%}"
        f"  {row.macs:12,}"
        for row in rows
    ]
    if accuracy is not None:
        lines.append(f"accuracy {accuracy:.1%}")
    return "\n".join(lines)


def _percent(row: LayerReport) -> str:
    return f"{row.s_comm:.1%}" if row.sub_rows else "-"


def mask_matrix(layer: MixingLayer) -> Tensor:
    """[out, in] 0 where the weights are zero, 1 off the diagonal, 2 where input and output are on one node.

    Channels are sorted by node, as in Figure 2c of the paper; a replicated input counts as on the same node.
    """
    outs, width = layer.weight.shape[:2]
    value = torch.zeros(outs, width * layer.groups, dtype=torch.int64)
    alive = layer.weight.detach().cpu().flatten(2).ne(0).any(2) if layer.weight.dim() > 2 else layer.weight.cpu() != 0
    out_owners = torch.tensor(layer.out_owners)
    in_owners = torch.tensor(layer.in_owners or [-1] * value.shape[1])
    here = (in_owners[None, :] == out_owners[:, None]) | (in_owners == -1)[None, :]
    for outputs, inputs in group_slices(layer):
        value[outputs, inputs] = alive[outputs] * (1 + here[outputs, inputs].long())
    return value[torch.argsort(out_owners, stable=True)][:, torch.argsort(in_owners, stable=True)]


def plot_mask(layer: MixingLayer, path: str | Path) -> None:
    """Draw the mask matrix of `layer` (the paper's Figure 2c) into a picture file, by its ending .png, .svg or .pdf.

    Raises:
        DiscoError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.colors import ListedColormap
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DiscoError("a picture of a mask needs matplotlib: pip install 'disco-edge[plot]'") from error
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.subplots()
    colours = ListedColormap(["white", "tab:orange", "tab:blue"])
    axes.imshow(mask_matrix(layer).numpy(), cmap=colours, vmin=0, vmax=2, interpolation="nearest", aspect="auto")
    for owners, line in ((layer.in_owners, axes.axvline), (layer.out_owners, axes.axhline)):
        for edge in _edges(owners):
            line(edge - 0.5, color="black", linewidth=0.5)
    axes.set(
        xlabel="input channel, by node",
        ylabel="output channel, by node",
        title=f"{layer.name}: S_comm {communication_sparsity(layer):.1%}\n"
        "blue: own channels, orange: received, white: pruned",
    )
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise DiscoError(f"the picture {path} cannot be written ({error}): use a name that ends in .png") from error


def _edges(owners: tuple[int, ...] | None) -> list[int]:
    """Where, in channels sorted by node, the next node begins."""
    ordered = sorted(owners or ())
    return [place for place in range(1, len(ordered)) if ordered[place] != ordered[place - 1]]


def _of_layer(layer: MixingLayer) -> LayerReport:
    pruned = pruned_sub_rows(layer)
    total, count = int(off_diagonal(layer).sum()), int(pruned.sum())
    s_wt = float(sub_row_kernels(layer)[pruned].sum()) / layer.weight.shape[:2].numel()
    return LayerReport(layer.name, total, count, count / total if total else 1.0, s_wt, s_wt, layer.macs)
