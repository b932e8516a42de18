"""The four int8 models of MLPerf Tiny, whole and cut in two, on this PC and on an emulated Cortex-M4."""

from __future__ import annotations

from pathlib import Path

import pytest

from disco_converter.export import ExportConfig, export
from disco_host.config import RunConfig
from disco_host.run import run

pytestmark = pytest.mark.timeout(900)  # emulated lines are slow where other work takes the cores

MODELS = ("ad_autoencoder_int8", "ic_resnet8_int8", "kws_dscnn_int8", "vww_mobilenet025_int8")


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_model_is_bit_exact_on_posix_and_m4(shared_models: Path, tmp_path: Path, model: str, nodes: int) -> None:
    hosted, board = tmp_path / "posix", tmp_path / "m4"
    for target, bundle in (("posix", hosted), ("qemu-mps2-an386", board)):
        export(ExportConfig(shared_models / f"{model}.tflite", nodes, (target,), bundle))
    posix = run(RunConfig(bundle=hosted, boards="posix", check_tensors=True, sanitize=True)).result
    assert (posix.mismatches, posix.bit_exact) == (0, True)
    m4 = run(RunConfig(bundle=board, boards="emulated", check_tensors=True, warmup=0, limit=2)).result
    assert (m4.mismatches, m4.bit_exact) == (0, True)
    assert m4.inferences == 2
