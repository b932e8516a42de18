/* SOFTMAX in fixed point. */
#include "disco/kernels.h"

#include "softmax_arithmetic.h"
#include "tensor_view.h"

static int32_t largest_value(const int8_t *values, size_t count) {
    int32_t largest = INT8_MIN;
    for (size_t i = 0; i < count; i++) {
        largest = values[i] > largest ? values[i] : largest;
    }
    return largest;
}

static void softmax_pixel(const disco_softmax_t *op, const int8_t *values, int8_t *out, size_t count) {
    const int32_t largest = largest_value(values, count);
    int32_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        const int32_t difference = values[i] - largest;
        if (difference >= op->diff_min) {
            sum = disco_softmax_add(sum, disco_softmax_exp(op, difference));
        }
    }
    const disco_softmax_total_t total = disco_softmax_total(sum);
    for (size_t i = 0; i < count; i++) {
        const int32_t difference = values[i] - largest;
        out[i] = difference < op->diff_min ? INT8_MIN : disco_softmax_share(total, disco_softmax_exp(op, difference));
    }
}

void disco_softmax_s8(const disco_softmax_t *op, const disco_input_t *in, const disco_output_t *out, uint16_t row_begin,
                      uint16_t row_end) {
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            softmax_pixel(op, disco_input_pixel(in, y, x), disco_output_pixel(out, y, x), out->channels);
        }
    }
}
