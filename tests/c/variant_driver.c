/*
 * Runs the variant cases that were compiled in. For each: "case N INSTRUCTIONS" (0 where they cannot be counted), or
 * "case N wrong" with the place and what is wrong. On a PC every buffer is a heap block of exactly its size, so that the
 * address sanitizer sees any access beyond it; on a board it lies between guard bytes.
 */
#include "variant_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD       32u
#define GUARD_VALUE 0x5a
#define ALIGNMENT   16u

#if defined(VARIANT_TIMER) /* a CMSDK timer, which counts down */
static volatile uint32_t *const timer = (volatile uint32_t *)VARIANT_TIMER;

static void start_counter(void) {
    timer[0] = 0;
    timer[1] = timer[2] = UINT32_MAX;
    timer[0] = 1;
}

static uint32_t read_counter(void) {
    return timer[1];
}
#else
static void start_counter(void) {}

static uint32_t read_counter(void) {
    return 0;
}
#endif

typedef struct {
    int8_t *block, *data;
    size_t bytes;
} buffer_t;

static void die(const char *what) {
    (void)fprintf(stderr, "variant_driver: %s\n", what);
    exit(EXIT_FAILURE);
}

/* A buffer at an offset of the arena, or a block of its own. */
static buffer_t new_buffer(uint32_t offset, size_t bytes, const int8_t *content) {
    buffer_t buffer = {NULL, NULL, bytes};
#if defined(VARIANT_EXACT_BLOCKS)
    buffer.block = buffer.data = malloc(bytes > 0 ? bytes : 1);
    (void)offset;
#else
    if (offset == 0) {
        buffer.block = malloc(bytes + 2 * GUARD + ALIGNMENT);
        if (buffer.block != NULL) {
            buffer.data =
                buffer.block + GUARD + (ALIGNMENT - (uintptr_t)(buffer.block + GUARD) % ALIGNMENT) % ALIGNMENT;
        }
    } else {
        buffer.data = variant_arena + offset;
    }
#endif
    if (buffer.data == NULL) {
        die("no memory");
    }
#if !defined(VARIANT_EXACT_BLOCKS)
    memset(buffer.data - GUARD, GUARD_VALUE, GUARD);
    memset(buffer.data + bytes, GUARD_VALUE, GUARD);
#endif
    if (content != NULL) {
        memcpy(buffer.data, content, bytes);
    } else {
        for (size_t i = 0; i < bytes; i++) {
            buffer.data[i] = (int8_t)(i * 7 + 3);
        }
    }
    return buffer;
}

static int guards_are_intact(const buffer_t *buffer) {
#if !defined(VARIANT_EXACT_BLOCKS)
    for (size_t i = 0; i < GUARD; i++) {
        if ((buffer->data - GUARD)[i] != GUARD_VALUE || buffer->data[buffer->bytes + i] != GUARD_VALUE) {
            return 0;
        }
    }
#endif
    (void)buffer;
    return 1;
}

static int is_right(uint32_t number, const char *what, const buffer_t *buffer, const int8_t *wanted) {
    if (!guards_are_intact(buffer)) {
        printf("case %lu wrong: bytes around the %s were written\n", (unsigned long)number, what);
        return 0;
    }
    for (size_t i = 0; wanted != NULL && i < buffer->bytes; i++) {
        if (buffer->data[i] != wanted[i]) {
            printf("case %lu wrong: byte %lu of the %s is %d, not %d\n", (unsigned long)number, (unsigned long)i, what,
                   buffer->data[i], wanted[i]);
            return 0;
        }
    }
    return 1;
}

/* Makes the rows of an input right that a range may read, and all others wrong. */
static void provide(const buffer_t *buffer, const disco_input_t *wanted, const uint16_t *rows) {
    const size_t row_bytes = (size_t)wanted->width * wanted->stride;
    for (size_t i = 0; i < buffer->bytes; i++) {
        const size_t row = i / row_bytes;
        const int8_t right = wanted->data[i];
        buffer->data[i] = row >= rows[0] && row < rows[1] ? right : (int8_t)~right;
    }
}

static int is_unchanged(uint32_t number, const buffer_t *buffer, const disco_input_t *wanted, const uint16_t *rows) {
    const size_t row_bytes = (size_t)wanted->width * wanted->stride, begin = rows[0] * row_bytes;
    if (memcmp(buffer->data + begin, wanted->data + begin, (rows[1] - rows[0]) * row_bytes) != 0) {
        printf("case %lu wrong: the input was written\n", (unsigned long)number);
        return 0;
    }
    return 1;
}

static int run_case(uint32_t number, const variant_case_t *c) {
    disco_input_t in[VARIANT_MAX_INPUTS] = {{0}};
    disco_output_t out = c->output;
    buffer_t inputs[VARIANT_MAX_INPUTS];
    for (uint32_t i = 0; i < c->input_count; i++) {
        in[i] = c->inputs[i];
        inputs[i] = new_buffer(c->input_offset[i], (size_t)in[i].height * in[i].width * in[i].stride, in[i].data);
        in[i].data = inputs[i].data;
    }
    buffer_t output = new_buffer(c->output_offset, (size_t)out.height * out.width * out.stride, c->before);
    buffer_t scratch = new_buffer(c->scratch_offset, c->scratch_bytes, NULL);
    out.data = output.data;
    uint32_t ticks = 0;
    int right = 1;
    for (uint32_t i = 0; i < c->range_count; i++) {
        for (uint32_t k = 0; k < c->input_count; k++) {
            provide(&inputs[k], &c->inputs[k], c->input_rows[k] + 2 * i);
        }
        start_counter();
        const uint32_t begin = read_counter();
        c->run(in, &out, scratch.data, c->rows[i], c->rows[i + 1]);
        ticks += begin - read_counter();
        for (uint32_t k = 0; k < c->input_count; k++) {
            right = right && is_unchanged(number, &inputs[k], &c->inputs[k], c->input_rows[k] + 2 * i);
        }
    }
    right = right && is_right(number, "output", &output, c->after) && is_right(number, "scratch", &scratch, NULL);
    for (uint32_t i = 0; i < c->input_count; i++) {
        right = right && is_right(number, "input", &inputs[i], NULL);
        free(inputs[i].block);
    }
    free(output.block);
    free(scratch.block);
    if (right) {
        printf("case %lu %lu\n", (unsigned long)number, (unsigned long)ticks);
    }
    return right;
}

int main(void) {
    int status = EXIT_SUCCESS;
    for (uint32_t i = 0; i < variant_case_count; i++) {
        if (!run_case(i, &variant_cases[i])) {
            status = EXIT_FAILURE;
        }
    }
    return status;
}
