"""The kernels of a whole network take no more instructions than they are meant to."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from disco_converter.export import ExportConfig, export
from disco_host.config import RunConfig
from disco_host.run import run

M4 = "qemu-mps2-an386"


def test_kws_on_the_m4(repository: Path, shared_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    limit = importlib.import_module("firmware_targets").LIMITS["kws", "balanced"][M4]
    model = shared_models / "kws_dscnn_int8.tflite"
    exported = export(ExportConfig(model, 1, (M4,), tmp_path / "kws", optimize="balanced", keep_constants=True))
    result = run(RunConfig(tmp_path / "kws", "emulated", check_tensors=True, warmup=0, limit=1)).result
    assert result.bit_exact
    macs = sum(op.macs_executed for op in exported.bundle.manifest.programs[0].ops)
    assert macs / 2 < result.nodes[0].compute.median <= 1e6 * limit  # two MACs an instruction is what the core can do
