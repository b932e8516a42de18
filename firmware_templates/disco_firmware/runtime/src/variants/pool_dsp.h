/*
 * AVERAGE_POOL_2D, MAX_POOL_2D and MEAN over height and width on cores with the DSP extension, four channels at a time.
 */
#ifndef DISCO_VARIANTS_POOL_DSP_H
#define DISCO_VARIANTS_POOL_DSP_H

#include <stddef.h>

#include "disco/kernels.h"
#include "fixed_point.h"
#include "tensor_view.h"
#include "variants/simd.h"
#include "window.h"

/* Channels computed together: the bytes of a word. The last group may overlap the one before, so that no byte beyond a
 * pixel is read; there are at least four channels. */
#define DISCO_POOL_GROUP 4

/* Pixels whose sum fits int16: 256 * -128 just does. */
#define DISCO_POOL_LARGEST_SUM 256

/* Pixels of the input in rows of equal length. */
typedef struct {
    const int8_t *first;
    int32_t rows, columns;
    size_t row_step, column_step; /* bytes */
} disco_pool_patch_t;

DISCO_VARIANT size_t disco_pool_group(size_t next, size_t channels) {
    return next + DISCO_POOL_GROUP <= channels ? next : channels - DISCO_POOL_GROUP;
}

/* Sums of up to DISCO_POOL_LARGEST_SUM pixels in four channels. */
DISCO_VARIANT void disco_pool_add(const disco_pool_patch_t *patch, size_t channel, int32_t sums[DISCO_POOL_GROUP]) {
    const int8_t *row = patch->first + channel;
    uint32_t even = 0, odd = 0;
    for (int32_t y = 0; y < patch->rows; y++, row += patch->row_step) {
        const int8_t *pixel = row;
        DISCO_UNROLL(4)
        for (int32_t x = 0; x < patch->columns; x++, pixel += patch->column_step) {
            const uint32_t values = disco_load_word(pixel);
            even = disco_sxtab16(even, values);
            odd = disco_sxtab16_high(odd, values);
        }
    }
    sums[0] += (int16_t)even;
    sums[1] += (int16_t)odd;
    sums[2] += (int16_t)(even >> 16);
    sums[3] += (int16_t)(odd >> 16);
}

DISCO_VARIANT uint32_t disco_pool_max(const disco_pool_patch_t *patch, size_t channel) {
    const int8_t *row = patch->first + channel;
    uint32_t largest = UINT32_C(0x80808080);
    for (int32_t y = 0; y < patch->rows; y++, row += patch->row_step) {
        const int8_t *pixel = row;
        DISCO_UNROLL(4)
        for (int32_t x = 0; x < patch->columns; x++, pixel += patch->column_step) {
            largest = disco_max_s8x4(disco_load_word(pixel), largest);
        }
    }
    return largest;
}

/* The window's part inside the input; whole rows become one. */
DISCO_VARIANT disco_pool_patch_t disco_pool_window(const disco_pool2d_t *op, const disco_input_t *in, int32_t y,
                                                   int32_t x) {
    const disco_window_t *const w = &op->window;
    const disco_span_t rows = disco_clip_window(y, w->stride_h, w->pad_top, w->kernel_h, 1, in->height);
    const disco_span_t columns = disco_clip_window(x, w->stride_w, w->pad_left, w->kernel_w, 1, in->width);
    const int32_t height = rows.end - rows.begin, width = columns.end - columns.begin;
    const int8_t *const first = disco_input_pixel(in, (size_t)rows.first, (size_t)columns.first);
    const size_t row_step = (size_t)in->width * in->stride;
    if (width == in->width) {
        const disco_pool_patch_t whole = {first, 1, width * height, row_step, in->stride};
        return whole;
    }
    const disco_pool_patch_t patch = {first, height, width, row_step, in->stride};
    return patch;
}

