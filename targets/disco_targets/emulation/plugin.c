/*
 * A plugin of QEMU's that estimates cycles: while a board runs, it adds what every executed instruction costs on the board's core to a 64-bit
 * counter in a file, which is also a piece of the board's memory: so the firmware reads it as it would read a cycle counter. The
 * instructions that run are the same with and without it.
 *
 * Arguments: core=NAME, memory=FILE (whole, as the board sees it), offset=BYTES of the counter in it. The counter follows the word
 * COUNTER_MAGIC, which tells the firmware that it counts.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "qemu_plugin.h"
#include "timing.h"

#define COUNTER_MAGIC  0x43594331u /* "CYC1" */
#define COUNTER_BYTES  16u         /* u32 magic, u32 0, u64 cycles */
#define BLOCK_MAX      1024u       /* QEMU translates at most 512 instructions at once */
#define BRANCHES       (1u << 21)  /* no two of 4 MB of code share a place */
#define WEAKLY_TAKEN   2u
#define STRONGLY_TAKEN 3u
#define NO_ADDRESS     UINT64_MAX

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;
QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count, char **arguments);

static const core_t *core;
static uint64_t *cycles;
/* A conditional branch, at the place of the address behind it. */
typedef struct {
    uint32_t target;   /* where it goes to when it is taken, 0 where that is not in the instruction */
    uint8_t predictor; /* two-bit counter */
} branch_t;

static branch_t branches[BRANCHES];
/* Addresses behind the branch that was executed last, until it is known where it went to, and behind one that an exception came after. */
static uint64_t executed = NO_ADDRESS, suspended = NO_ADDRESS;

static branch_t *branch_before(uint64_t next) {
    return &branches[next / 2u % BRANCHES];
}

static void branch_executed(unsigned int cpu, void *next) {
    (void)cpu;
    executed = (uint64_t)(uintptr_t)next;
}

/* An exception enters a block that the branch does not lead to: where the branch went is seen when the exception returns. */
static bool leads_to(uint64_t next, uint64_t address) {
    return address == next || address == branch_before(next)->target;
}

static void predict(uint64_t next, bool taken) {
    uint8_t *const predictor = &branch_before(next)->predictor;
    *cycles += taken ? core->taken : 0;
    *cycles += taken != (*predictor >= WEAKLY_TAKEN) ? core->mispredicted : 0;
    if (taken && *predictor < STRONGLY_TAKEN) {
        ++*predictor;
    } else if (!taken && *predictor > 0) {
        --*predictor;
    }
}

static void block_entered(unsigned int cpu, void *block) {
    const uint64_t address = (uint64_t)(uintptr_t)block;
    (void)cpu;
    if (suspended != NO_ADDRESS && leads_to(suspended, address)) {
        predict(suspended, address != suspended);
        suspended = NO_ADDRESS;
    }
    if (executed == NO_ADDRESS) {
        return;
    }
    if (leads_to(executed, address) || branch_before(executed)->target == 0) {
        predict(executed, address != executed);
    } else {
        suspended = executed;
    }
    executed = NO_ADDRESS;
}

static void accessed(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *per_access) {
    (void)cpu;
    const unsigned int shift = qemu_plugin_mem_size_shift(info);
    *cycles += (uintptr_t)per_access;
    if (shift == 1 && address % 2u != 0) {
        *cycles += core->unaligned_half;
    } else if (shift == 2) {
        *cycles += core->unaligned_word[address % 4u];
    }
}

static uint32_t code_of(const struct qemu_plugin_insn *instruction) {
    const uint8_t *bytes = qemu_plugin_insn_data(instruction);
    const uint32_t first = bytes[0] | (uint32_t)bytes[1] << 8;
    return qemu_plugin_insn_size(instruction) == 2 ? first : first << 16 | bytes[2] | (uint32_t)bytes[3] << 8;
}

