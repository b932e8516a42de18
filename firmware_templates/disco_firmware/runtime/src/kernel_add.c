/* ADD. */
#include "disco/kernels.h"

#include "fixed_point.h"
#include "tensor_view.h"

static int32_t scale_input(int8_t value, int32_t zero_point, int32_t left_shift, int32_t multiplier, int32_t shift) {
    const int32_t raised = disco_wrap_shift_left(value - zero_point, left_shift);
    return disco_multiply_by_quantised(raised, multiplier, shift);
}

static int8_t add(const disco_add_t *op, int8_t value1, int8_t value2) {
    const int32_t a =
        scale_input(value1, op->input1_zero_point, op->left_shift, op->input1_multiplier, op->input1_shift);
    const int32_t b =
        scale_input(value2, op->input2_zero_point, op->left_shift, op->input2_multiplier, op->input2_shift);
    return disco_requantise(disco_wrap_add(a, b), op->output_multiplier, op->output_shift, op->output_zero_point,
                            op->activation_min, op->activation_max);
}

void disco_add_s8(const disco_add_t *op, const disco_input_t *in1, const disco_input_t *in2, const disco_output_t *out,
                  uint16_t row_begin, uint16_t row_end) {
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            const int8_t *const pixel1 = disco_input_pixel(in1, y, x);
            const int8_t *const pixel2 = disco_input_pixel(in2, y, x);
            int8_t *const result = disco_output_pixel(out, y, x);
            for (size_t c = 0; c < out->channels; c++) {
                result[c] = add(op, pixel1[c], pixel2[c]);
            }
        }
    }
}
