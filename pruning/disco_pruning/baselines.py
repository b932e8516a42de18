"""What pruned networks are compared with."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from torch import nn

from disco_pruning.planning import plan as make_plan
from disco_pruning.rounds import prune
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disco_pruning.tracing import ExampleInput


def from_scratch(model: nn.Module) -> nn.Module:
    """A copy of `model` with newly drawn weights and without masks: the dense baseline.

    Raises:
        DiscoError: A module has parameters of its own and no `reset_parameters`.
    """
    from disco_pruning.masks import bake

    fresh = bake(copy.deepcopy(model))
    # The innermost first, as they were built: a network may draw the weights of its layers in its own way.
    for name, module in reversed(list(fresh.named_modules())):
        reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if reset is not None:
            reset()
        elif next(module.parameters(recurse=False), None) is not None:
            raise DiscoError(
                f"module '{name}' ({type(module).__name__}) has parameters and no reset_parameters(): give it one, or "
                "build an untrained network and call plan and prune(plan, 1.0) on it"
            )
    return fresh


def independent_branches(
    model: nn.Module, example_input: ExampleInput, nodes: int, shares: Sequence[float] | None = None
) -> nn.Module:
    """A copy of `model` as `nodes` branches whose layers exchange nothing, untrained.

    The architecture of a network pruned to 100 %, to be trained from scratch by the same loop. What `Plan.notes` lists
    cannot be pruned and crosses the wire here too, such as the sums of layer norms over channels of several nodes.
    Reads the plan of `model`, so arguments and errors are those of `plan`.
    """
    fresh = from_scratch(model)
    prune(make_plan(fresh, example_input, nodes, shares), 1.0)
    return fresh
