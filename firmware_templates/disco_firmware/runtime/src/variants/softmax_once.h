/* SOFTMAX with each exponential computed once. */
#ifndef DISCO_VARIANTS_SOFTMAX_ONCE_H
#define DISCO_VARIANTS_SOFTMAX_ONCE_H

#include <stddef.h>

#include "softmax_arithmetic.h"
#include "tensor_view.h"
#include "variants/simd.h"

/* `exponentials` has room for `count`. */
static void disco_softmax_once_pixel(const disco_softmax_t *op, const int8_t *values, int8_t *out, size_t count,
                                     int32_t *exponentials) {
    int32_t largest = INT8_MIN, sum = 0;
    for (size_t i = 0; i < count; i++) {
        largest = values[i] > largest ? values[i] : largest;
    }
    for (size_t i = 0; i < count; i++) {
        const int32_t difference = values[i] - largest;
        /* 0 gives the share 0, as for a difference beyond reach. */
        exponentials[i] = difference < op->diff_min ? 0 : disco_softmax_exp(op, difference);
        sum = disco_softmax_add(sum, exponentials[i]);
    }
    const disco_softmax_total_t total = disco_softmax_total(sum);
    for (size_t i = 0; i < count; i++) {
        out[i] = disco_softmax_share(total, exponentials[i]);
    }
}

DISCO_VARIANT void disco_softmax_once(const disco_softmax_t *op, const disco_input_t *in, const disco_output_t *out,
                                      void *scratch, uint16_t row_begin, uint16_t row_end) {
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            disco_softmax_once_pixel(op, disco_input_pixel(in, y, x), disco_output_pixel(out, y, x), out->channels,
                                     scratch);
        }
    }
}

#endif
