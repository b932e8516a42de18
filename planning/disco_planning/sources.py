"""Where layer tables come from: the zoo, CSV, ONNX and TFLite files, and bundles."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disco_planning.layers import read_table, unique_names
from disco_planning.shares import contiguous_owners, fractions
from disco_targets.errors import DiscoError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.abc import Traversable

    from disco_planning.layers import Layer

ZOO_PREFIX = "zoo:"
_SUB_ROWS = ("sub_rows", "sub_rows_pruned", "sub_rows_recomputed")
_NOBODY = -1
"""In a bundle the owner of a constant channel."""


@dataclass(frozen=True)
class Network:
    """A layer table and what it was read from."""

    name: str
    layers: tuple[Layer, ...]
    sparsities: Mapping[str, float] | None = None
    """Of the sub-rows of each layer those for which nothing is sent: only a bundle knows."""
    nodes: int | None = None
    """For how many nodes it was cut (a bundle) or planned (an ONNX file with the pruner's plan)."""
    shares: tuple[float, ...] | None = None
    """The fraction of each of those nodes; None for equal ones."""
    owners: tuple[tuple[int, ...], ...] = ()
    """Of a bundle: the node of each output channel of its convolutions and linear layers, -1 for none."""
    for_pruner: bool = True
    """Whether its layers are called as in the PyTorch network, so that the pruner finds them."""

    def is_cut_by(self, shares: Sequence[float]) -> bool:
        """Whether a bundle gives each node the channels that these fractions give it."""
        return all(
            owner in (_NOBODY, expected)
            for owners in self.owners
            for owner, expected in zip(owners, contiguous_owners(len(owners), len(shares), shares), strict=True)
        )


def known_models() -> tuple[str, ...]:
    """Names that `zoo:NAME` takes, sorted."""
    return tuple(sorted(f.name.removesuffix(".csv") for f in _zoo().iterdir() if f.name.endswith(".csv")))


def load_network(model: str) -> Network:
    """The layer table of `zoo:NAME`, a .csv, .onnx or .tflite file, or a bundle's folder.

    Raises:
        UsageError: No such name in the zoo (the known ones are listed), or a file of another kind.
        DiscoError: The file is missing, damaged or has no layers, or the package that reads it is missing.
    """
    if model.startswith(ZOO_PREFIX):
        return _zoo_network(model.removeprefix(ZOO_PREFIX))
    path = Path(model)
    suffix = path.suffix.lower()
    try:
        if path.is_dir():
            return _bundle(path)
        if suffix == ".csv":
            return Network(path.stem, read_table(path.read_text(encoding="utf-8"), model))
        if suffix == ".onnx":
            from disco_planning.onnx_table import read_onnx

            layers, plan = read_onnx(path.read_bytes(), model)
            nodes, shares = (None, None) if plan is None else (plan.nodes, plan.shares)
            return Network(path.stem, unique_names(layers, model), None, nodes, shares)
        if suffix == ".tflite":
            from disco_planning.tflite_table import read_tflite

            return Network(path.stem, read_tflite(path.read_bytes(), model), for_pruner=False)
    except OSError as error:
        raise DiscoError(f"{model} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DiscoError(f"{model} is not a CSV file: {error}") from error
    raise UsageError(
        f"{model!r} is no model: give a .csv, .onnx or .tflite file, a bundle's folder, or one of "
        f"{', '.join(ZOO_PREFIX + name for name in known_models())}"
    )


def _zoo_network(name: str) -> Network:
    if name not in known_models():
        raise UsageError(f"the zoo has no model {name!r}: choose one of {', '.join(known_models())}")
    return Network(name, read_table((_zoo() / f"{name}.csv").read_text(encoding="utf-8"), f"zoo/{name}.csv"))


def _bundle(folder: Path) -> Network:
    """The table of reference.tflite, the sub-rows for which nothing is sent (as disco-export counted), the shares."""
    from disco_planning.tflite_table import read_tflite

    manifest = folder / "bundle.json"
    if not manifest.is_file():
        raise DiscoError(f"{folder} is not a bundle (no bundle.json in it): make one with disco-export")
    layers = read_tflite((folder / "reference.tflite").read_bytes(), str(folder / "reference.tflite"))
    try:
        document = json.loads(manifest.read_text(encoding="utf-8"))
        counted = {op["name"]: [int(op[count]) for count in _SUB_ROWS] for op in document["ops"]}
        name, nodes = str(document["model"]["name"]), int(document["nodes"])
        owners = {tensor["name"]: tensor["owners"] for tensor in document["tensors"]}
        shares = _shares(list(owners.values()), nodes)
        mixed = [owners[op["output"]] for op in document["ops"] if op["kind"] in ("CONV_2D", "FULLY_CONNECTED")]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DiscoError(f"{manifest} is damaged ({error!r}): export the model again") from error
    sparsities = {op: (pruned + recomputed) / rows for op, (rows, pruned, recomputed) in counted.items() if rows}
    cut = tuple(tuple(of) for of in mixed if isinstance(of, list))
    return Network(name, layers, sparsities, nodes, shares, cut, for_pruner=False)


def _shares(owners: list[Any], nodes: int) -> tuple[float, ...] | None:
    """The fraction of all channels that each node owns; None where rounding to whole channels explains it all.

    Tensors that one node computes alone (a softmax) do not tell, nor do those with constant channels that nobody owns.
    """
    shared = [of for of in owners if isinstance(of, list) and len(set(of)) > 1 and min(of) >= 0]
    counts = [[of.count(node) for node in range(nodes)] for of in shared]
    if all(max(sizes) - min(sizes) <= 1 for sizes in counts):
        return None
    totals = [sum(sizes) for sizes in zip(*counts, strict=True)]
    return fractions(totals, nodes)


def _zoo() -> Traversable:
    return files("disco_planning") / "zoo"
