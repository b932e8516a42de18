/* MUL. */
#include "disco/kernels.h"

#include "fixed_point.h"
#include "tensor_view.h"

/* Pixel (y, x), or the only one. */
static const int8_t *factor(const disco_input_t *in, size_t y, size_t x) {
    return in->height == 1 && in->width == 1 ? in->data : disco_input_pixel(in, y, x);
}

void disco_mul_s8(const disco_mul_t *op, const disco_input_t *in1, const disco_input_t *in2, const disco_output_t *out,
                  uint16_t row_begin, uint16_t row_end) {
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            const int8_t *const pixel1 = factor(in1, y, x);
            const int8_t *const pixel2 = factor(in2, y, x);
            int8_t *const result = disco_output_pixel(out, y, x);
            for (size_t c = 0; c < out->channels; c++) {
                const int32_t product = (pixel1[c] - op->input1_zero_point) * (pixel2[c] - op->input2_zero_point);
                result[c] = disco_requantise(product, op->multiplier, op->shift, op->output_zero_point,
                                             op->activation_min, op->activation_max);
            }
        }
    }
}
