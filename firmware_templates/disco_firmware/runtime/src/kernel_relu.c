/* RELU, RELU6 and RELU_N1_TO_1 as ops of their own. */
#include "disco/kernels.h"

#include "fixed_point.h"
#include "tensor_view.h"

void disco_relu_s8(const disco_relu_t *op, const disco_input_t *in, const disco_output_t *out, uint16_t row_begin,
                   uint16_t row_end) {
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            const int8_t *const pixel = disco_input_pixel(in, y, x);
            int8_t *const result = disco_output_pixel(out, y, x);
            for (size_t c = 0; c < out->channels; c++) {
                result[c] = disco_requantise(pixel[c] - op->input_zero_point, op->multiplier, op->shift,
                                             op->output_zero_point, op->activation_min, op->activation_max);
            }
        }
    }
}
