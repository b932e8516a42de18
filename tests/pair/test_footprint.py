"""The estimates that disco-export checks against a board hold for what the linker makes, and are not far off."""

from __future__ import annotations

from pathlib import Path

import pytest

from disco_converter.export import ExportConfig, export
from disco_converter.firmware import Origin, firmware_of
from disco_converter.order import partition_in_order
from disco_converter.report import flash_estimate, ram_estimate
from disco_converter.tflite_reader import read_tflite
from disco_firmware.build import build_node
from disco_firmware.bundle import load_bundle
from disco_firmware.project import STACK_BYTES
from disco_targets.board import load_board
from helpers.tiny_bundle import tiny_model

from .conftest import BundleMaker


@pytest.mark.parametrize("target", ["qemu-mps2-an386", "qemu-mps3-an547"])
@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_estimates_are_upper_bounds(make_bundle: BundleMaker, nodes: int, target: str) -> None:
    bundle = load_bundle(make_bundle(nodes, target))
    for program in bundle.manifest.programs:
        image = build_node(bundle.path, program.node)
        flash, ram = flash_estimate(program), ram_estimate(bundle.manifest.nodes, program, load_board(target))
        # A specialised kernel may be some kilobytes shorter than its bound, the runtime 6 KB: Armv6-M has the longest.
        assert image.flash_bytes <= flash <= image.flash_bytes + 34 * 1024
        assert image.ram_bytes + STACK_BYTES <= ram <= image.ram_bytes + STACK_BYTES + 16 * 1024


@pytest.mark.parametrize("target", ["qemu-mps2-an385-armv6m", "qemu-mps2-an386", "qemu-mps3-an547"])
@pytest.mark.parametrize("last", ["ADD", "MUL"])
def test_flash_is_bounded_for_tiny_layers(tmp_path: Path, target: str, last: str) -> None:
    """Their loops are so short that the compiler unrolls them whole."""
    (tmp_path / "tiny.tflite").write_bytes(tiny_model(8, (7,), last))
    bundle = export(ExportConfig(tmp_path / "tiny.tflite", 1, (target,), tmp_path / "bundle", optimize="speed")).bundle
    assert build_node(bundle.path, 0).flash_bytes <= flash_estimate(bundle.manifest.programs[0])


@pytest.mark.parametrize("optimize", ["size", "balanced", "speed"])
@pytest.mark.parametrize("nodes", [1, 2])
def test_the_example_takes_little_more_memory_than_the_least(disco90: bytes, nodes: int, optimize: str) -> None:
    cut = partition_in_order(read_tflite(disco90), nodes)
    board = load_board("qemu-mps2-an386")
    for node in firmware_of(cut, [board] * nodes, optimize, Origin("disco90", "", disco90)):
        assert node.plan.needed_bytes <= node.plan.arena_bytes <= 1.05 * node.plan.needed_bytes
