/*
 * Runs the Helium kernels on the cases of cases.bin and writes their whole output buffers to results.bin. The first
 * input ends with a memory, the second (or else the first array) with another one: a byte read beyond is a fault. Guard
 * bytes surround what is written. The format is that of tests/helpers/variant_mve.py.
 *
 * With VARIANT_CASES, a file made by that module, the kernels are called as generated code calls them: everything is
 * constant but the rows, and the compiler specialises each call.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disco/kernels.h"

#include "variants/add_mve.h"
#include "variants/conv2d_mve.h"
#include "variants/depthwise_mve.h"
#include "variants/fully_connected_mve.h"
#include "variants/pool_mve.h"

#include "case_file.h" /* after kernels, whose parameters bear the names of its variables */

#define MAX_PARAMS  24
#define MAX_ARRAYS  3
#define MAX_INPUTS  2
#define GUARD_BYTES 64u
#define BLOCK_BYTES (160u * 1024u)
#define GUARD       0x5A
#define POISON      0xA5

extern uint8_t test_first_end[], test_second_end[];

typedef struct {
    int32_t params[MAX_PARAMS];
    void *arrays[MAX_ARRAYS];
    disco_input_t inputs[MAX_INPUTS];
    disco_output_t output;
    uint8_t *scratch;
    uint32_t scratch_bytes, output_bytes;
} case_t;

static FILE *results;
/* What lies between guards: output, scratch memory, arrays. */
static _Alignas(16) uint8_t output_block[BLOCK_BYTES], scratch_block[BLOCK_BYTES],
    array_blocks[MAX_ARRAYS][BLOCK_BYTES];

#if defined(VARIANT_CASES)
#include VARIANT_CASES
#endif

/* The `length` bytes of a block between its guards. */
static uint8_t *guarded(uint8_t *block, uint32_t length) {
    if (length > BLOCK_BYTES - 2 * GUARD_BYTES) {
        die("a buffer is too long");
    }
    memset(block, GUARD, length + 2 * GUARD_BYTES);
    return block + GUARD_BYTES;
}

static void check_guards(const uint8_t *bytes, uint32_t length, const char *what) {
    for (uint32_t i = 0; i < GUARD_BYTES; i++) {
        if (bytes[-1 - (int32_t)i] != GUARD || bytes[length + i] != GUARD) {
            die(what);
        }
    }
}

static void *read_array(uint8_t *bytes, uint32_t length) {
    read_bytes(bytes, length);
    return bytes;
}

static void read_inputs(case_t *c) {
    const uint32_t count = read_count(MAX_INPUTS);
    for (uint32_t i = 0; i < count; i++) {
        uint16_t sizes[4];
        read_bytes(sizes, sizeof sizes);
        const uint32_t length = (uint32_t)sizes[0] * sizes[1] * sizes[3];
        const int8_t *const data = read_array((i == 0 ? test_first_end : test_second_end) - length, length);
        const disco_input_t view = {data, sizes[0], sizes[1], sizes[2], sizes[3]};
        c->inputs[i] = view;
    }
}

static void read_case(case_t *c) {
    read_bytes(c->params, read_count(MAX_PARAMS) * sizeof c->params[0]);
    const uint32_t arrays = read_count(MAX_ARRAYS);
    for (uint32_t i = 0; i < arrays; i++) {
        const uint32_t length = read_u32();
        c->arrays[i] = read_array(i == 0 ? test_second_end - length : guarded(array_blocks[i], length), length);
    }
    c->scratch_bytes = read_u32();
    c->scratch = guarded(scratch_block, c->scratch_bytes);
    memset(c->scratch, POISON, c->scratch_bytes);
    read_inputs(c);
    uint16_t sizes[4];
    read_bytes(sizes, sizeof sizes);
    c->output_bytes = (uint32_t)sizes[0] * sizes[1] * sizes[3];
    const disco_output_t view = {read_array(guarded(output_block, c->output_bytes), c->output_bytes), sizes[0],
                                 sizes[1], sizes[2], sizes[3]};
    c->output = view;
}

