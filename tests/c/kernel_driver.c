/*
 * Runs kernels on the cases of cases.bin and writes their whole output buffers to results.bin, both in the working
 * directory (an emulated board has no command line). Every array lies in a heap block of exactly its size, so that the
 * address sanitizer sees any access beyond it. The format is that of tests/helpers/kernel_driver.py.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "disco/kernels.h"

#include "case_file.h"

#define MAX_PARAMS 16
#define MAX_ARRAYS 4
#define MAX_INPUTS 2
#define ABSENT     0xFFFFFFFFu

typedef struct {
    int32_t params[MAX_PARAMS];
    void *arrays[MAX_ARRAYS];
    disco_input_t inputs[MAX_INPUTS];
    disco_output_t output;
    uint32_t param_count, array_count, input_count;
} case_t;

static void *read_block(size_t length) {
    void *const block = malloc(length > 0 ? length : 1);
    if (block == NULL) {
        die("no memory");
    }
    read_bytes(block, length);
    return block;
}

/* Height, width, channels, stride; then the pixels. */
static int8_t *read_view(uint16_t sizes[4]) {
    read_bytes(sizes, 4 * sizeof sizes[0]);
    return read_block((size_t)sizes[0] * sizes[1] * sizes[3]);
}

static void read_case(case_t *c) {
    uint16_t sizes[4];
    c->param_count = read_count(MAX_PARAMS);
    read_bytes(c->params, c->param_count * sizeof c->params[0]);
    c->array_count = read_count(MAX_ARRAYS);
    for (uint32_t i = 0; i < c->array_count; i++) {
        const uint32_t length = read_u32();
        c->arrays[i] = length == ABSENT ? NULL : read_block(length);
    }
    c->input_count = read_count(MAX_INPUTS);
    for (uint32_t i = 0; i < c->input_count; i++) {
        const int8_t *const data = read_view(sizes);
        const disco_input_t view = {data, sizes[0], sizes[1], sizes[2], sizes[3]};
        c->inputs[i] = view;
    }
    int8_t *const data = read_view(sizes);
    const disco_output_t view = {data, sizes[0], sizes[1], sizes[2], sizes[3]};
    c->output = view;
}

static void free_case(case_t *c) {
    for (uint32_t i = 0; i < c->array_count; i++) {
        free(c->arrays[i]);
    }
    for (uint32_t i = 0; i < c->input_count; i++) {
        union {
            const int8_t *read;
            void *block;
        } data = {c->inputs[i].data};
        free(data.block);
    }
    free(c->output.data);
}

static disco_window_t window_of(const int32_t *p) {
    const disco_window_t window = {(uint16_t)p[0], (uint16_t)p[1], (uint16_t)p[2], (uint16_t)p[3],
                                   (uint16_t)p[4], (uint16_t)p[5], (uint16_t)p[6], (uint16_t)p[7]};
    return window;
}

static disco_requantise_t requantise_of(void *const *arrays, const int32_t *p) {
    const disco_requantise_t requantise = {arrays[0], arrays[1], p[0], p[1], p[2]};
    return requantise;
}

static void run_conv2d(const case_t *c, uint16_t begin, uint16_t end) {
    const int32_t *const p = c->params;
    const disco_conv2d_t op = {window_of(p), c->arrays[0], c->arrays[1], p[8], requantise_of(c->arrays + 2, p + 9)};
    disco_conv2d_s8(&op, &c->inputs[0], &c->output, begin, end);
}

static void run_depthwise(const case_t *c, uint16_t begin, uint16_t end) {
    const int32_t *const p = c->params;
    const disco_depthwise_conv2d_t op = {window_of(p),    c->arrays[0], c->arrays[1],
                                         (uint16_t)p[12], p[8],         requantise_of(c->arrays + 2, p + 9)};
    disco_depthwise_conv2d_s8(&op, &c->inputs[0], &c->output, begin, end);
}

static void run_fully_connected(const case_t *c, uint16_t begin, uint16_t end) {
    const int32_t *const p = c->params;
    const disco_fully_connected_t op = {c->arrays[0], c->arrays[1], p[0], requantise_of(c->arrays + 2, p + 1)};
    disco_fully_connected_s8(&op, &c->inputs[0], &c->output, begin, end);
}

