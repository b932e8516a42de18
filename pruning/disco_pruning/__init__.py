"""DISCO pruning in PyTorch: plan a network for several nodes, prune and finetune it, report, export ONNX.

`DiscoPruning`, the callback for Lightning, is in `disco_pruning.lightning`.
"""

from disco_pruning.baselines import from_scratch, independent_branches
from disco_pruning.export import export_onnx
from disco_pruning.layer_table import layer_table
from disco_pruning.masks import bake, communication_sparsity, pruned_sub_rows, sub_row_norms
from disco_pruning.planning import MixingLayer, Plan, plan
from disco_pruning.report import LayerReport, format_report, plot_mask, report
from disco_pruning.rounds import attach_masks, load_checkpoint, network_sparsity, prune, prune_in_rounds
from disco_pruning.selection import RandomScore
from disco_pruning.sparsity_file import load_sparsity

__all__ = [
    "LayerReport",
    "MixingLayer",
    "Plan",
    "RandomScore",
    "attach_masks",
    "bake",
    "communication_sparsity",
    "export_onnx",
    "format_report",
    "from_scratch",
    "independent_branches",
    "layer_table",
    "load_checkpoint",
    "load_sparsity",
    "network_sparsity",
    "plan",
    "plot_mask",
    "prune",
    "prune_in_rounds",
    "pruned_sub_rows",
    "report",
    "sub_row_norms",
]
