"""The sparsity file: what the planner asks of the pruner.

As JSON:

    {"format": "disco-sparsity", "version": 1, "model": "...", "system": "...", "nodes": 2, "shares": [0.75, 0.25],
     "layers": {"name": 0.9}}

`shares` are fractions of all channels, one for each node; null, or left out, for equal ones. `layers` maps the name of
each layer (a PyTorch module's qualified name) to its communication sparsity, from 0 (everything is sent) to 1 (nothing
is); a layer that is not listed has 0.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from disco_planning.shares import fractions
from disco_targets.command import write_json
from disco_targets.errors import DiscoError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FORMAT = "disco-sparsity"
VERSION = 1
_KEYS = {"format", "version", "model", "system", "nodes", "layers"}
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class SparsityPlan:
    """The sparsity of each layer of a model on a number of nodes."""

    model: str
    """What the plan was made from, in words: nothing depends on it."""
    system: str
    """For which system, in words."""
    nodes: int
    layers: Mapping[str, float]
    shares: tuple[float, ...] | None = None
    """The fraction of each node; None for equal ones."""

    def is_for(self, shares: Sequence[float]) -> bool:
        """Whether it was made for these fractions."""
        mine = self.shares or (1 / self.nodes,) * self.nodes
        return len(mine) == len(shares) and all(
            math.isclose(one, other, abs_tol=_TOLERANCE) for one, other in zip(mine, shares, strict=True)
        )


def write_sparsity(path: Path, plan: SparsityPlan) -> None:
    """Writes the file whole or not at all; DiscoError when it cannot be written."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "model": plan.model,
        "system": plan.system,
        "nodes": plan.nodes,
        "shares": plan.shares,
        "layers": dict(plan.layers),
    }
    write_json(path, document)


def read_sparsity(path: Path) -> SparsityPlan:
    """Reads a sparsity file.

    Raises:
        DiscoError: It is missing, no sparsity file of this version, or has a sparsity outside [0, 1].
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DiscoError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DiscoError(
            f"{path} is not a sparsity file ({error}): make one with disco-latency --equilibrium"
        ) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DiscoError(f"{path} is not a sparsity file: make one with disco-latency --equilibrium")
    if document.get("version") != VERSION:
        raise DiscoError(f"{path} has version {document.get('version')!r}; this version of disco-edge reads {VERSION}")
    if wrong := (set(document) - {"shares"}) ^ _KEYS:
        raise DiscoError(f"{path}: unknown or missing keys {', '.join(sorted(wrong))}")
    layers, nodes = document["layers"], document["nodes"]
    if type(nodes) is not int or nodes < 1 or not isinstance(layers, dict):
        raise DiscoError(f"{path}: nodes must be a positive whole number and layers an object")
    for name, value in layers.items():
        if type(value) not in (int, float) or not 0 <= value <= 1:
            raise DiscoError(f"{path}: the sparsity of layer {name!r} is {value!r}: a number from 0 to 1 is needed")
    shares = _shares(document.get("shares"), nodes, path)
    sparsities = {name: float(value) for name, value in layers.items()}
    return SparsityPlan(str(document["model"]), str(document["system"]), nodes, sparsities, shares)


def _shares(values: Any, nodes: int, path: Path) -> tuple[float, ...] | None:
    try:
        return None if values is None else fractions([float(value) for value in values], nodes)
    except (ValueError, TypeError, OverflowError, UsageError) as error:
        raise DiscoError(f"{path}: shares are {values!r}: a list of one fraction for each node is needed") from error
