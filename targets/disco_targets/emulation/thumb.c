#include "thumb.h"

#define REG(number) (1u << (number))
#define SP          13u
#define LR          14u
#define PC          15u

static uint32_t bits(uint32_t code, unsigned low, unsigned count) {
    return code >> low & ((1u << count) - 1u);
}

/* A set of one register. The program counter is no operand that anything waits for. */
static uint32_t source(uint32_t number) {
    return number == PC ? 0 : REG(number);
}

static thumb_t simple(thumb_kind_t kind) {
    return (thumb_t){.kind = kind};
}

static thumb_t alu(uint32_t reads, uint32_t writes) {
    return (thumb_t){.kind = (writes & THUMB_PC) != 0 ? THUMB_BRANCH : THUMB_ALU, .normal = reads, .writes = writes};
}

static thumb_t access(bool load, uint32_t data, uint32_t address) {
    thumb_t instruction = {.kind = load ? THUMB_LOAD : THUMB_STORE, .early = address};
    if (load) {
        instruction.writes = REG(data);
        instruction.to_pc = data == PC;
    } else {
        instruction.late = REG(data);
    }
    return instruction;
}

static thumb_t multiple(bool load, uint32_t list, uint32_t base, bool update) {
    thumb_t instruction = {.kind = THUMB_MULTIPLE, .early = base, .updates = update ? base : 0};
    instruction.registers = (uint8_t)__builtin_popcount(list);
    if (load) {
        instruction.writes = list;
        instruction.to_pc = (list & THUMB_PC) != 0;
    } else {
        instruction.late = list;
    }
    return instruction;
}

/* ---- 16 bits ----------------------------------------------------------------------------------------------------------------- */

static thumb_t shift_add_move(uint32_t code) {
    const uint32_t destination = REG(bits(code, 0, 3)) | THUMB_FLAGS;
    const uint32_t operand = REG(bits(code, 3, 3));
    if (bits(code, 11, 2) != 3) { /* shift by a constant; by 0 it is a move */
        thumb_t instruction = alu(operand, destination);
        instruction.shifted = bits(code, 6, 5) != 0;
        return instruction;
    }
    return alu(operand | (bits(code, 10, 1) != 0 ? 0 : REG(bits(code, 6, 3))), destination);
}

static thumb_t immediate(uint32_t code) {
    const uint32_t reg = REG(bits(code, 8, 3));
    switch (bits(code, 11, 2)) {
    case 0:
        return alu(0, reg | THUMB_FLAGS);
    case 1:
        return alu(reg, THUMB_FLAGS);
    default:
        return alu(reg, reg | THUMB_FLAGS);
    }
}

static thumb_t data_processing(uint32_t code) {
    const uint32_t destination = REG(bits(code, 0, 3));
    const uint32_t operand = REG(bits(code, 3, 3));
    thumb_t instruction = alu(destination | operand, destination | THUMB_FLAGS);
    switch (bits(code, 6, 4)) {
    case 2: /* LSL, LSR, ASR, ROR */
    case 3:
    case 4:
    case 7:
        instruction.shifted = true;
        break;
    case 5: /* ADC, SBC */
    case 6:
        instruction.normal |= THUMB_FLAGS;
        break;
    case 8: /* TST, CMP, CMN */
    case 10:
    case 11:
        instruction.writes = THUMB_FLAGS;
        break;
    case 9: /* RSB, MVN */
    case 15:
        instruction.normal = operand;
        break;
    case 13:
        instruction.kind = THUMB_MAC;
        break;
    default:
        break;
    }
    return instruction;
}

static thumb_t high_registers(uint32_t code) {
    const uint32_t destination = bits(code, 0, 3) | bits(code, 7, 1) << 3;
    const uint32_t operand = source(bits(code, 3, 4));
    switch (bits(code, 8, 2)) {
    case 0:
        return alu(source(destination) | operand, REG(destination));
    case 1:
        return alu(source(destination) | operand, THUMB_FLAGS);
    case 2:
        return alu(operand, REG(destination));
    default: /* BX, BLX */
        return (thumb_t){.kind = THUMB_BRANCH, .normal = operand, .writes = bits(code, 7, 1) != 0 ? REG(LR) : 0};
    }
}