#if !defined(VARIANT_CASES)
static disco_window_t window_of(const int32_t *p) {
    const disco_window_t window = {(uint16_t)p[0], (uint16_t)p[1], (uint16_t)p[2], (uint16_t)p[3],
                                   (uint16_t)p[4], (uint16_t)p[5], (uint16_t)p[6], (uint16_t)p[7]};
    return window;
}

static disco_requantise_mve_t requantise_of(const int32_t *p) {
    const disco_requantise_mve_t requantise = {p[0], p[1], p[2], p[3] != 0};
    return requantise;
}

static void run_conv2d(const case_t *c, uint16_t begin, uint16_t end) {
    const int32_t *const p = c->params;
    const disco_conv2d_mve_t op = {window_of(p),   c->arrays[0],   c->arrays[1], c->arrays[2],
                                   (uint16_t)p[8], (uint16_t)p[9], p[10],        requantise_of(p + 11)};
    disco_conv2d_mve(&op, c->inputs, &c->output, c->scratch, begin, end);
}

static void run_depthwise(const case_t *c, uint16_t begin, uint16_t end) {
    const int32_t *const p = c->params;
    const disco_depthwise_mve_t op = {window_of(p),   c->arrays[0], c->arrays[1],
                                      (uint16_t)p[8], p[9],         requantise_of(p + 10)};
    disco_depthwise_mve(&op, c->inputs, &c->output, c->scratch, begin, end);
}

static void run_fully_connected(const case_t *c, uint16_t begin, uint16_t end) {
    const int32_t *const p = c->params;
    const disco_fully_connected_mve_t op = {c->arrays[0], c->arrays[1], (uint16_t)p[0], requantise_of(p + 1)};
    disco_fully_connected_mve(&op, c->inputs, &c->output, c->scratch, begin, end);
}

static void run_add(const case_t *c, uint16_t begin, uint16_t end) {
    const int32_t *const p = c->params;
    const disco_add_mve_t op = {p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], requantise_of(p + 8)};
    disco_add_mve(&op, c->inputs, &c->output, c->scratch, begin, end);
}

static void run_average_pool(const case_t *c, uint16_t begin, uint16_t end) {
    const disco_pool2d_t op = {window_of(c->params), c->params[8], c->params[9]};
    disco_average_pool2d_mve(&op, c->inputs, &c->output, c->scratch, begin, end);
}

static void run_max_pool(const case_t *c, uint16_t begin, uint16_t end) {
    const disco_pool2d_t op = {window_of(c->params), c->params[8], c->params[9]};
    disco_max_pool2d_mve(&op, c->inputs, &c->output, c->scratch, begin, end);
}

static void run_mean(const case_t *c, uint16_t begin, uint16_t end) {
    const int32_t *const p = c->params;
    const disco_mean_t op = {p[0], p[1], p[2], (int8_t)p[3]};
    disco_mean_mve(&op, c->inputs, &c->output, c->scratch, begin, end);
}

static void (*const kernels[])(const case_t *c, uint16_t begin, uint16_t end) = {
    run_conv2d, run_depthwise, run_fully_connected, run_add, run_average_pool, run_max_pool, run_mean,
};

#endif

static void run_case(uint32_t number) {
    case_t c;
    const uint32_t kernel = read_u32();
    read_case(&c);
    const uint32_t ranges = read_u32();
    for (uint32_t i = 0; i < ranges; i++) {
        uint16_t range[2];
        read_bytes(range, sizeof range);
#if defined(VARIANT_CASES)
        (void)kernel;
        variant_cases[number](range[0], range[1]);
#else
        (void)number;
        kernels[kernel](&c, range[0], range[1]);
#endif
    }
    check_guards((const uint8_t *)c.output.data, c.output_bytes, "a byte beside the output was written");
    check_guards(c.scratch, c.scratch_bytes, "a byte beside the scratch memory was written");
    if (fwrite(c.output.data, 1, c.output_bytes, results) != c.output_bytes) {
        die("the results cannot be written");
    }
}

int main(void) {
    source = fopen("cases.bin", "rb");
    results = fopen("results.bin", "wb");
    if (source == NULL || results == NULL) {
        die("a file cannot be opened");
    }
    const uint32_t count = read_u32();
    for (uint32_t number = 0; number < count; number++) {
        run_case(number);
    }
    return fclose(results) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
