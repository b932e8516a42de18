/* AVERAGE_POOL_2D, MAX_POOL_2D and MEAN over height and width with Helium: 8, 16 and 4 channels at a time. */
#ifndef DISCO_VARIANTS_POOL_MVE_H
#define DISCO_VARIANTS_POOL_MVE_H

#include "tensor_view.h"
#include "variants/mve.h"
#include "window.h"

/* The part of a window that lies inside the input. */
typedef struct {
    const int8_t *first; /* its upper left pixel */
    size_t height, width;
    size_t row_step, step; /* bytes from row to row, from pixel to pixel */
} disco_patch_mve_t;

DISCO_VARIANT disco_patch_mve_t disco_patch_of_mve(const disco_window_t *w, const disco_input_t *in, size_t y,
                                                   size_t x) {
    const disco_span_t rows = disco_clip_window((int32_t)y, w->stride_h, w->pad_top, w->kernel_h, 1, in->height);
    const disco_span_t columns = disco_clip_window((int32_t)x, w->stride_w, w->pad_left, w->kernel_w, 1, in->width);
    const disco_patch_mve_t patch = {disco_input_pixel(in, (size_t)rows.first, (size_t)columns.first),
                                     (size_t)(rows.end - rows.begin), (size_t)(columns.end - columns.begin),
                                     (size_t)in->width * in->stride, in->stride};
    return patch;
}

/* sum / count, halves away from zero, for a count up to 255: so small a sum times 2^32 / count, rounded up, is exact
 * above the point. */
DISCO_VARIANT int16x8_t disco_divide_mve(int16x8_t sums, uint32_t count) {
    if (count == 1) {
        return sums;
    }
    const uint32x4_t reciprocal = vdupq_n_u32(UINT32_MAX / count + 1);
    const uint16x8_t sizes = vaddq_n_u16(vreinterpretq_u16_s16(vabsq_s16(sums)), (uint16_t)(count / 2));
    const uint32x4_t even = vmulhq_u32(vmovlbq_u16(sizes), reciprocal);
    const uint32x4_t odd = vmulhq_u32(vmovltq_u16(sizes), reciprocal);
    const int16x8_t means = vreinterpretq_s16_u16(vmovntq_u32(vreinterpretq_u16_u32(even), odd));
    return vnegq_m_s16(means, means, vcmpltq_n_s16(sums, 0));
}

DISCO_VARIANT int16x8_t disco_average_mve(const disco_patch_mve_t *patch, size_t channel, mve_pred16_t some) {
    int16x8_t sums = vdupq_n_s16(0);
    for (size_t y = 0; y < patch->height; y++) {
        const int8_t *values = patch->first + y * patch->row_step + channel;
        for (size_t x = patch->width; x > 0; x--, values += patch->step) {
            sums = vaddq_s16(sums, vldrbq_z_s16(values, some));
        }
    }
    return disco_divide_mve(sums, (uint32_t)(patch->height * patch->width));
}

/* For windows of up to 255 pixels, whose sums fit 16 bits. */
DISCO_VARIANT void disco_average_pool2d_mve(const disco_pool2d_t *op, const disco_input_t *in,
                                            const disco_output_t *out, void *scratch, uint16_t row_begin,
                                            uint16_t row_end) {
    (void)scratch;
    const int16x8_t low = vdupq_n_s16((int16_t)op->activation_min), high = vdupq_n_s16((int16_t)op->activation_max);
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            const disco_patch_mve_t patch = disco_patch_of_mve(&op->window, in, y, x);
            int8_t *const pixel = disco_output_pixel(out, y, x);
            for (size_t c = 0; c < out->channels; c += 8) {
                const mve_pred16_t some = vctp16q(out->channels - c);
                const int16x8_t means = disco_average_mve(&patch, c, some);
                DISCO_STORE_SOME_MVE(vstrbq_p_s16, pixel + c, vminq_s16(vmaxq_s16(means, low), high), some);
            }
        }
    }
}

DISCO_VARIANT int8x16_t disco_largest_mve(const disco_patch_mve_t *patch, size_t channel, mve_pred16_t some) {
    int8x16_t largest = vdupq_n_s8(INT8_MIN);
    for (size_t y = 0; y < patch->height; y++) {
        const int8_t *values = patch->first + y * patch->row_step + channel;
        for (size_t x = patch->width; x > 0; x--, values += patch->step) {
            largest = vmaxq_s8(largest, vldrbq_z_s8(values, some));
        }
    }
    return largest;
}

DISCO_VARIANT void disco_max_pool2d_mve(const disco_pool2d_t *op, const disco_input_t *in, const disco_output_t *out,
                                        void *scratch, uint16_t row_begin, uint16_t row_end) {
    (void)scratch;
    const int8x16_t low = vdupq_n_s8((int8_t)op->activation_min), high = vdupq_n_s8((int8_t)op->activation_max);
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            const disco_patch_mve_t patch = disco_patch_of_mve(&op->window, in, y, x);
            int8_t *const pixel = disco_output_pixel(out, y, x);
            for (size_t c = 0; c < out->channels; c += DISCO_MVE_BYTES) {
                const mve_pred16_t some = vctp8q(out->channels - c);
                const int8x16_t largest = disco_largest_mve(&patch, c, some);
                DISCO_STORE_SOME_MVE(vstrbq_p_s8, pixel + c, vminq_s8(vmaxq_s8(largest, low), high), some);
            }
        }
    }
}

DISCO_VARIANT void disco_mean_mve(const disco_mean_t *op, const disco_input_t *in, const disco_output_t *out,
                                  void *scratch, uint16_t row_begin, uint16_t row_end) {
    (void)scratch;
    if (row_begin == row_end) {
        return;
    }
    const size_t pixels = (size_t)in->height * in->width;
    const disco_requantise_mve_t range = {op->output_zero_point, INT8_MIN, INT8_MAX, true};
    const disco_channel_mve_t channel = {(int32_t)(0u - (uint32_t)pixels * (uint32_t)op->input_zero_point),
                                         op->multiplier, op->shift};
    for (size_t c = 0; c < out->channels; c += 4) {
        const mve_pred16_t some = vctp32q(out->channels - c);
        const int8_t *values = in->data + c;
        int32x4_t sums = vdupq_n_s32(0);
        for (size_t n = pixels; n > 0; n--, values += in->stride) {
            sums = vaddq_s32(sums, vldrbq_z_s32(values, some));
        }
        const int32x4_t scaled = vaddq_n_s32(disco_scale_channel_mve(sums, channel, &range), op->output_zero_point);
        const int32x4_t means = vminq_s32(vmaxq_s32(scaled, vdupq_n_s32(INT8_MIN)), vdupq_n_s32(INT8_MAX));
        DISCO_STORE_SOME_MVE(vstrbq_p_s32, out->data + c, means, some);
    }
}

#endif
