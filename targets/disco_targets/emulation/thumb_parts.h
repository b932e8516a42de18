/* What both lengths of instructions are described with. */
#ifndef DISCO_THUMB_PARTS_H
#define DISCO_THUMB_PARTS_H

#include "thumb.h"

#define REG(number) (1u << (number))
#define SP          13u
#define LR          14u
#define PC          15u

static inline uint32_t bits(uint32_t code, unsigned low, unsigned count) {
    return code >> low & ((1u << count) - 1u);
}

/* A set of one register. The program counter is no operand that anything waits for. */
static inline uint32_t source(uint32_t number) {
    return number == PC ? 0 : REG(number);
}

static inline thumb_t simple(thumb_kind_t kind) {
    return (thumb_t){.kind = kind};
}

static inline thumb_t alu(uint32_t reads, uint32_t writes) {
    return (thumb_t){.kind = (writes & THUMB_PC) != 0 ? THUMB_BRANCH : THUMB_ALU, .normal = reads, .writes = writes};
}

static inline thumb_t access(bool load, uint32_t data, uint32_t address) {
    thumb_t instruction = {.kind = load ? THUMB_LOAD : THUMB_STORE, .early = address};
    if (load) {
        instruction.writes = REG(data);
        instruction.to_pc = data == PC;
    } else {
        instruction.late = REG(data);
    }
    return instruction;
}

static inline thumb_t multiple(bool load, uint32_t list, uint32_t base, bool update) {
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

/* Decoders of the two lengths, for thumb.c. */
thumb_t thumb_decode_16(uint32_t code);
thumb_t thumb_decode_32(uint32_t code);

#endif