static thumb_t access_indexed(uint32_t code) {
    const uint32_t op = bits(code, 9, 3);
    thumb_t instruction = access(op >= 3, bits(code, 0, 3), REG(bits(code, 3, 3)) | REG(bits(code, 6, 3)));
    instruction.indexed = true;
    instruction.slow = op >= 3 && op != 4;
    return instruction;
}

static thumb_t access_offset(uint32_t code) {
    const bool load = bits(code, 11, 1) != 0;
    thumb_t instruction = access(load, bits(code, 0, 3), REG(bits(code, 3, 3)));
    instruction.slow = load && code >> 12 != 6; /* 6: words */
    return instruction;
}

static thumb_t miscellaneous(uint32_t code) {
    const uint32_t low = REG(bits(code, 0, 3));
    const uint32_t list = bits(code, 0, 8);
    if ((code & 0xF500u) == 0xB100u) { /* CBZ, CBNZ */
        return (thumb_t){.kind = THUMB_CONDITIONAL, .normal = low};
    }
    switch (bits(code, 8, 4)) {
    case 0x0: /* ADD SP, SUB SP */
        return alu(REG(SP), REG(SP));
    case 0x2: /* SXTB, SXTH, UXTB, UXTH */
    case 0xA: /* REV */
        return (thumb_t){.kind = THUMB_SIMD, .normal = REG(bits(code, 3, 3)), .writes = low};
    case 0x4: /* PUSH */
    case 0x5:
        return multiple(false, list | bits(code, 8, 1) << LR, REG(SP), true);
    case 0xC: /* POP */
    case 0xD:
        return multiple(true, list | bits(code, 8, 1) << PC, REG(SP), true);
    case 0xF:
        return simple(bits(code, 0, 4) != 0 ? THUMB_IT : THUMB_NOP);
    default:
        return simple(THUMB_SYSTEM);
    }
}

static thumb_t decode_16(uint32_t code) {
    switch (code >> 12) {
    case 0x0:
    case 0x1:
        return shift_add_move(code);
    case 0x2:
    case 0x3:
        return immediate(code);
    case 0x4:
        if (bits(code, 11, 1) != 0) { /* LDR from near the program counter */
            return access(true, bits(code, 8, 3), 0);
        }
        return bits(code, 10, 1) != 0 ? high_registers(code) : data_processing(code);
    case 0x5:
        return access_indexed(code);
    case 0x6:
    case 0x7:
    case 0x8:
        return access_offset(code);
    case 0x9:
        return access(bits(code, 11, 1) != 0, bits(code, 8, 3), REG(SP));
    case 0xA: /* address of PC or SP plus a constant */
        return alu(bits(code, 11, 1) != 0 ? REG(SP) : 0, REG(bits(code, 8, 3)));
    case 0xB:
        return miscellaneous(code);
    case 0xC:
        return multiple(bits(code, 11, 1) != 0, bits(code, 0, 8), REG(bits(code, 8, 3)), true);
    case 0xD:
        if (bits(code, 8, 4) >= 14) { /* UDF, SVC */
            return simple(THUMB_SYSTEM);
        }
        return (thumb_t){.kind = THUMB_CONDITIONAL, .normal = THUMB_FLAGS};
    default:
        return simple(THUMB_BRANCH);
    }
}

/* ---- 32 bits: the first halfword is bits 31 to 16 ---------------------------------------------------------------------------- */

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

static thumb_t decode_32(uint32_t code) {
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

thumb_t thumb_decode(uint32_t code, size_t size) {
    thumb_t instruction = size == 2 ? decode_16(code) : decode_32(code);
    instruction.size = (uint8_t)size;
    return instruction;
}

size_t thumb_it_length(uint32_t code) {
    return 4u - (size_t)__builtin_ctz(code & 0xFu);
}

void thumb_make_conditional(thumb_t *instruction) {
    if (instruction->kind == THUMB_BRANCH) {
        instruction->kind = THUMB_CONDITIONAL;
    }
    instruction->normal |= THUMB_FLAGS;
    if (instruction->size == 2 && instruction->writes != THUMB_FLAGS) {
        instruction->writes &= ~THUMB_FLAGS; /* the short forms leave the flags alone there, all but comparisons */
    }
}
