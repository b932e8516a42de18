"""The cycle estimate: instruction sequences whose cycles are known, by Arm's tables or by the model's own rules."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from disco_targets.board import load_board
from helpers.assembly_board import cycles_of
from helpers.c_build import WARNINGS, compile_c, tool

# Cortex-M4 TRM, DDI 0439D, tables 3-1 and 3-2 and section 3.3.2; P = 2, SDIV = 7.
CORTEX_M4 = {
    "adds r0, r0, r2": 1,
    "add r0, r0, r2, lsl #3": 1,
    "mul r0, r0, r2": 1,
    "mla r0, r2, r3, r0": 1,
    "smlad r0, r2, r3, r0": 1,
    "smlal r0, r5, r2, r3": 1,
    "sxtb16 r0, r2": 1,
    "sdiv r0, r2, r3": 7,
    "nop.w": 1,
    "mrs r0, primask": 2,
    "isb": 3,
    # loads and stores, pipelined or not
    "ldr r0, [r1]": 2,
    "ldrb r0, [r1, r9]": 2,
    "ldr r0, [r1]; ldr r2, [r1, #4]": 3,
    "ldr r0, [r1, r9]; ldr r5, [r1]; ldr r2, [r1, #4]": 4,
    "ldr r0, [r1]; ldr r2, [r0]": 4,
    "ldr r0, [r1]; nop; ldr r2, [r1]": 5,
    "ldr r0, [r1], #4; ldr r2, [r1], #4": 3,
    "str r0, [r1, #4]": 1,
    "str r0, [r1, r9]": 2,
    "str r0, [r1, #4]; ldr r2, [r1]": 3,
    "ldr r0, [r1]; str r0, [r1, #20]": 3,
    "ldr r0, [r1]; str r2, [r1, r9]": 3,
    "ldrd r2, r3, [r1]": 3,
    "strd r2, r3, [r1]": 3,
    "ldmia r1, {r0, r2, r3}": 4,
    "stmia r1!, {r0, r2, r3, r5}": 5,
    "push {r0, r2}; pop {r0, r2}": 6,
    # an address from the data processing instruction just before
    "add r0, r1, #4; ldr r2, [r0]": 4,
    "add r0, r1, #4; nop; ldr r2, [r0]": 4,
    "add r0, r1, #4; ldr r2, [r1]": 3,
    # unaligned
    "ldr r0, [r1, #2]": 3,
    "ldr r0, [r1, #1]": 4,
    "ldrh r0, [r1, #2]": 2,
    "ldrh r0, [r1, #1]": 3,
    "str r0, [r1, #7]": 3,
    # branches
    "b 1f; nop; 1:": 3,
    "cmp r0, r0; beq 1f; nop; 1:": 4,
    "cmp r0, r0; beq.w 1f; nop; 1:": 4,
    "cmp r0, r0; bne 1f; nop; 1:": 3,
    "cmp r0, r0; bne.w 1f; nop; 1:": 3,
    "cbz r2, 1f; nop; 1:": 2,
    "movs r0, #0; cbz r0, 1f; nop; 1:": 4,
    "cbnz r2, 1f; nop; 1:": 3,
    "bl leaf": 6,
    "movs r0, #10; 1: subs r0, #1; bne 1b": 1 + 10 * 2 + 9 * 2,
    "movs r0, #0; tbb [pc, r0]; .byte 1, 1; 1:": 1 + 6,
    # IT folds into a 16-bit instruction; what is skipped takes one cycle
    "cmp r0, r0; it ne; ldrne r0, [r1]": 2,
    "cmp r0, r0; it eq; ldreq r0, [r1]": 3,
    "cmp.w r0, r0; it eq; ldreq r0, [r1]": 4,
    "cmp r0, r0; itt eq; addeq r0, r2; beq 1f; nop; 1:": 5,
    "cmp r0, r0; itt ne; addne r0, r2; bne 1f; nop; 1:": 4,
}

# The rules at the top of timing_m7.c.
CORTEX_M7 = {
    "adds r0, r0, r2": 1,
    "add r0, r0, r2; add r3, r3, r2": 1,
    "add r0, r0, r2; add r0, r0, r3": 2,
    "add r0, r0, r2; add r3, r3, r2; add r5, r2, r2": 2,
    "ldr r0, [r1]; ldr r2, [r1, #4]": 1,
    "ldr r0, [r1]; ldr r2, [r1, #4]; ldr r3, [r1, #8]": 2,
    "str r0, [r1, #4]; str r2, [r1, #8]": 2,
    "ldr r0, [r1]; str r2, [r1, #8]": 1,
    "ldr r0, [r1]; add r0, r0, r2": 2,
    "ldrb r0, [r1]; add r0, r0, r2": 3,
    "ldr r0, [r1]; ldr r2, [r0]": 3,
    "add r0, r1, #4; ldr r2, [r0]": 3,
    "ldr r0, [r1], #4; ldr r2, [r1], #4": 2,
    "add r0, r0, r2; add r3, r2, r0, lsl #2": 3,
    "mul r0, r2, r3; mul r5, r2, r3": 2,
    "mul r0, r2, r3; add r0, r0, r2": 3,
    "smlad r0, r2, r3, r0; smlad r0, r2, r3, r0": 2,
    "smlad r0, r2, r3, r0; ldr r5, [r1]": 1,
    "sxtb16 r0, r2; sxtb16 r5, r3": 2,
    "sxtb16 r0, r2; ldr r5, [r1]": 1,
    "ldr r5, [r1]; sxtb16 r0, r2": 2,
    "ldmia r1, {r0, r2, r3, r5}": 2,
    "ldrd r2, r3, [r1]": 1,
    "sdiv r0, r2, r3": 7,
    "ldr r0, [r1, #1]": 2,
    "b 1f; nop; 1:": 1,
    "cmp r0, r0; beq 1f; nop; 1:": 2,
    "cmp r0, r0; beq.w 1f; nop; 1:": 2,
    "cmp r0, r0; bne 1f; nop; 1:": 2 + 6 + 1,  # predicted as taken
    "movs r0, #10; 1: subs r0, #1; bne 1b": 1 + 10 * 2 + 6,  # the end of the loop is mispredicted
}


@pytest.mark.parametrize(("target", "known"), [("qemu-mps2-an386", CORTEX_M4), ("qemu-mps2-an500", CORTEX_M7)])
def test_known_sequences(tmp_path: Path, target: str, known: dict[str, int]) -> None:
    tool("qemu-system-arm")
    cycles = cycles_of(load_board(target), list(known), tmp_path)
    assert dict(zip(known, cycles, strict=True)) == known


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_plugin_compiles_without_a_warning(tmp_path: Path, compiler: str) -> None:
    sources = sorted(Path(str(files("disco_targets") / "emulation")).glob("*.c"))
    assert len(sources) == 6
    assert "-Werror" in WARNINGS
    compile_c(compiler, sources, tmp_path / "plugin.so", ("-D_DEFAULT_SOURCE", "-shared", "-fPIC"))
