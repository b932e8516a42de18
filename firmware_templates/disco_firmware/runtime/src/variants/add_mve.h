/* ADD with Helium: eight values at a time. */
#ifndef DISCO_VARIANTS_ADD_MVE_H
#define DISCO_VARIANTS_ADD_MVE_H

#include "tensor_view.h"
#include "variants/mve.h"

/* disco_add_t, without what is always the same: inputs are scaled up by 2^20 and then to the right only. */
typedef struct {
    int32_t input1_zero_point, input2_zero_point;
    int32_t input1_multiplier, input2_multiplier, output_multiplier;
    int32_t input1_shift, input2_shift, output_shift;
    disco_requantise_mve_t requantise;
} disco_add_mve_t;

/* Four inputs times 2^20, scaled. */
DISCO_VARIANT int32x4_t disco_scale_input_mve(int32x4_t raised, int32_t multiplier, int32_t shift) {
    if (shift == 0) {
        return vqrdmulhq_n_s32(raised, multiplier);
    }
    const int32x4_t value = vqrdmulhq_n_s32(raised, multiplier);
    return vrshlq_n_s32(vaddq_s32(value, vshrq_n_s32(value, 31)), shift);
}

/* Inputs less their zero point, times 16, so that VSHLL brings them to 2^20. */
DISCO_VARIANT int16x8_t disco_raise_mve(int16x8_t values, int32_t zero_point) {
    return vmlasq_n_s16(values, vdupq_n_s16(16), (int16_t)(-16 * zero_point));
}

DISCO_VARIANT int16x8_t disco_add_eight_mve(const disco_add_mve_t *op, int16x8_t values1, int16x8_t values2) {
    const int16x8_t a = disco_raise_mve(values1, op->input1_zero_point);
    const int16x8_t b = disco_raise_mve(values2, op->input2_zero_point);
    const int32x4_t even =
        vaddq_s32(disco_scale_input_mve(vshllbq_n_s16(a, 16), op->input1_multiplier, op->input1_shift),
                  disco_scale_input_mve(vshllbq_n_s16(b, 16), op->input2_multiplier, op->input2_shift));
    const int32x4_t odd =
        vaddq_s32(disco_scale_input_mve(vshlltq_n_s16(a, 16), op->input1_multiplier, op->input1_shift),
                  disco_scale_input_mve(vshlltq_n_s16(b, 16), op->input2_multiplier, op->input2_shift));
    const disco_channel_mve_t channel = {0, op->output_multiplier, op->output_shift};
    return disco_narrow_mve(disco_scale_channel_mve(even, channel, &op->requantise),
                            disco_scale_channel_mve(odd, channel, &op->requantise), &op->requantise);
}

DISCO_VARIANT void disco_add_run_mve(const disco_add_mve_t *op, const int8_t *in1, const int8_t *in2, int8_t *out,
                                     size_t count) {
    for (; count >= 8; count -= 8, in1 += 8, in2 += 8, out += 8) {
        vstrbq_s16(out, disco_add_eight_mve(op, vldrbq_s16(in1), vldrbq_s16(in2)));
    }
    if (count > 0) {
        const mve_pred16_t some = vctp16q(count);
        DISCO_STORE_SOME_MVE(vstrbq_p_s16, out,
                             disco_add_eight_mve(op, vldrbq_z_s16(in1, some), vldrbq_z_s16(in2, some)), some);
    }
}

DISCO_VARIANT void disco_add_mve(const disco_add_mve_t *op, const disco_input_t *in, const disco_output_t *out,
                                 void *scratch, uint16_t row_begin, uint16_t row_end) {
    (void)scratch;
    const size_t channels = out->channels;
    if (in[0].stride == channels && in[1].stride == channels && out->stride == channels) { /* no gaps: one run */
        disco_add_run_mve(op, disco_input_pixel(&in[0], row_begin, 0), disco_input_pixel(&in[1], row_begin, 0),
                          disco_output_pixel(out, row_begin, 0), (size_t)(row_end - row_begin) * out->width * channels);
        return;
    }
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            disco_add_run_mve(op, disco_input_pixel(&in[0], y, x), disco_input_pixel(&in[1], y, x),
                              disco_output_pixel(out, y, x), channels);
        }
    }
}

#endif
