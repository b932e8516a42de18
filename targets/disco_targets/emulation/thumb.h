/* What a Thumb-2 instruction does to registers and to memory, as far as its timing depends on it (Armv7-M Architecture Reference Manual,
 * DDI 0403, chapter A5). */
#ifndef DISCO_THUMB_H
#define DISCO_THUMB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define THUMB_PC    (1u << 15)
#define THUMB_FLAGS (1u << 16) /* the condition flags, as if they were a register */

typedef enum {
    THUMB_ALU,
    THUMB_SIMD, /* extension, saturation, bit fields, parallel arithmetic */
    THUMB_MAC,
    THUMB_DIVIDE,
    THUMB_LOAD,        /* of one register */
    THUMB_STORE,       /* of one register */
    THUMB_MULTIPLE,    /* LDM, STM, PUSH, POP, LDRD, STRD */
    THUMB_BRANCH,      /* always taken */
    THUMB_CONDITIONAL, /* a branch that may be taken, whatever its form */
    THUMB_TABLE,       /* TBB, TBH */
    THUMB_IT,
    THUMB_NOP,
    THUMB_SYSTEM, /* MRS, MSR, CPS, barriers but ISB, and what is not known here: floating point, coprocessors */
    THUMB_ISB
} thumb_kind_t;

typedef struct {
    thumb_kind_t kind;
    uint8_t size;      /* bytes */
    uint8_t registers; /* of a THUMB_MULTIPLE */
    bool indexed;      /* base and index register */
    bool shifted;      /* uses a shifter */
    bool slow;         /* a load of less than a word, a saturation */
    bool to_pc;        /* loads the program counter */
    /* Sets of registers. */
    uint32_t early;   /* read before the others: addresses and what is shifted */
    uint32_t normal;  /* read */
    uint32_t late;    /* read after the others: accumulators and what is stored */
    uint32_t writes;  /* results */
    uint32_t updates; /* base registers that are written back */
} thumb_t;

/* Decodes one instruction: `code` is its first halfword in the upper half where it has two (`size` 4), else all of it. */
thumb_t thumb_decode(uint32_t code, size_t size);

/* Where a conditional branch of these at `address` goes to: B<c>, CBZ, CBNZ; 0 for all other forms. */
uint32_t thumb_branch_target(uint32_t code, size_t size, uint32_t address);

/* How many instructions an IT instruction makes conditional. */
size_t thumb_it_length(uint32_t code);

/* The same instruction as part of an IT block. */
void thumb_make_conditional(thumb_t *instruction);

#endif
