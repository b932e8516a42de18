"""What the protocol costs an emulated Cortex-M4, in instructions and estimated cycles.

    python benchmarks/protocol_cost.py

The figures of examples/clusters are from here.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from disco_host.boards_local import emulator_command
from disco_host.config import CYCLES_ESTIMATE, INSTRUCTIONS
from disco_host.estimate import build_plugin, estimate_arguments
from disco_host.projection_graph import PROTOCOL
from disco_targets.board import load_board

ROOT = Path(__file__).resolve().parents[1]
RUNTIME = ROOT / "firmware_templates" / "disco_firmware" / "runtime"
SOURCES = ("link", "cobs", "crc32", "crc32_tables", "stream", "exchange", "exchange_send", "exchange_receive")
BOARD = "qemu-mps2-an386"
PER_TICK = Fraction(5, 8)
"""Instructions per tick of the board's timer under -icount shift=6."""
NO_CHANNELS = "none"


@dataclass(frozen=True)
class Cost:
    """Of the protocol, in what was counted."""

    look: float
    """A look at the links of two nodes, the host's among them, when nothing came and nothing is to be sent."""
    link_byte: dict[str, float]
    """By case: for a byte of a full frame sent or received, as a projection counts them; acknowledgements, credit and
    the headers of frames that are not full are shared out among them."""


def protocol_cost(count: str, folder: Path) -> Cost:
    """Builds the program in `folder` and runs it.

    Args:
        count: INSTRUCTIONS or CYCLES_ESTIMATE.
        folder: An empty one.
    """
    board = load_board(BOARD)
    assert board.chip is not None
    assert board.chip.counter is not None
    assert board.estimate_address is not None
    timer, estimate = board.chip.counter.address, board.estimate_address + 8
    counter = (timer + 4, 0xFFFFFFFF, PER_TICK) if count == INSTRUCTIONS else (estimate, 0, Fraction(1))
    program = folder / "protocol_cost.elf"
    tests = ROOT / "tests" / "c"
    command = ["arm-none-eabi-gcc", "-O3", *board.chip.compiler_flags, f"-DTIMER={timer:#x}"]
    command += [f"-DCOUNTER={counter[0]:#x}", f"-DCOUNTER_INVERTED={counter[1]:#x}u"]
    command += ["--specs=nano.specs", "--specs=rdimon.specs", "-T", str(tests / "semihosted.ld")]
    command += [f"-I{RUNTIME / part}" for part in ("include", "src")]
    command += [str(Path(__file__).with_suffix(".c")), str(tests / "semihosted_start.c"), "-o", str(program)]
    subprocess.run([*command, *(str(RUNTIME / "src" / f"{name}.c") for name in SOURCES)], check=True)
    emulator = emulator_command(board, program, {})
    emulator += ["-serial", "none", "-semihosting-config", "enable=on,target=native"]
    if count == CYCLES_ESTIMATE:
        emulator += estimate_arguments(board, build_plugin(folder), folder / "memory")
    result = subprocess.run(emulator, capture_output=True, text=True, check=True, timeout=60)
    return _cost(result.stdout, counter[2])


def _cost(text: str, per_tick: Fraction) -> Cost:
    cases = {name: [int(word) for word in words] for name, *words in (line.split() for line in text.splitlines())}
    ticks, looks, _ = cases.pop(NO_CHANNELS)
    look = float(ticks * per_tick / looks)
    full = 1 + PROTOCOL.overhead_bytes / PROTOCOL.data_bytes
    costs = {
        name: (float(ticks * per_tick) - look * looks) / (size * full) for name, (ticks, looks, size) in cases.items()
    }
    return Cost(look, costs)


def main() -> int:
    """Prints both counts."""
    for count in (INSTRUCTIONS, CYCLES_ESTIMATE):
        with tempfile.TemporaryDirectory() as folder:
            cost = protocol_cost(count, Path(folder))
        cases = ", ".join(f"{value:.1f} ({name} of 8 channels)" for name, value in cost.link_byte.items())
        sys.stdout.write(f"{count}: {cost.look:.0f} for a look; for a byte {cases}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
