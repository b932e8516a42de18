/* MEAN over height and width. */
#include "disco/kernels.h"

#include <stddef.h>

#include "fixed_point.h"

void disco_mean_s8(const disco_mean_t *op, const disco_input_t *in, const disco_output_t *out, uint16_t row_begin,
                   uint16_t row_end) {
    const size_t pixels = (size_t)in->height * in->width;
    if (row_begin == row_end) {
        return;
    }
    for (size_t c = 0; c < out->channels; c++) {
        const int8_t *value = in->data + c;
        uint32_t sum = 0;
        for (size_t i = 0; i < pixels; i++, value += in->stride) {
            sum += (uint32_t)(*value - op->input_zero_point);
        }
        out->data[c] =
            disco_requantise((int32_t)sum, op->multiplier, op->shift, op->output_zero_point, INT8_MIN, INT8_MAX);
    }
}
