/* RELU, RELU6 and RELU_N1_TO_1 alone: every int8 has its result in a table. */
#ifndef DISCO_VARIANTS_RELU_TABLE_H
#define DISCO_VARIANTS_RELU_TABLE_H

#include <stddef.h>

#include "disco/kernels.h"
#include "tensor_view.h"
#include "variants/simd.h"

typedef struct {
    const int8_t *table; /* by the value as uint8_t */
} disco_relu_table_t;

DISCO_VARIANT void disco_relu_table(const disco_relu_table_t *op, const disco_input_t *in, const disco_output_t *out,
                                    void *scratch, uint16_t row_begin, uint16_t row_end) {
    const int8_t *table = op->table;
    DISCO_HIDE(table); /* else GCC adds an offset of its own to every address */
    (void)scratch;
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            const int8_t *const pixel = disco_input_pixel(in, y, x);
            int8_t *const result = disco_output_pixel(out, y, x);
            DISCO_UNROLL(4)
            for (size_t c = 0; c < out->channels; c++) {
                result[c] = table[(uint8_t)pixel[c]];
            }
        }
    }
}

#endif
