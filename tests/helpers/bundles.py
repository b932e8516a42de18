"""Small models and bundles for tests."""

from __future__ import annotations

from pathlib import Path

from disco_converter.export import ExportConfig, ExportResult, export

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "resnet8_digits"


def export_example(output: Path, *, reference: bytes, nodes: int, target: str) -> ExportResult:
    """Exports an int8 model (the example's, quantised once per session) without more inputs than the random ones."""
    model = output.parent / f"{output.name}.tflite"
    model.write_bytes(reference)
    return export(ExportConfig(model=model, nodes=nodes, targets=(target,), output=output))
