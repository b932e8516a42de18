/*
 * Cortex-M7. Arm publishes no table of its timings (the Technical Reference Manual, DDI 0489, has none). What is modelled is an in-order core
 * that issues up to two instructions a cycle, with the units, latencies and pairing rules of LLVM's scheduling model
 * (llvm/lib/Target/ARM/ARMScheduleM7.td), which compilers order code by:
 *   two ALUs, two load units for one register each, one unit each for stores, multiplication, shifts, SIMD and branches;
 *   results after 1 cycle, of multiplications, loads of less than a word and saturations after 2; addresses and shifted operands are needed
 *   one cycle earlier, accumulators and stored values one cycle later;
 *   bit fields, extensions, saturations and parallel arithmetic only first in a pair, multiple loads and stores, divisions and system
 *   instructions alone.
 * Assumed beyond that: all memory answers at once (caches hit, or code and data are in tightly coupled memory); multiple loads and stores
 * move two registers a cycle; a division takes 7 cycles; an unaligned access takes one more; conditional branches are predicted by a
 * two-bit counter each, a wrong prediction costs 6 cycles; all other branches are predicted; nothing is in flight where a translated block begins.
 */
#include "timing.h"

#define REGISTERS     17u
#define SYSTEM_CYCLES 3u
#define DIVIDE_CYCLES 7u

typedef enum { UNIT_ALU, UNIT_LOAD, UNIT_STORE, UNIT_MAC, UNIT_SHIFT, UNIT_SIMD, UNIT_BRANCH, UNITS } unit_t;

static const uint8_t unit_counts[UNITS] = {2, 2, 1, 1, 1, 1, 1};

typedef struct {
    int cycle;            /* in which the last instruction was issued */
    unsigned issued;      /* instructions in that cycle */
    bool alone;           /* nothing may be added to it */
    uint8_t units[UNITS]; /* in use */
    int ready[REGISTERS]; /* cycle in which a value can be read */
} pipeline_t;

static bool is_single_issue(const thumb_t *instruction) {
    switch (instruction->kind) {
    case THUMB_MULTIPLE:
    case THUMB_DIVIDE:
    case THUMB_TABLE:
    case THUMB_SYSTEM:
    case THUMB_ISB:
        return true;
    default:
        return false;
    }
}

static unit_t unit_of(const thumb_t *instruction) {
    switch (instruction->kind) {
    case THUMB_LOAD:
        return UNIT_LOAD;
    case THUMB_STORE:
        return UNIT_STORE;
    case THUMB_MAC:
        return UNIT_MAC;
    case THUMB_BRANCH:
    case THUMB_CONDITIONAL:
        return UNIT_BRANCH;
    default:
        return UNIT_ALU;
    }
}

/* The units of an instruction; NOP and IT need none. */
static void units_of(const thumb_t *instruction, uint8_t *units) {
    if (instruction->kind != THUMB_NOP && instruction->kind != THUMB_IT) {
        ++units[unit_of(instruction)];
    }
    if (instruction->shifted) {
        ++units[UNIT_SHIFT];
    }
    if (instruction->kind == THUMB_SIMD) {
        ++units[UNIT_SIMD];
    }
}

static bool fits(const pipeline_t *pipeline, const thumb_t *instruction) {
    if (pipeline->alone || pipeline->issued >= 2) {
        return false;
    }
    if (pipeline->issued > 0 && (is_single_issue(instruction) || instruction->kind == THUMB_SIMD)) {
        return false;
    }
    uint8_t units[UNITS] = {0};
    units_of(instruction, units);
    for (unsigned i = 0; i < UNITS; ++i) {
        if (pipeline->units[i] + units[i] > unit_counts[i]) {
            return false;
        }
    }
    return true;
}

static int latest(const pipeline_t *pipeline, uint32_t registers, int advance) {
    int cycle = 0;
    for (unsigned i = 0; i < REGISTERS; ++i) {
        if ((registers >> i & 1u) != 0 && pipeline->ready[i] - advance > cycle) {
            cycle = pipeline->ready[i] - advance;
        }
    }
    return cycle;
}

static void advance_to(pipeline_t *pipeline, int cycle) {
    pipeline->cycle = cycle;
    pipeline->issued = 0;
    pipeline->alone = false;
    for (unsigned i = 0; i < UNITS; ++i) {
        pipeline->units[i] = 0;
    }
}

static int latency(const thumb_t *instruction) {
    return instruction->kind == THUMB_MAC || instruction->slow ? 2 : 1;
}

/* Cycles that the instruction keeps the issue stage beyond its first. */
static int stall(const thumb_t *instruction) {
    switch (instruction->kind) {
    case THUMB_MULTIPLE:
        return (instruction->registers + 1) / 2 - 1;
    case THUMB_DIVIDE:
        return (int)DIVIDE_CYCLES - 1;
    case THUMB_TABLE:
        return 1;
    case THUMB_SYSTEM:
    case THUMB_ISB:
        return (int)SYSTEM_CYCLES - 1;
    default:
        return 0;
    }
}

static void issue(pipeline_t *pipeline, const thumb_t *instruction) {
    int cycle = latest(pipeline, instruction->normal, 0);
    const int early = latest(pipeline, instruction->early, -1);
    const int late = latest(pipeline, instruction->late, 1);
    cycle = early > cycle ? early : cycle;
    cycle = late > cycle ? late : cycle;
    if (cycle > pipeline->cycle) {
        advance_to(pipeline, cycle);
    } else if (!fits(pipeline, instruction)) {
        advance_to(pipeline, pipeline->cycle + 1);
    }
    ++pipeline->issued;
    pipeline->alone = is_single_issue(instruction);
    units_of(instruction, pipeline->units);
    pipeline->cycle += stall(instruction);
    for (unsigned i = 0; i < REGISTERS; ++i) {
        if ((instruction->writes >> i & 1u) != 0) {
            pipeline->ready[i] = pipeline->cycle + latency(instruction);
        } else if ((instruction->updates >> i & 1u) != 0) {
            pipeline->ready[i] = pipeline->cycle;
        }
    }
}

static void block(const thumb_t *instructions, size_t count, timing_t *timings) {
    /* What is read early in cycle 0 was ready one before. */
    pipeline_t pipeline = {.cycle = -1, .issued = 2};
    for (unsigned i = 0; i < REGISTERS; ++i) {
        pipeline.ready[i] = -1;
    }
    for (size_t i = 0; i < count; ++i) {
        const int before = pipeline.cycle;
        issue(&pipeline, &instructions[i]);
        timings[i] = (timing_t){.cycles = (uint8_t)(pipeline.cycle - before)};
    }
}

const core_t timing_cortex_m7 = {
    .name = "cortex-m7",
    .block = block,
    .unaligned_half = 1,
    .unaligned_word = {0, 1, 1, 1},
    .taken = 0,
    .mispredicted = 6,
};
