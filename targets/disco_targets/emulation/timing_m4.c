/*
 * Cortex-M4, from Arm's Cortex-M4 Processor Technical Reference Manual, DDI 0439D (r0p1): table 3-1 "Cortex-M4 instruction set summary",
 * table 3-2 "Cortex-M4 DSP instruction set summary" and section 3.3.2 "Load/store timings", all for memory without wait states. Where the
 * manual gives a range:
 *   P, the refill of the pipeline, 1 to 3        2 (loads of the program counter and TBB, TBH: 3, as section 3.3.2 says)
 *   SDIV, UDIV, 2 to 12                          7
 *   CPS, MRS, MSR, 1 or 2                        2
 *   DSB, DMB, 1 + B                              2
 *   IT, "can be folded" into a 16-bit one        0 behind a 16-bit instruction, else 1
 * Not in the estimate: wait states of flash, contention on the bus, a full write buffer, what the alignment of 32-bit instructions costs,
 * entry and return of interrupts, and loads that are pipelined across the border of two translated blocks.
 */
#include "timing.h"

#define REFILL          2u
#define REFILL_BLOCKING 3u
#define DIVIDE          7u

/* Is this access pipelined with the load in front of it? */
static bool is_pipelined(const thumb_t *before, const thumb_t *access) {
    return before != NULL && before->kind == THUMB_LOAD && (before->writes & access->early) == 0;
}

static bool is_data_processing(const thumb_t *instruction) {
    return instruction->kind <= THUMB_DIVIDE;
}

/* "Any load or store that generates an address dependent on the result of a preceding data processing operation stalls the pipeline for an
 * additional cycle." */
static uint8_t address_stall(const thumb_t *before, const thumb_t *access) {
    return before != NULL && is_data_processing(before) && (before->writes & access->early) != 0;
}

static timing_t access_timing(const thumb_t *before, const thumb_t *access) {
    timing_t timing = {.cycles = (uint8_t)(1u + address_stall(before, access))};
    if (access->kind == THUMB_MULTIPLE) {
        timing.per_access = 1;
    } else if (access->kind == THUMB_LOAD || access->indexed) { /* any other store is one cycle */
        timing.per_access = is_pipelined(before, access) ? 0 : 1;
    }
    if (access->to_pc) {
        timing.cycles = (uint8_t)(timing.cycles + (access->kind == THUMB_LOAD ? REFILL_BLOCKING : REFILL));
    }
    return timing;
}

static timing_t timing(const thumb_t *before, const thumb_t *instruction) {
    switch (instruction->kind) {
    case THUMB_LOAD:
    case THUMB_STORE:
    case THUMB_MULTIPLE:
        return access_timing(before, instruction);
    case THUMB_DIVIDE:
        return (timing_t){.cycles = DIVIDE};
    case THUMB_BRANCH:
    case THUMB_ISB:
        return (timing_t){.cycles = 1 + REFILL};
    case THUMB_TABLE: /* "two cycles for the load, one cycle for the add, and three cycles for the pipeline reload" */
        return (timing_t){.cycles = 2 + REFILL_BLOCKING, .per_access = 1};
    case THUMB_IT:
        return (timing_t){.cycles = before != NULL && before->size == 2 ? 0 : 1};
    case THUMB_SYSTEM:
        return (timing_t){.cycles = 2};
    default:
        return (timing_t){.cycles = 1};
    }
}

static void block(const thumb_t *instructions, size_t count, timing_t *timings) {
    for (size_t i = 0; i < count; ++i) {
        timings[i] = timing(i > 0 ? &instructions[i - 1] : NULL, &instructions[i]);
    }
}

const core_t timing_cortex_m4 = {
    .name = "cortex-m4",
    .block = block,
    .unaligned_half = 1,
    .unaligned_word = {0, 2, 1, 2},
    .taken = REFILL,
    .mispredicted = 0,
};
