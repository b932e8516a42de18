"""Boards as data files."""

from __future__ import annotations

import dataclasses
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from disco_firmware.protocol import Unit
from disco_targets import board as board_module
from disco_targets.board import Board, known_boards, load_board
from disco_targets.errors import DiscoError
from disco_targets.toml import read_toml

EMULATED = (
    "qemu-mps2-an385",
    "qemu-mps2-an385-armv6m",
    "qemu-mps2-an386",
    "qemu-mps2-an500",
    "qemu-mps2-an505",
    "qemu-mps3-an547",
)


def test_the_boards_are_known() -> None:
    assert known_boards() == ("linux", "posix", *EMULATED)


@pytest.mark.parametrize("name", ["linux", "posix", *EMULATED])
def test_a_board_loads_and_is_frozen(name: str) -> None:
    board = load_board(name)
    assert (board.name, board.unit in {unit.label for unit in Unit}) == (name, True)
    assert (files("disco_targets") / "bsp" / board.bsp).is_dir()
    assert len(board.name) < 32  # both go into WELCOME
    assert len(board.core) < 16
    with pytest.raises(dataclasses.FrozenInstanceError):
        board.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "core", "flash_mb", "clock_hz", "data"),
    [
        ("qemu-mps2-an385", "cortex-m3", 4, 25_000_000, 0x20000000),
        ("qemu-mps2-an386", "cortex-m4", 4, 25_000_000, 0x20000000),
        ("qemu-mps2-an500", "cortex-m7", 4, 25_000_000, 0x20000000),
        ("qemu-mps2-an505", "cortex-m33", 4, 20_000_000, 0x38000000),
        ("qemu-mps3-an547", "cortex-m55", 2, 32_000_000, 0x31000000),
    ],
)
def test_emulated_boards(name: str, core: str, flash_mb: int, clock_hz: int, data: int) -> None:
    board = load_board(name)
    chip = board.chip
    assert chip is not None
    assert (board.core, chip.clock_hz, chip.ram.address) == (core, clock_hz, data)
    assert board.ram_bytes == 4 * 2**20
    assert board.flash_bytes is not None
    assert flash_mb * 2**20 - 1024 <= board.flash_bytes <= flash_mb * 2**20  # without the vectors
    assert any(flag.startswith(f"-mcpu={core}") for flag in chip.compiler_flags)
    assert (board.max_nodes, len({uart.address for uart in chip.uarts})) == (5, 5)
    # One instruction is 2^6 ns under -icount shift=6: the counter's ticks convert exactly.
    assert board.unit == "instructions"
    assert board.emulator is not None
    assert "shift=6" in board.emulator.arguments
    counter = chip.counter
    assert counter.unit_numerator * 64 * clock_hz == counter.unit_denominator * 1_000_000_000


def test_code_for_the_m0plus_runs_on_the_board_of_the_m3() -> None:
    board, host = load_board("qemu-mps2-an385-armv6m"), load_board("qemu-mps2-an385")
    assert (board.core, board.instruction_set) == ("armv6-m", "armv6m")
    assert "emulated Cortex-M3" in board.description
    assert board.chip is not None
    assert "-mcpu=cortex-m0plus" in board.chip.compiler_flags
    assert board.emulator == host.emulator
    assert host.chip is not None
    for part in ("flash", "ram", "counter", "uarts"):
        assert getattr(board.chip, part) == getattr(host.chip, part)


def test_posix_has_no_limits() -> None:
    board = load_board("posix")
    assert (board.chip, board.emulator) == (None, None)
    assert (board.flash_bytes, board.ram_bytes, board.max_nodes, board.unit) == (None, None, None, "ns")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("qemu-mps2-an368", "did you mean qemu-mps2-an386"),
        ("zzz", "Known boards: linux, posix, qemu-mps2-an385, qemu-mps2-an385-armv6m, qemu-mps2-an386"),
    ],
)
def test_an_unknown_board_is_refused_with_the_known_ones(name: str, hint: str) -> None:
    with pytest.raises(DiscoError, match="unknown board") as caught:
        load_board(name)
    assert hint in str(caught.value)
    for known in known_boards():
        assert known in str(caught.value)


@pytest.mark.parametrize("name", ["../chips/an386", "", "posix.toml", "boards/posix"])
def test_a_name_is_no_path(name: str) -> None:
    with pytest.raises(DiscoError, match="unknown board"):
        load_board(name)


def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the data files that a test may spoil."""
    for folder in ("boards", "chips"):
        (tmp_path / folder).mkdir()
        for file in (files("disco_targets") / folder).iterdir():
            (tmp_path / folder / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(board_module, "_folder", lambda name: tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("chips/an386.toml", "clock_hz", "clock_mhz", "chip: unknown keys clock_mhz; missing keys clock_hz"),
        ("chips/an386.toml", "25_000_000", '"fast"', "chip: clock_hz: expected int, found 'fast'"),
        ("chips/an386.toml", "bytes = 0x400\n", "bytes = 0x400\nsize = 1\n", "vectors: unknown keys size"),
        ("boards/qemu-mps2-an386.toml", 'unit = "instructions"', 'unit = "hours"', "unit 'hours' is none of"),
        ("boards/qemu-mps2-an386.toml", 'chip = "an386"', 'chip = "an387"', "an387.toml"),
        ("boards/qemu-mps2-an386.toml", "[emulator]", "[emulator", "qemu-mps2-an386.toml"),
        ("boards/qemu-mps2-an386.toml", 'unit = "instructions"\n', "", "missing keys unit"),
        ("chips/an386.toml", "rx_irq = 0 }", "rx_irq = 0, tx = 1 }", "uarts: unknown keys tx"),
    ],
)
def test_a_wrong_file_is_refused_where_it_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, old: str, new: str, message: str
) -> None:
    path = _folders(tmp_path, monkeypatch) / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(DiscoError) as caught:
        load_board("qemu-mps2-an386")
    assert message in str(caught.value)


def test_a_second_board_with_the_same_chip_is_a_small_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _folders(tmp_path, monkeypatch) / "boards"
    (folder / "twin.toml").write_text('description = "twin"\nunit = "cycles"\nbsp = "mps"\nchip = "an386"\n')
    twin: Board = load_board("twin")
    assert twin.chip == load_board("qemu-mps2-an386").chip
    assert twin.emulator is None


def test_every_key_of_a_size_or_rate_names_its_unit() -> None:
    def numbers(data: Any, path: str = "") -> list[str]:
        if isinstance(data, dict):
            return [name for key, value in data.items() for name in numbers(value, key)]
        if isinstance(data, list):
            return [name for item in data for name in numbers(item, path)]
        return [path] if isinstance(data, int) and not isinstance(data, bool) else []

    unitless = {"address", "control_address", "rx_irq", "unit_numerator", "unit_denominator"}
    for folder in ("boards", "chips"):
        for file in (files("disco_targets") / folder).iterdir():
            for name in numbers(read_toml(file, file.name)):
                assert name in unitless or name.endswith(("bytes", "_hz")), f"{file.name}: {name}"
