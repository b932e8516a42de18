"""Instruction sequences on an emulated board under the cycle estimate, without firmware of the project around them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from disco_host.boards_local import emulator_command
from disco_host.estimate import build_plugin, estimate_arguments
from disco_targets.board import Board
from helpers.c_build import CORTEX_M, tool

DEADLINE_S = 60.0
DONE = 0x600D600D
START = """
    .syntax unified
    .thumb
    .word 0x20010000
    .word reset + 1
    .rept 14
    .word fault + 1
    .endr
    .thumb_func
fault:
    b fault
    .thumb_func
leaf:
    bx lr
    .thumb_func
reset:
    ldr r6, ={counter}
    ldr r8, ={results}
    ldr r1, =0x20000100
    str r1, [r1]
    movs r2, #3
    movs r3, #5
    mov r9, #8
"""
# MRS is issued alone, so that a sequence begins and ends with a cycle of its own on every core.
CASE = """
    movs r0, #7
    ldr r4, [r6]
    mrs r10, primask
    {sequence}
    mrs r10, primask
    ldr r5, [r6]
    subs r5, r5, r4
    str r5, [r8], #4
    ldr r1, =0x20000100
    str r1, [r1]
    movs r2, #3
    movs r3, #5
    b 9f
    .ltorg
9:
"""
END = """
    ldr r0, ={done}
    str r0, [r8]
stop:
    b stop
"""


def cycles_of(board: Board, sequences: Sequence[str], folder: Path) -> list[int]:
    """Estimated cycles of each sequence; r0 to r3 and r5 are free, r1 points to a word that holds its own address."""
    shared, counter = board.shared_memory, board.estimate_address
    assert shared is not None
    assert counter is not None
    cases = "".join(CASE.format(sequence=sequence) for sequence in ("", *sequences))
    start = START.format(counter=counter + 8, results=shared.address)
    image = _assemble(start + cases + END.format(done=DONE), board.core.removeprefix("cortex-"), folder)
    memory = folder / "memory"
    command = emulator_command(board, image, {}) + estimate_arguments(board, build_plugin(folder), memory)
    process = subprocess.Popen([*command, "-serial", "none"], stderr=subprocess.PIPE)
    try:
        words = _await_results(memory, len(sequences) + 2, process)
    finally:
        process.kill()
        process.communicate()
    return [word - words[0] for word in words[1:-1]]


def _assemble(text: str, core: str, folder: Path) -> Path:
    source, image = folder / "cases.s", folder / "cases.elf"
    source.write_text(text)
    command = [tool("arm-none-eabi-gcc"), *CORTEX_M[core], "-nostdlib", "-Ttext=0", "-Wl,-e,reset"]
    result = subprocess.run([*command, str(source), "-o", str(image)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return image


def _await_results(memory: Path, count: int, process: subprocess.Popen[bytes]) -> list[int]:
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()[1]
        data = memory.read_bytes()[: 4 * count] if memory.stat().st_size else b""
        words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]
        if words and words[-1] == DONE:
            return words
        time.sleep(0.05)
    raise AssertionError("the board has not run all sequences")
