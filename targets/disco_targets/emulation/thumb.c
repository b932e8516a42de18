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