/* The mean, halves away from zero. */
DISCO_VARIANT int8_t disco_pool_mean(const disco_pool2d_t *op, int32_t sum, int32_t count) {
    const int32_t mean = (sum + (sum > 0 ? count / 2 : -(count / 2))) / count;
    return (int8_t)disco_clamp(mean, op->activation_min, op->activation_max);
}

/* Windows of up to DISCO_POOL_LARGEST_SUM pixels. */
DISCO_VARIANT void disco_average_pool2d_dsp(const disco_pool2d_t *op, const disco_input_t *in,
                                            const disco_output_t *out, void *scratch, uint16_t row_begin,
                                            uint16_t row_end) {
    (void)scratch;
    for (int32_t y = row_begin; y < row_end; y++) {
        for (int32_t x = 0; x < out->width; x++) {
            const disco_pool_patch_t patch = disco_pool_window(op, in, y, x);
            const int32_t count = patch.rows * patch.columns;
            for (size_t next = 0; next < out->channels; next += DISCO_POOL_GROUP) {
                const size_t channel = disco_pool_group(next, out->channels);
                int8_t *const result = disco_output_pixel(out, (size_t)y, (size_t)x) + channel;
                int32_t sums[DISCO_POOL_GROUP] = {0, 0, 0, 0};
                disco_pool_add(&patch, channel, sums);
                for (size_t k = 0; k < DISCO_POOL_GROUP; k++) {
                    result[k] = disco_pool_mean(op, sums[k], count);
                }
            }
        }
    }
}

DISCO_VARIANT void disco_max_pool2d_dsp(const disco_pool2d_t *op, const disco_input_t *in, const disco_output_t *out,
                                        void *scratch, uint16_t row_begin, uint16_t row_end) {
    const uint32_t least = (uint32_t)(uint8_t)op->activation_min * UINT32_C(0x01010101);
    const uint32_t most = (uint32_t)(uint8_t)op->activation_max * UINT32_C(0x01010101);
    (void)scratch;
    for (int32_t y = row_begin; y < row_end; y++) {
        for (int32_t x = 0; x < out->width; x++) {
            const disco_pool_patch_t patch = disco_pool_window(op, in, y, x);
            int8_t *const result = disco_output_pixel(out, (size_t)y, (size_t)x);
            for (size_t next = 0; next < out->channels; next += DISCO_POOL_GROUP) {
                const size_t channel = disco_pool_group(next, out->channels);
                const uint32_t largest = disco_pool_max(&patch, channel);
                disco_store_word(result + channel, disco_min_s8x4(disco_max_s8x4(largest, least), most));
            }
        }
    }
}

DISCO_VARIANT void disco_mean_dsp(const disco_mean_t *op, const disco_input_t *in, const disco_output_t *out,
                                  void *scratch, uint16_t row_begin, uint16_t row_end) {
    const int32_t pixels = (int32_t)in->height * in->width;
    (void)scratch;
    for (size_t next = 0; row_begin < row_end && next < out->channels; next += DISCO_POOL_GROUP) {
        const size_t channel = disco_pool_group(next, out->channels);
        int32_t sums[DISCO_POOL_GROUP] = {0, 0, 0, 0};
        for (int32_t done = 0; done < pixels; done += DISCO_POOL_LARGEST_SUM) {
            const int32_t left = pixels - done;
            const disco_pool_patch_t patch = {in->data + (size_t)done * in->stride, 1,
                                              left < DISCO_POOL_LARGEST_SUM ? left : DISCO_POOL_LARGEST_SUM, 0,
                                              in->stride};
            disco_pool_add(&patch, channel, sums);
        }
        for (size_t k = 0; k < DISCO_POOL_GROUP; k++) {
            const uint32_t sum = (uint32_t)sums[k] - (uint32_t)pixels * (uint32_t)op->input_zero_point;
            out->data[channel + k] =
                disco_requantise((int32_t)sum, op->multiplier, op->shift, op->output_zero_point, INT8_MIN, INT8_MAX);
        }
    }
}

#endif
