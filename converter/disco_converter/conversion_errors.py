"""What a failed conversion is about: operators and nodes, from the converters' own messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def int8_culprit(path: Path, message: str) -> str:
    """The operators that a converter error names, with their nodes where ONNX uses the name."""
    import onnx

    patterns = (
        r"not (?:yet )?supported for op: '?([\w.]+)",
        r"'([\w.]+)' op is neither a custom op nor a flex op",
        r"(?:TF Select|Flex|Custom) ops: ([\w, ]+)",
    )
    for pattern in patterns:
        names = sorted({name.removeprefix("tf.") for name in re.findall(pattern, message)})
        if names:
            nodes = [n for n in onnx.load(str(path)).graph.node if n.op_type in names]
            return "operator " + ", ".join([node_text(node) for node in nodes] or names)
    return "an operator of this network"


def describe_node(path: Path, name: str | None) -> str:
    """The ONNX node behind a name given by onnx2tf, which prefixes and cleans names."""
    import onnx

    for node in onnx.load(str(path)).graph.node:
        if name and node.name.replace(":", "__") == re.sub(r"^wa/", "/", name):
            return "operator " + node_text(node)
    return f"operator {name}" if name else "the network"


def node_text(node: Any) -> str:
    """'Gelu (node '/block/gelu')'; a node without a name is known by its first output."""
    place = node.name or (node.output[0] if node.output else "unnamed")
    return f"{node.op_type} (node '{place}')"


def summary(error: BaseException) -> str:
    """The first line of an error that says something, without colour codes and source positions."""
    text = re.sub(r"\x1b\[\d+m", "", str(error)).strip()
    reason = re.search(r"\berror: (.+)", text)
    lines = text.splitlines()
    line = reason[1] if reason else lines[0] if lines else type(error).__name__
    return line if len(line) <= 160 else line[:157] + "..."
