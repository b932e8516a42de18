"""The planner's sparsity file: which communication sparsity each layer should get.

{"schema": 1, "nodes": 2, "layers": {"stages.0.conv1": 0.93, "stages.0.conv2": 0.9}}
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from disco_pruning.planning import Plan

_SCHEMA = 1


def load_sparsity(path: str | Path, plan: Plan) -> dict[str, float]:
    """Read a sparsity file for `plan`, to be given to `prune`.

    Layers that the plan never prunes (the stem, depthwise layers) may be in it; layers it leaves out stay dense.

    Raises:
        DiscoError: The file cannot be read, is of another form or number of nodes, or names an unknown layer.
    """
    try:
        content = json.loads(Path(path).read_text())
    except OSError as error:
        raise DiscoError(f"sparsity file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DiscoError(f"sparsity file {path} is not JSON ({error}): write it with disco-latency") from error
    if not isinstance(content, dict) or content.get("schema") != _SCHEMA:
        raise DiscoError(f'sparsity file {path} does not say "schema": {_SCHEMA}: write it with disco-latency')
    if content.get("nodes") != plan.nodes:
        raise DiscoError(
            f"sparsity file {path} is for {content.get('nodes')} nodes and the plan for {plan.nodes}: make it again "
            f"with --nodes {plan.nodes}"
        )
    return _checked_layers(path, content.get("layers"), plan)


def _checked_layers(path: str | Path, layers: object, plan: Plan) -> dict[str, float]:
    known = {layer.name for layer in plan.layers} | set(plan.local)
    if not isinstance(layers, dict):
        raise DiscoError(f'sparsity file {path} has no table "layers": write it with disco-latency')
    for name, value in layers.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise DiscoError(f"sparsity file {path} gives layer '{name}' the sparsity {value!r}: use 0 to 1")
        if name not in known:
            raise DiscoError(
                f"sparsity file {path} names layer '{name}', which the network does not have: it has "
                f"{', '.join(sorted(known))}"
            )
    return {name: float(value) for name, value in layers.items()}
