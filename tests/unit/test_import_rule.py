"""The import rule of the packages, read from their syntax trees.

Two rules keep the parts apart: which package may import which, and where the heavy frameworks may
be imported at all. Imports inside functions count: a lazy import is a dependency too.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from disco_targets.toml import read_toml

REPOSITORY = Path(__file__).resolve().parents[2]

# Package -> the other packages of the project that it may import.
ALLOWED: dict[str, set[str]] = {
    "disco_targets": set(),
    "disco_planning": {"disco_targets"},
    "disco_firmware": {"disco_targets"},
    "disco_pruning": {"disco_planning", "disco_targets"},
    "disco_converter": {"disco_targets", "disco_firmware", "disco_planning"},
    "disco_host": {"disco_targets", "disco_firmware", "disco_planning"},
}

# Framework -> the only packages or modules that may import it.
CONFINED: dict[str, set[str]] = {
    "torch": {"disco_pruning"},
    "lightning": {"disco_pruning"},
    "onnxscript": {"disco_pruning"},
    "tensorflow": {"disco_converter.quantise"},
    "tf_keras": {"disco_converter.quantise"},
    "onnx2tf": {"disco_converter.quantise"},
    "jinja2": {"disco_firmware.render"},
}


def package_folders() -> dict[str, Path]:
    """The packages of the wheel: name -> folder."""
    pyproject = read_toml(REPOSITORY / "pyproject.toml", "pyproject.toml")
    listed = pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return {Path(entry).name: REPOSITORY / entry for entry in listed}


def modules(package: str, folder: Path) -> dict[str, Path]:
    """All modules of a package: dotted name -> file."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join([package, *parts]).removesuffix(".__init__")] = path
    return found


def imported(source: str, module: str, is_package: bool = False) -> list[tuple[int, str]]:
    """Every module that `source` imports, with its line: statements and import_module("...")."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")
            base = base[: len(base) - node.level + is_package] if node.level else []
            found.append((node.lineno, ".".join([*base, *([node.module] if node.module else [])])))
        elif isinstance(node, ast.Call) and node.args and _calls_import(node.func):
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                found.append((node.lineno, argument.value))
    return found


def _calls_import(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in {"import_module", "__import__"}
    return isinstance(function, ast.Attribute) and function.attr == "import_module"


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    """What `module` must not import, one message each."""
    package = module.split(".")[0]
    messages = []
    for line, name in imported(source, module, is_package):
        top = name.split(".")[0]
        if top in ALLOWED and top != package and top not in ALLOWED[package]:
            messages.append(f"{module}:{line}: {package} must not import {name}")
        places = CONFINED.get(top)
        if places is not None and package not in places and module not in places:
            messages.append(f"{module}:{line}: {top} is imported only in {', '.join(places)}")
    return messages


def test_every_package_has_a_rule() -> None:
    assert set(package_folders()) == set(ALLOWED)


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_package_keeps_the_import_rule(package: str) -> None:
    found = modules(package, package_folders()[package])
    assert package in found
    messages = []
    for module, path in found.items():
        source = path.read_text(encoding="utf-8")
        messages += violations(source, module, is_package=path.name == "__init__.py")
    assert not messages, "\n".join(messages)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("disco_host.capture", "import disco_converter.graph"),
        ("disco_host.capture", "from disco_pruning import masks"),
        ("disco_converter.graph", "from disco_host.session import Session"),
        ("disco_targets.board", "import disco_firmware"),
        ("disco_planning.layers", "def f():\n    import torch"),
        ("disco_converter.graph", "import tensorflow as tf"),
        ("disco_converter.graph", "importlib.import_module('onnx2tf')"),
        ("disco_firmware.bundle", "from jinja2 import Environment"),
    ],
)
def test_a_broken_rule_is_seen(module: str, source: str) -> None:
    assert len(violations(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("disco_host.capture", "from disco_firmware.bundle import load"),
        ("disco_host.capture", "from . import frames"),
        ("disco_converter.quantise", "import tensorflow"),
        ("disco_firmware.render", "import jinja2"),
        ("disco_pruning.masks", "import torch.nn.functional as F"),
    ],
)
def test_what_is_allowed_passes(module: str, source: str) -> None:
    assert violations(source, module) == []


def test_relative_imports_are_resolved() -> None:
    assert imported("from .b import c", "disco_host.a") == [(1, "disco_host.b")]
    assert imported("from . import c", "disco_host.sub", is_package=True) == [(1, "disco_host.sub")]
    assert imported("from ..b import c", "disco_host.sub.a") == [(1, "disco_host.b")]
