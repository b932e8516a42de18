#include "thumb_parts.h"

thumb_t thumb_decode(uint32_t code, size_t size) {
    thumb_t instruction = size == 2 ? thumb_decode_16(code) : thumb_decode_32(code);
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

/* The `width` bits of `value` as a signed number. */
static uint32_t sign_extended(uint32_t value, unsigned width) {
    const uint32_t sign = 1u << (width - 1);
    return (value ^ sign) - sign;
}

uint32_t thumb_branch_target(uint32_t code, size_t size, uint32_t address) {
    const uint32_t from = address + 4;
    if (size == 2 && (code & 0xF500u) == 0xB100u) { /* CBZ, CBNZ */
        return from + ((code >> 9 & 1u) << 6 | (code >> 3 & 31u) << 1);
    }
    if (size == 2 && (code & 0xF000u) == 0xD000u) { /* B<c> */
        return from + sign_extended((code & 0xFFu) << 1, 9);
    }
    if (size == 4 && (code & 0xF800D000u) == 0xF0008000u) { /* B<c>.W */
        const uint32_t sign = code >> 26 & 1u, j1 = code >> 13 & 1u, j2 = code >> 11 & 1u;
        const uint32_t offset = sign << 20 | j2 << 19 | j1 << 18 | (code >> 16 & 63u) << 12 | (code & 0x7FFu) << 1;
        return from + sign_extended(offset, 21);
    }
    return 0;
}
