"""Where layer tables come from: the zoo, CSV, ONNX and TFLite files, and bundles."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from disco_planning.layers import read_table, unique_names
from disco_targets.errors import DiscoError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.abc import Traversable

    from disco_planning.layers import Layer

ZOO_PREFIX = "zoo:"


@dataclass(frozen=True)
class Network:
    """A layer table and what it was read from."""

    name: str
    layers: tuple[Layer, ...]
    sparsities: Mapping[str, float] | None = None
    """What each layer's weights have: only a bundle knows."""
    nodes: int | None = None
    """For how many nodes those sparsities were counted."""


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

            return Network(path.stem, unique_names(read_onnx(path.read_bytes(), model), model))
        if suffix == ".tflite":
            from disco_planning.tflite_table import read_tflite

            return Network(path.stem, read_tflite(path.read_bytes(), model))
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
    """The table of reference.tflite, with the sub-rows that disco-export counted on its int8 weights."""
    from disco_planning.tflite_table import read_tflite

    manifest = folder / "bundle.json"
    if not manifest.is_file():
        raise DiscoError(f"{folder} is not a bundle (no bundle.json in it): make one with disco-export")
    layers = read_tflite((folder / "reference.tflite").read_bytes(), str(folder / "reference.tflite"))
    try:
        document = json.loads(manifest.read_text(encoding="utf-8"))
        counted = {op["name"]: (int(op["sub_rows"]), int(op["sub_rows_pruned"])) for op in document["ops"]}
        name, nodes = str(document["model"]["name"]), int(document["nodes"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DiscoError(f"{manifest} is damaged ({error!r}): export the model again") from error
    sparsities = {}
    for layer in layers:
        rows, pruned = counted.get(layer.name, (0, 0))
        sparsities[layer.name] = pruned / rows if rows else 0.0
    return Network(name, layers, sparsities, nodes)


def _zoo() -> Traversable:
    return files("disco_planning") / "zoo"
