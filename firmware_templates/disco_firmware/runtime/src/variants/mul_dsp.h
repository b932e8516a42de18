/* MUL on cores with the DSP extension: the short requantisation. */
#ifndef DISCO_VARIANTS_MUL_DSP_H
#define DISCO_VARIANTS_MUL_DSP_H

#include <stddef.h>

#include "disco/kernels.h"
#include "tensor_view.h"
#include "variants/requantise_scaled.h"

typedef struct {
    int32_t input1_zero_point, input2_zero_point;
    disco_scaling_t scaling; /* DISCO_SCALING_SIGNED */
    disco_output_scaling_t output;
} disco_mul_dsp_t;

/* Pixel (y, x), or the only one. */
DISCO_VARIANT const int8_t *disco_mul_factor(const disco_input_t *in, size_t y, size_t x) {
    return in->height == 1 && in->width == 1 ? in->data : disco_input_pixel(in, y, x);
}

DISCO_VARIANT void disco_mul_dsp(const disco_mul_dsp_t *op, const disco_input_t *in, const disco_output_t *out,
                                 void *scratch, uint16_t row_begin, uint16_t row_end) {
    (void)scratch;
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            const int8_t *const pixel1 = disco_mul_factor(&in[0], y, x), *const pixel2 = disco_mul_factor(&in[1], y, x);
            int8_t *const result = disco_output_pixel(out, y, x);
            DISCO_UNROLL(4)
            for (size_t c = 0; c < out->channels; c++) {
                const int32_t doubled = 2 * (pixel1[c] - op->input1_zero_point);
                result[c] = disco_scale(doubled * (pixel2[c] - op->input2_zero_point), &op->scaling, &op->output);
            }
        }
    }
}

#endif