static void decode(const struct qemu_plugin_tb *block, size_t count, thumb_t *instructions) {
    size_t conditional = 0; /* how many of the next ones an IT governs */
    for (size_t i = 0; i < count; ++i) {
        const struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        const uint32_t code = code_of(instruction);
        instructions[i] = thumb_decode(code, qemu_plugin_insn_size(instruction));
        if (instructions[i].kind == THUMB_IT) {
            conditional = thumb_it_length(code);
        } else if (conditional > 0) {
            thumb_make_conditional(&instructions[i]);
            --conditional;
        }
    }
}

static void add_branch(const struct qemu_plugin_insn *instruction, uint64_t next) {
    const uint64_t address = qemu_plugin_insn_vaddr(instruction);
    const uint32_t target =
        thumb_branch_target(code_of(instruction), qemu_plugin_insn_size(instruction), (uint32_t)address);
    branch_before(next)->target = target;
}

static void instrument(struct qemu_plugin_insn *instruction, const thumb_t *decoded, timing_t timing) {
    qemu_plugin_register_vcpu_insn_exec_inline(instruction, QEMU_PLUGIN_INLINE_ADD_U64, cycles, timing.cycles);
    qemu_plugin_register_vcpu_mem_cb(instruction, accessed, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
                                     (void *)(uintptr_t)timing.per_access);
    if (decoded->kind == THUMB_CONDITIONAL) {
        const uint64_t next = qemu_plugin_insn_vaddr(instruction) + decoded->size;
        add_branch(instruction, next);
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, branch_executed, QEMU_PLUGIN_CB_NO_REGS,
                                               (void *)(uintptr_t)next);
    }
}

static void block_translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    static thumb_t instructions[BLOCK_MAX];
    static timing_t timings[BLOCK_MAX];
    (void)id;
    const size_t all = qemu_plugin_tb_n_insns(block);
    const size_t count = all < BLOCK_MAX ? all : BLOCK_MAX;
    decode(block, count, instructions);
    core->block(instructions, count, timings);
    qemu_plugin_register_vcpu_tb_exec_cb(block, block_entered, QEMU_PLUGIN_CB_NO_REGS,
                                         (void *)(uintptr_t)qemu_plugin_tb_vaddr(block));
    for (size_t i = 0; i < count; ++i) {
        instrument(qemu_plugin_tb_get_insn(block, i), &instructions[i], timings[i]);
    }
}

/* ---- arguments --------------------------------------------------------------------------------------------------------------- */

static const char *argument(const char *name, int count, char **arguments) {
    const size_t length = strlen(name);
    for (int i = 0; i < count; ++i) {
        if (strncmp(arguments[i], name, length) == 0 && arguments[i][length] == '=') {
            return arguments[i] + length + 1;
        }
    }
    return "";
}

static const core_t *find_core(const char *name) {
    static const core_t *const cores[] = {&timing_cortex_m4, &timing_cortex_m7};
    for (size_t i = 0; i < sizeof cores / sizeof cores[0]; ++i) {
        if (strcmp(cores[i]->name, name) == 0) {
            return cores[i];
        }
    }
    return NULL;
}

/* The counter's place in the file, NULL where it cannot be mapped. */
static uint64_t *map_counter(const char *path, uint64_t offset) {
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        return NULL;
    }
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t start = offset / page * page;
    char *memory =
        mmap(NULL, (size_t)(offset - start + COUNTER_BYTES), PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)start);
    (void)close(file);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    uint32_t *words = (void *)(memory + (offset - start));
    words[0] = COUNTER_MAGIC;
    return (void *)(words + 2);
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count, char **arguments) {
    (void)info;
    core = find_core(argument("core", count, arguments));
    cycles = map_counter(argument("memory", count, arguments), strtoull(argument("offset", count, arguments), NULL, 0));
    if (core == NULL || cycles == NULL) {
        (void)fprintf(stderr, "cycle estimate: %s\n", core == NULL ? "unknown core" : "no memory to count in");
        return 1;
    }
    for (size_t i = 0; i < BRANCHES; ++i) {
        branches[i].predictor = WEAKLY_TAKEN;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, block_translated);
    return 0;
}
