"""The figures that the Linux benchmark makes of stamps, on stamps that a person can follow."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from disco_firmware.bundle import Bundle
from disco_firmware.protocol import StageRecord
from disco_host.capture import InferenceCapture, NodeCapture
from helpers.tiny_bundle import export_tiny


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Two nodes of two stages, and an exchange of 60 bytes each way between them."""
    return export_tiny(tmp_path_factory.mktemp("bench") / "tiny", 2, "linux")


@pytest.fixture
def bench(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))

    def module(name: str) -> ModuleType:
        return importlib.import_module(name)

    return module


def _capture() -> InferenceCapture:
    """Node 0 has computed at 1000 ns, node 1 at 1500; node 0 begins its second stage at 1900, node 1 at 1700."""
    first = StageRecord(0, 1100, prepare=50, wait=0, scatter=0, compute=950, gather=40, send=60)
    second = StageRecord(1100, 2400, prepare=30, wait=650, scatter=20, compute=500, gather=0, send=0)
    slow = StageRecord(0, 1600, prepare=0, wait=0, scatter=0, compute=1500, gather=50, send=50)
    after = StageRecord(1600, 2200, prepare=20, wait=50, scatter=10, compute=500, gather=0, send=0)
    nodes = (
        NodeCapture(0, 0, 2410, (), (), (), stages=(first, second)),
        NodeCapture(1, 0, 2205, (), (), (), stages=(slow, after)),
    )
    return InferenceCapture(1, 0, 0.0, nodes)


def test_exchange_time_is_from_computed_to_computing(tiny: Bundle, bench: Any) -> None:
    figures = bench("linux_figures")
    capture = _capture()
    assert figures.latency_ms(capture) == pytest.approx(2410e-6)
    assert figures.compute_ms(capture) == pytest.approx(2000e-6)
    assert figures.exchange_ms(tiny.manifest, capture) == pytest.approx(400e-6)
    assert figures.sent_bytes(tiny.manifest) == 60


def test_the_prediction_is_the_replay_of_work_and_link(tiny: Bundle, bench: Any) -> None:
    figures = bench("linux_figures")
    # Its 60 bytes are 138 with the headers of channels, TCP, IP and Ethernet, of which the bucket lets 38 pass.
    link = figures.MeasuredLink(bytes_per_second=1448 / 1514 * 100 / 100e-9, latency_s=50e-9, burst_bytes=38)
    # Node 1 has sent at 1600; its bytes are there at 1750; node 0 then works for 620, all of its second stage but
    # waiting and preparing, and ends 10 later.
    assert figures.predicted_ms(tiny.manifest, _capture(), link) == pytest.approx(2380e-6)


def test_a_machine_without_the_tools_is_told(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None if program == "tc" else program)
    assert bench("linux_network").why_not() == "the program tc is missing (iproute2, util-linux)"
