/* Instructions of 32 bits: the first halfword is bits 31 to 16. */
#include "thumb_parts.h"

static thumb_t load_store_multiple(uint32_t code) {
    return multiple(bits(code, 20, 1) != 0, code & 0xFFFFu, REG(bits(code, 16, 4)), bits(code, 21, 1) != 0);
}

static thumb_t load_store_dual(uint32_t code) {
    const bool load = bits(code, 20, 1) != 0;
    const uint32_t base = source(bits(code, 16, 4));
    const uint32_t first = bits(code, 12, 4);
    if ((code & 0xFFF000E0u) == 0xE8D00000u) {
        return (thumb_t){.kind = THUMB_TABLE, .early = base | REG(bits(code, 0, 4))};
    }
    if ((code & 0xFF600000u) == 0xE8400000u) { /* exclusive */
        thumb_t instruction = access(load, first, base);
        if (!load) {
            instruction.writes = REG(bits(code, 23, 1) != 0 ? bits(code, 0, 4) : bits(code, 8, 4));
            instruction.indexed = true; /* two cycles, as an indexed store */
        }
        return instruction;
    }
    return multiple(load, REG(first) | REG(bits(code, 8, 4)), base, bits(code, 21, 1) != 0);
}

static thumb_t shifted_register(uint32_t code) {
    const uint32_t op = bits(code, 21, 4);
    const uint32_t first = source(bits(code, 16, 4)); /* none: MOV, MVN */
    const uint32_t destination = bits(code, 8, 4);
    const bool shifted = bits(code, 12, 3) != 0 || bits(code, 4, 4) != 0;
    thumb_t instruction = alu(first, destination == PC ? 0 : REG(destination)); /* none: TST, CMP and the like */
    *(shifted ? &instruction.early : &instruction.normal) |= REG(bits(code, 0, 4));
    instruction.shifted = shifted;
    instruction.kind = op == 6 ? THUMB_SIMD : THUMB_ALU; /* PKHBT, PKHTB */
    if (bits(code, 20, 1) != 0) {
        instruction.writes |= THUMB_FLAGS;
    }
    if (op == 10 || op == 11) { /* ADC, SBC */
        instruction.normal |= THUMB_FLAGS;
    }
    return instruction;
}

static thumb_t modified_immediate(uint32_t code) {
    const uint32_t op = bits(code, 21, 4);
    const uint32_t destination = bits(code, 8, 4);
    thumb_t instruction = alu(source(bits(code, 16, 4)), destination == PC ? 0 : REG(destination));
    if (bits(code, 20, 1) != 0) {
        instruction.writes |= THUMB_FLAGS;
    }
    if (op == 10 || op == 11) {
        instruction.normal |= THUMB_FLAGS;
    }
    return instruction;
}

static thumb_t plain_immediate(uint32_t code) {
    const uint32_t destination = REG(bits(code, 8, 4));
    const uint32_t first = source(bits(code, 16, 4));
    switch (bits(code, 20, 5)) {
    case 0x00: /* ADDW, SUBW, ADR */
    case 0x0A:
        return alu(first, destination);
    case 0x04: /* MOVW */
        return alu(0, destination);
    case 0x0C: /* MOVT */
        return alu(destination, destination);
    case 0x16: /* BFI, BFC */
        return (thumb_t){.kind = THUMB_SIMD, .normal = destination, .early = first, .writes = destination};
    default: { /* SSAT, USAT, SBFX, UBFX */
        const bool saturates = bits(code, 22, 1) == 0;
        return (thumb_t){.kind = THUMB_SIMD, .slow = saturates, .early = first, .writes = destination};
    }
    }
}

