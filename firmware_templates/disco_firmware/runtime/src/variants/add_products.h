/*
 * ADD as one sum of two products: floor(first * multiplier / 2^8) + floor(second * multiplier / 2^8) + constant, shifted
 * right. TFLite rounds one input, the sum's high product and its shift; the Python side has tried all pairs of values and
 * knows that this rounds alike.
 */
#ifndef DISCO_VARIANTS_ADD_PRODUCTS_H
#define DISCO_VARIANTS_ADD_PRODUCTS_H

#include <stddef.h>

#include "disco/kernels.h"
#include "fixed_point.h"
#include "tensor_view.h"
#include "variants/simd.h"

#define DISCO_ADD_UPPER_BYTES 0xFF00FF00u

typedef struct {
    int32_t first, second; /* multipliers of the inputs */
    int32_t constant;      /* zero points and rounding */
    int32_t shift;         /* to the right, 1..22 */
    int32_t activation_min, activation_max;
} disco_add_products_t;

/* Into int8. */
DISCO_VARIANT int32_t disco_add_products_finish(const disco_add_products_t *op, int32_t sum) {
    return op->activation_min == -128 && op->activation_max == 127
               ? disco_ssat8_shifted(sum, op->shift)
               : disco_clamp(sum >> op->shift, op->activation_min, op->activation_max);
}

/* Four values; multipliers and constant come in registers. */
DISCO_VARIANT void disco_add_products_four(const disco_add_products_t *op, const int32_t numbers[3], uint32_t mask,
                                           const int8_t *first, const int8_t *second, int8_t *result) {
    const uint32_t x = disco_load_word(first), y = disco_load_word(second);
    const uint32_t x02 = (x << 8) & mask, x13 = x & mask, y02 = (y << 8) & mask, y13 = y & mask;
    const int32_t m = numbers[0], n = numbers[1], constant = numbers[2];
    const int32_t sum0 = disco_smlawb(n, y02, disco_smlawb(m, x02, constant));
    disco_store_byte(result, disco_add_products_finish(op, sum0));
    const int32_t sum1 = disco_smlawb(n, y13, disco_smlawb(m, x13, constant));
    disco_store_byte(result + 1, disco_add_products_finish(op, sum1));
    const int32_t sum2 = disco_smlawt(n, y02, disco_smlawt(m, x02, constant));
    disco_store_byte(result + 2, disco_add_products_finish(op, sum2));
    const int32_t sum3 = disco_smlawt(n, y13, disco_smlawt(m, x13, constant));
    disco_store_byte(result + 3, disco_add_products_finish(op, sum3));
}

/* `count` neighbouring values. */
DISCO_VARIANT void disco_add_products_run(const disco_add_products_t *op, const int8_t *first, const int8_t *second,
                                          int8_t *result, size_t count) {
    int32_t numbers[3] = {op->first, op->second, op->constant};
    uint32_t mask = DISCO_ADD_UPPER_BYTES;
    size_t i = 0;
    DISCO_HIDE(numbers[0]); /* else GCC loads the constants again and again */
    DISCO_HIDE(numbers[1]);
    DISCO_HIDE(numbers[2]);
    DISCO_HIDE(mask);
    DISCO_UNROLL(1)
    for (; i + 8 <= count; i += 8, first += 8, second += 8, result += 8) {
        disco_add_products_four(op, numbers, mask, first, second, result);
        disco_add_products_four(op, numbers, mask, first + 4, second + 4, result + 4);
    }
    DISCO_UNROLL(1)
    for (; i < count; i++, first++, second++, result++) {
        const int32_t sum = disco_smlawb(numbers[0], (uint32_t)*first << 8, numbers[2]);
        const int32_t both = disco_smlawb(numbers[1], (uint32_t)*second << 8, sum);
        disco_store_byte(result, disco_add_products_finish(op, both));
    }
}

DISCO_VARIANT void disco_add_products(const disco_add_products_t *op, const disco_input_t *in,
                                      const disco_output_t *out, void *scratch, uint16_t row_begin, uint16_t row_end) {
    const size_t channels = out->channels;
    (void)scratch;
    if (in[0].stride == channels && in[1].stride == channels && out->stride == channels) {
        disco_add_products_run(op, disco_input_pixel(&in[0], row_begin, 0), disco_input_pixel(&in[1], row_begin, 0),
                               disco_output_pixel(out, row_begin, 0),
                               (size_t)(row_end - row_begin) * out->width * channels);
        return;
    }
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            disco_add_products_run(op, disco_input_pixel(&in[0], y, x), disco_input_pixel(&in[1], y, x),
                                   disco_output_pixel(out, y, x), channels);
        }
    }
}

#endif