static void run_add(const case_t *c, uint16_t begin, uint16_t end) {
    const int32_t *const p = c->params;
    const disco_add_t op = {p[0],         p[1],         p[2],         p[3],         p[4],  p[5],
                            (int8_t)p[6], (int8_t)p[7], (int8_t)p[8], (int8_t)p[9], p[10], p[11]};
    disco_add_s8(&op, &c->inputs[0], &c->inputs[1], &c->output, begin, end);
}

static void run_mul(const case_t *c, uint16_t begin, uint16_t end) {
    const int32_t *const p = c->params;
    const disco_mul_t op = {p[0], p[1], p[2], p[3], (int8_t)p[4], p[5], p[6]};
    disco_mul_s8(&op, &c->inputs[0], &c->inputs[1], &c->output, begin, end);
}

static void run_average_pool(const case_t *c, uint16_t begin, uint16_t end) {
    const disco_pool2d_t op = {window_of(c->params), c->params[8], c->params[9]};
    disco_average_pool2d_s8(&op, &c->inputs[0], &c->output, begin, end);
}

static void run_max_pool(const case_t *c, uint16_t begin, uint16_t end) {
    const disco_pool2d_t op = {window_of(c->params), c->params[8], c->params[9]};
    disco_max_pool2d_s8(&op, &c->inputs[0], &c->output, begin, end);
}

static void run_mean(const case_t *c, uint16_t begin, uint16_t end) {
    const disco_mean_t op = {c->params[0], c->params[1], c->params[2], (int8_t)c->params[3]};
    disco_mean_s8(&op, &c->inputs[0], &c->output, begin, end);
}

static void run_pad(const case_t *c, uint16_t begin, uint16_t end) {
    const disco_pad_t op = {(uint16_t)c->params[0], (uint16_t)c->params[1], (int8_t)c->params[2]};
    disco_pad_s8(&op, &c->inputs[0], &c->output, begin, end);
}

static void run_copy_channels(const case_t *c, uint16_t begin, uint16_t end) {
    for (uint32_t i = 0; i < c->input_count; i++) {
        const disco_copy_channels_t op = {(uint16_t)c->params[i]};
        disco_copy_channels_s8(&op, &c->inputs[i], &c->output, begin, end);
    }
}

static void run_select_channels(const case_t *c, uint16_t begin, uint16_t end) {
    const disco_select_channels_t op = {c->arrays[0]};
    disco_select_channels_s8(&op, &c->inputs[0], &c->output, begin, end);
}

static void run_reshape(const case_t *c, uint16_t begin, uint16_t end) {
    (void)begin;
    (void)end;
    disco_reshape_s8(&c->inputs[0], &c->output);
}

static void run_relu(const case_t *c, uint16_t begin, uint16_t end) {
    const int32_t *const p = c->params;
    const disco_relu_t op = {p[0], p[1], p[2], (int8_t)p[3], p[4], p[5]};
    disco_relu_s8(&op, &c->inputs[0], &c->output, begin, end);
}

static void run_softmax(const case_t *c, uint16_t begin, uint16_t end) {
    const disco_softmax_t op = {c->params[0], (int8_t)c->params[1], c->params[2]};
    disco_softmax_s8(&op, &c->inputs[0], &c->output, begin, end);
}

/* In the order of KERNELS in tests/helpers/kernel_driver.py. */
static void (*const runners[])(const case_t *, uint16_t, uint16_t) = {
    run_conv2d, run_depthwise,     run_fully_connected, run_add,     run_average_pool, run_max_pool, run_mean,
    run_pad,    run_copy_channels, run_select_channels, run_reshape, run_relu,         run_softmax,  run_mul,
};

int main(void) {
    source = fopen("cases.bin", "rb");
    FILE *const results = fopen("results.bin", "wb");
    if (source == NULL || results == NULL) {
        die("cannot open the files");
    }
    for (uint32_t remaining = read_u32(); remaining > 0; remaining--) {
        case_t c;
        const uint32_t kernel = read_count(sizeof runners / sizeof runners[0] - 1);
        read_case(&c);
        for (uint32_t ranges = read_u32(); ranges > 0; ranges--) {
            uint16_t range[2];
            read_bytes(range, sizeof range);
            runners[kernel](&c, range[0], range[1]);
        }
        const size_t length = (size_t)c.output.height * c.output.width * c.output.stride;
        if (fwrite(c.output.data, 1, length, results) != length) {
            die("cannot write");
        }
        free_case(&c);
    }
    return fclose(results) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
