"""DISCO pruning in PyTorch: ownership masks, pruning rounds, baking, ONNX export."""

from disco_pruning.export import export_onnx
from disco_pruning.masks import SubRowMask, bake, communication_sparsity, pruned_sub_rows
from disco_pruning.ownership import MixingLayer, contiguous_owners, mixing_layers
from disco_pruning.rounds import PruningPlan, plan_pruning, prune, prune_in_rounds

__all__ = [
    "MixingLayer",
    "PruningPlan",
    "SubRowMask",
    "bake",
    "communication_sparsity",
    "contiguous_owners",
    "export_onnx",
    "mixing_layers",
    "plan_pruning",
    "prune",
    "prune_in_rounds",
    "pruned_sub_rows",
]
