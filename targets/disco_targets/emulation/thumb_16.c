/* Instructions of 16 bits. */
#include "thumb_parts.h"

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

thumb_t thumb_decode_16(uint32_t code) {
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