static thumb_t branch_or_system(uint32_t code) {
    if (bits(code, 12, 1) != 0 || bits(code, 14, 1) != 0) { /* B, BL */
        return (thumb_t){.kind = THUMB_BRANCH, .writes = bits(code, 14, 1) != 0 ? REG(LR) : 0};
    }
    if (bits(code, 23, 3) != 7) {
        return (thumb_t){.kind = THUMB_CONDITIONAL, .normal = THUMB_FLAGS};
    }
    if ((code & 0xFFF000F0u) == 0xF3B00060u) {
        return simple(THUMB_ISB);
    }
    return simple((code & 0xFFF007FFu) == 0xF3A00000u ? THUMB_NOP : THUMB_SYSTEM);
}

static thumb_t load_store_single(uint32_t code) {
    const bool load = bits(code, 20, 1) != 0;
    const bool word = bits(code, 21, 2) == 2;
    const uint32_t base = source(bits(code, 16, 4));
    const uint32_t data = bits(code, 12, 4);
    if (load && data == PC && !word) {
        return simple(THUMB_NOP); /* a preload, which is a hint */
    }
    thumb_t instruction = access(load, data, base);
    instruction.slow = load && !word;
    if (bits(code, 23, 1) == 0 && base != 0) {
        if (bits(code, 11, 1) == 0) {
            instruction.early |= REG(bits(code, 0, 4));
            instruction.indexed = true;
        } else if (bits(code, 8, 1) != 0) {
            instruction.updates = base;
        }
    }
    return instruction;
}

static thumb_t register_operation(uint32_t code) {
    const uint32_t first = source(bits(code, 16, 4));
    const uint32_t second = REG(bits(code, 0, 4));
    const uint32_t destination = REG(bits(code, 8, 4));
    if (bits(code, 23, 1) == 0 && bits(code, 7, 1) == 0) { /* LSL, LSR, ASR, ROR by a register */
        thumb_t shift = alu(first | second, destination | (bits(code, 20, 1) != 0 ? THUMB_FLAGS : 0));
        shift.shifted = true;
        return shift;
    }
    if (bits(code, 23, 1) == 0 &&
        first != 0) { /* SXTAB and the like: the second operand is rotated and extended first */
        return (thumb_t){.kind = THUMB_SIMD, .shifted = true, .normal = first, .early = second, .writes = destination};
    }
    return (thumb_t){.kind = THUMB_SIMD, .normal = first | second, .writes = destination};
}

static thumb_t multiply(uint32_t code) {
    const uint32_t operands = REG(bits(code, 16, 4)) | REG(bits(code, 0, 4));
    const uint32_t high = REG(bits(code, 8, 4));
    if (bits(code, 23, 1) == 0) {
        return (thumb_t){.kind = THUMB_MAC, .normal = operands, .late = source(bits(code, 12, 4)), .writes = high};
    }
    const uint32_t op = bits(code, 20, 3);
    if (op == 1 || op == 3) {
        return (thumb_t){.kind = THUMB_DIVIDE, .normal = operands, .writes = high};
    }
    const uint32_t both = high | REG(bits(code, 12, 4));
    return (thumb_t){.kind = THUMB_MAC, .normal = operands, .late = op >= 4 ? both : 0, .writes = both};
}

thumb_t thumb_decode_32(uint32_t code) {
    if ((code & 0xFE400000u) == 0xE8000000u) {
        return load_store_multiple(code);
    }
    if ((code & 0xFE400000u) == 0xE8400000u) {
        return load_store_dual(code);
    }
    if ((code & 0xFE000000u) == 0xEA000000u) {
        return shifted_register(code);
    }
    if ((code & 0xF8008000u) == 0xF0000000u) {
        return bits(code, 25, 1) != 0 ? plain_immediate(code) : modified_immediate(code);
    }
    if ((code & 0xF8008000u) == 0xF0008000u) {
        return branch_or_system(code);
    }
    if ((code & 0xFE000000u) == 0xF8000000u) {
        return load_store_single(code);
    }
    if ((code & 0xFF000000u) == 0xFA000000u) {
        return register_operation(code);
    }
    return (code & 0xFF000000u) == 0xFB000000u ? multiply(code) : simple(THUMB_SYSTEM);
}
