/* What tests/helpers/variant_boards.py writes and tests/c/variant_driver.c runs: calls of kernel variants. */
#ifndef DISCO_TEST_VARIANT_DRIVER_H
#define DISCO_TEST_VARIANT_DRIVER_H

#include <stdint.h>

#include "disco/kernels.h"

#define VARIANT_MAX_INPUTS 2

typedef struct {
    uint16_t input_count;
    disco_input_t inputs[VARIANT_MAX_INPUTS];
    /* For each range the first row that it may read of an input, and the end of those rows. */
    const uint16_t *input_rows[VARIANT_MAX_INPUTS];
    const int8_t *before;  /* the output buffer, poisoned */
    const int8_t *after;   /* and as it must be */
    disco_output_t output; /* without data */
    uint32_t scratch_bytes;
    const uint16_t *rows; /* where the ranges begin and end: 0, ..., the last */
    uint16_t range_count;
    /* Where a specialised call expects its buffers: offsets in variant_arena; 0: anywhere. */
    uint32_t input_offset[VARIANT_MAX_INPUTS], output_offset, scratch_offset;
    void (*run)(const disco_input_t *in, const disco_output_t *out, void *scratch, uint16_t row_begin,
                uint16_t row_end);
} variant_case_t;

extern const variant_case_t variant_cases[];
extern const uint32_t variant_case_count;
extern int8_t variant_arena[];
extern const uint32_t variant_arena_bytes;

#endif
