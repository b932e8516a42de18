"""Boards and chips: data files, loaded into frozen dataclasses.

A board names its chip, so that a second board with the same chip is a file of a few lines. Keys carry their unit
(`flash_bytes`, `clock_hz`); unknown keys are refused.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from disco_targets.errors import DiscoError
from disco_targets.records import record
from disco_targets.toml import read_toml

if TYPE_CHECKING:
    from importlib.abc import Traversable

UNITS = ("instructions", "cycles", "ns")
INSTRUCTION_SETS = ("armv6m", "base", "dsp", "mve")
"""What a core offers to kernels, each with those before: Armv6-M, nothing beyond Armv7-M, the DSP extension, Helium."""

ESTIMATE_BYTES = 16
"""What the cycle estimate takes of a board's shared memory (COUNTER_BYTES in emulation/plugin.c)."""


@dataclass(frozen=True)
class Region:
    """A range of addresses."""

    address: int
    bytes: int


@dataclass(frozen=True)
class Uart:
    """One serial port of a chip."""

    address: int
    rx_irq: int
    """Number of its receive interrupt, counted from the first external one."""


@dataclass(frozen=True)
class Counter:
    """What disco_port_ticks reads."""

    driver: str
    """Implementation in the BSP, e.g. "cmsdk_timer" or "sse_counter"."""
    address: int
    control_address: int
    unit_numerator: int
    unit_denominator: int
    """Board unit (instructions, cycles) = ticks * numerator / denominator."""


@dataclass(frozen=True)
class Chip:
    """A microcontroller: core, memory, peripherals."""

    name: str
    core: str
    instruction_set: str
    """One of INSTRUCTION_SETS."""
    compiler_flags: tuple[str, ...]
    clock_hz: int
    vectors: Region
    flash: Region
    ram: Region
    counter: Counter
    uarts: tuple[Uart, ...]
    """The first leads to the host, the others to the peers."""


@dataclass(frozen=True)
class Emulator:
    """How QEMU plays the board."""

    program: str
    machine: str
    arguments: tuple[str, ...]
    line_options: str
    """Options of the character device behind each UART."""
    apt_package: str


@dataclass(frozen=True)
class Board:
    """A target: what `--target` names."""

    name: str
    description: str
    unit: str
    """What its counter counts: one of UNITS."""
    bsp: str
    """Folder below disco_targets/bsp."""
    chip: Chip | None
    """None for hosted targets."""
    emulator: Emulator | None
    """None for real boards and hosted targets."""
    shared_memory: Region | None
    """What of its memory the emulator can keep in a file; None where nothing."""
    tflite: bool
    """Whether it can run a node's stages with TFLite, without C sources."""

    @property
    def core(self) -> str:
        """e.g. "cortex-m4"."""
        return self.chip.core if self.chip is not None else "host"

    @property
    def instruction_set(self) -> str:
        """One of INSTRUCTION_SETS; hosted targets run the portable kernels, which their compilers know to vectorise."""
        return self.chip.instruction_set if self.chip is not None else "base"

    @property
    def flash_bytes(self) -> int | None:
        """None where nothing limits it."""
        return self.chip.flash.bytes if self.chip is not None else None

    @property
    def ram_bytes(self) -> int | None:
        """None where nothing limits it."""
        return self.chip.ram.bytes if self.chip is not None else None

    @property
    def estimate_address(self) -> int | None:
        """Where a plugin of the emulator's may count cycles: the end of the shared memory; None where it cannot."""
        memory = self.shared_memory
        return memory.address + memory.bytes - ESTIMATE_BYTES if memory is not None else None

    @property
    def max_nodes(self) -> int | None:
        """How many nodes can be wired directly to each other: this one and a peer on each UART but the host's."""
        return len(self.chip.uarts) if self.chip is not None else None


def known_boards() -> tuple[str, ...]:
    """Names of all boards, sorted."""
    return tuple(
        sorted(file.name.removesuffix(".toml") for file in _folder("boards").iterdir() if file.name.endswith(".toml"))
    )


def load_board(name: str) -> Board:
    """The board called `name`.

    Raises:
        DiscoError: No such board (the known ones are listed), or its file is wrong.
    """
    if name not in known_boards():
        close = difflib.get_close_matches(name, known_boards(), 1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise DiscoError(f"unknown board {name!r}: {hint}Known boards: {', '.join(known_boards())}")
    data = _toml("boards", name)
    chip = data.get("chip")
    if chip is not None:
        data["chip"] = {"name": chip, **_toml("chips", chip)}
    board = record(
        Board,
        {"name": name, "chip": None, "emulator": None, "shared_memory": None, "tflite": False, **data},
        f"boards/{name}.toml",
    )
    if board.unit not in UNITS:
        raise DiscoError(f"boards/{name}.toml: unit {board.unit!r} is none of {', '.join(UNITS)}")
    if board.instruction_set not in INSTRUCTION_SETS:
        raise DiscoError(
            f"chips/{chip}.toml: instruction set {board.instruction_set!r} is none of {', '.join(INSTRUCTION_SETS)}"
        )
    return board


def _folder(name: str) -> Traversable:
    return files("disco_targets") / name


def _toml(folder: str, name: str) -> dict[str, Any]:
    return read_toml(_folder(folder) / f"{name}.toml", f"{folder}/{name}.toml")
