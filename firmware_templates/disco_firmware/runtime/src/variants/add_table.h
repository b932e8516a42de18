/*
 * ADD with a table instead of the arithmetic on one input.
 *
 * TFLite scales both inputs to the larger scale times 2^-20, the input of the larger scale thus by 2^19 exactly: here
 * it is a shift (all values are doubled, which saves one in the requantisation). The other input's 256 values come
 * from a table, which holds both zero points too; with equal scales it is a shift as well.
 */
#ifndef DISCO_VARIANTS_ADD_TABLE_H
#define DISCO_VARIANTS_ADD_TABLE_H

#include <stddef.h>

#include "disco/kernels.h"
#include "tensor_view.h"
#include "variants/requantise_scaled.h"

#define DISCO_ADD_SHIFT 20

typedef struct {
    const int32_t *table; /* by the value as uint8_t; NULL for equal scales */
    int32_t constant;     /* without a table: both zero points */
    uint8_t exact;        /* which input, 0 or 1, has the larger scale */
    uint8_t clamps_below; /* whether the activation begins at the zero point: then negative sums round as they like */
    disco_scaling_t scaling;
    disco_output_scaling_t output;
} disco_add_table_t;

DISCO_VARIANT int8_t disco_add_one(const disco_add_table_t *op, const int32_t *table, int8_t exact, int8_t other) {
    const uint32_t second =
        op->table ? (uint32_t)table[(uint8_t)other] : ((uint32_t)other << DISCO_ADD_SHIFT) + (uint32_t)op->constant;
    const int32_t sum = (int32_t)(((uint32_t)exact << DISCO_ADD_SHIFT) + second);
    if (!op->clamps_below) {
        return disco_scale(sum, &op->scaling, &op->output);
    }
    const int32_t scaled = disco_smmlar(sum, op->scaling.multiplier, op->scaling.offset);
    return disco_clamp_scaled(scaled >> op->scaling.shift, &op->output);
}

/* `count` neighbouring values. */
DISCO_VARIANT void disco_add_run(const disco_add_table_t *op, const int8_t *exact, const int8_t *other, int8_t *result,
                                 size_t count) {
    const int32_t *table = op->table;
    size_t i = 0;
    DISCO_HIDE(table); /* else GCC adds an offset of its own to every address */
    DISCO_UNROLL(1)
    for (; i + 8 <= count; i += 8, exact += 8, other += 8, result += 8) {
        for (size_t k = 0; k < 8; k++) {
            result[k] = disco_add_one(op, table, exact[k], other[k]);
        }
    }
    for (; i < count; i++) {
        *result++ = disco_add_one(op, table, *exact++, *other++);
    }
}

DISCO_VARIANT void disco_add_dsp(const disco_add_table_t *op, const disco_input_t *in, const disco_output_t *out,
                                 void *scratch, uint16_t row_begin, uint16_t row_end) {
    const disco_input_t *const exact = &in[op->exact], *const other = &in[1 - op->exact];
    const size_t channels = out->channels;
    (void)scratch;
    if (exact->stride == channels && other->stride == channels && out->stride == channels) {
        disco_add_run(op, disco_input_pixel(exact, row_begin, 0), disco_input_pixel(other, row_begin, 0),
                      disco_output_pixel(out, row_begin, 0), (size_t)(row_end - row_begin) * out->width * channels);
        return;
    }
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            disco_add_run(op, disco_input_pixel(exact, y, x), disco_input_pixel(other, y, x),
                          disco_output_pixel(out, y, x), channels);
        }
    }
}

#endif
