/*
 * DEPTHWISE_CONV_2D with Helium, windows of up to 4x4.
 *
 * Sixteen channels at a time, four input rows are laid out anew as a strip [column][channel][row], padding included: four words
 * 64 bytes apart are a patch of 4x4 values of one channel, one vector. A window of 3x3 lies in it in four places, so one load
 * serves four outputs, two rows of two, with the weights moved within their vector.
 */
#ifndef DISCO_VARIANTS_DEPTHWISE_MVE_H
#define DISCO_VARIANTS_DEPTHWISE_MVE_H

#include "tensor_view.h"
#include "variants/mve.h"

#define DISCO_PATCH        4u /* rows and columns */
#define DISCO_STRIP_COLUMN (DISCO_PATCH * DISCO_MVE_BYTES)
/* Zeros before the weights of the first channel: as far as they are moved. */
#define DISCO_PATCH_MOVE (DISCO_PATCH + 1u)

typedef struct {
    disco_window_t window;
    const int8_t
        *weights; /* [5], then [out][16]: weight [y][x] of channel c is at 5 + 16 c + 4 x + y, zeros elsewhere */
    const int32_t *channels; /* [out][bias, multiplier, shift] */
    uint16_t depth_multiplier;
    int32_t input_zero_point;
    disco_requantise_mve_t requantise;
} disco_depthwise_mve_t;

/* Whether a patch holds four windows: then its columns are 2 apart and two rows are computed together. */
DISCO_VARIANT bool disco_has_four_windows(const disco_window_t *w) {
    return w->kernel_h < DISCO_PATCH && w->kernel_w < DISCO_PATCH && w->stride_h == 1 && w->stride_w == 1 &&
           w->dilation_h == 1;
}

DISCO_VARIANT void disco_pad_columns_mve(int8_t *strip, size_t columns, int8x16_t zero_points) {
    for (; columns > 0; columns--, strip += DISCO_STRIP_COLUMN) {
        vstrbq_s8(strip, zero_points);
        vstrbq_s8(strip + 16, zero_points);
        vstrbq_s8(strip + 32, zero_points);
        vstrbq_s8(strip + 48, zero_points);
    }
}

/* One column of the strip from a pixel of each of four rows. In assembly, because the compiler takes the
 * four vectors of VST4 through the stack. */
#define DISCO_MVE_INTERLEAVE(predicate, then)                                                                          \
    __asm__ volatile(                                                                                                  \
        predicate "vldrb" then ".8 q0, [%[row0]]\n\t"                                                                  \
                  "vldrb" then ".8 q1, [%[row1]]\n\t"                                                                  \
                  "vldrb" then ".8 q2, [%[row2]]\n\t"                                                                  \
                  "vldrb" then ".8 q3, [%[row3]]\n\t"                                                                  \
                  "vst40.8 {q0, q1, q2, q3}, [%[strip]]\n\t"                                                           \
                  "vst41.8 {q0, q1, q2, q3}, [%[strip]]\n\t"                                                           \
                  "vst42.8 {q0, q1, q2, q3}, [%[strip]]\n\t"                                                           \
                  "vst43.8 {q0, q1, q2, q3}, [%[strip]]!\n\t"                                                          \
        : [strip] "+r"(strip)                                                                                          \
        : [row0] "r"(row0), [row1] "r"(row1), [row2] "r"(row2), [row3] "r"(row3), [channels] "r"(channels)             \
        : "q0", "q1", "q2", "q3", "p0", "memory")

/* Fills `columns` of the strip from the four rows at `rows`, which advance by `steps`, for `channels` channels. */
DISCO_VARIANT void disco_interleave_rows_mve(int8_t *strip, const int8_t *const rows[DISCO_PATCH],
                                             const size_t steps[DISCO_PATCH], size_t columns, size_t channels) {
    const int8_t *row0 = rows[0], *row1 = rows[1], *row2 = rows[2], *row3 = rows[3];
#pragma GCC unroll 1
    for (; columns > 0; columns--) {
        if (channels >= DISCO_MVE_BYTES) {
            DISCO_MVE_INTERLEAVE("", "");
        } else {
            DISCO_MVE_INTERLEAVE("vctp.8 %[channels]\n\tvpstttt\n\t", "t");
        }
        row0 += steps[0];
        row1 += steps[1];
        row2 += steps[2];
        row3 += steps[3];
    }
}

/* The strip of the windows of output rows y .. y + rows - 1, for `channels` channels from `first` on. */
DISCO_VARIANT void disco_fill_strip_mve(const disco_depthwise_mve_t *op, const disco_input_t *in, int8_t *strip,
                                        int8_t *zero_row, size_t y, size_t rows, size_t out_width, size_t first,
                                        size_t channels) {
    const disco_window_t *const w = &op->window;
    const int8x16_t zero_points = vdupq_n_s8((int8_t)op->input_zero_point);
    const size_t columns = (out_width - 1) * w->stride_w + w->kernel_w;
    const size_t before = w->pad_left < columns ? w->pad_left : columns;
    const size_t inside = columns - before < in->width ? columns - before : in->width;
    const int8_t *sources[DISCO_PATCH];
    size_t steps[DISCO_PATCH];
    vstrbq_s8(zero_row, zero_points);
    for (size_t row = 0; row < DISCO_PATCH; row++) {
        const int32_t from = (int32_t)(y * w->stride_h + row * w->dilation_h) - w->pad_top;
        const bool there = row < w->kernel_h + rows - 1 && from >= 0 && from < in->height;
        sources[row] = there ? disco_input_pixel(in, (size_t)from, 0) + first : zero_row;
        steps[row] = there ? in->stride : 0;
    }
    disco_pad_columns_mve(strip, before, zero_points);
    disco_interleave_rows_mve(strip + before * DISCO_STRIP_COLUMN, sources, steps, inside, channels);
    disco_pad_columns_mve(strip + (before + inside) * DISCO_STRIP_COLUMN, columns - before - inside, zero_points);
}

/* Moves the addresses of the columns of a patch on by `step` bytes and loads it. */
DISCO_VARIANT int8x16_t disco_next_patch_mve(uint32x4_t *patch, size_t step) {
    if (step == 2 * DISCO_STRIP_COLUMN) {
        return vreinterpretq_s8_s32(vldrwq_gather_base_wb_s32(patch, 2 * DISCO_STRIP_COLUMN));
    }
    *patch = vaddq_n_u32(*patch, step);
    return vreinterpretq_s8_s32(vldrwq_gather_base_s32(*patch, 0));
}

/* Two rows of four outputs. `weights`: as they are, one row down, one column to the right, both. */
DISCO_VARIANT int16x8_t disco_two_rows_mve(const disco_requantise_mve_t *op, uint32x4_t *patch,
                                           const int8x16_t weights[4], disco_channel_mve_t channel) {
    const int8x16_t left = disco_next_patch_mve(patch, 2 * DISCO_STRIP_COLUMN);
    const int8x16_t right = disco_next_patch_mve(patch, 2 * DISCO_STRIP_COLUMN);
    const int32x4_t upper =
        disco_four_dots_mve(left, weights[0], left, weights[2], right, weights[0], right, weights[2]);
    const int32x4_t lower =
        disco_four_dots_mve(left, weights[1], left, weights[3], right, weights[1], right, weights[3]);
    return disco_narrow_mve(disco_scale_channel_mve(upper, channel, op), disco_scale_channel_mve(lower, channel, op),
                            op);
}

/* Four outputs of one row, whose patches are `step` apart. */
DISCO_VARIANT int32x4_t disco_four_patches_mve(uint32x4_t *patch, size_t step, int8x16_t weights) {
    const int8x16_t patch0 = disco_next_patch_mve(patch, step), patch1 = disco_next_patch_mve(patch, step);
    const int8x16_t patch2 = disco_next_patch_mve(patch, step), patch3 = disco_next_patch_mve(patch, step);
    return disco_four_dots_mve(patch0, weights, patch1, weights, patch2, weights, patch3, weights);
}

/* Eight outputs of one row. */
DISCO_VARIANT int16x8_t disco_one_row_mve(const disco_requantise_mve_t *op, uint32x4_t *patch, size_t step,
                                          int8x16_t weights, disco_channel_mve_t channel) {
    const int32x4_t first = disco_four_patches_mve(patch, step, weights);
    const int32x4_t second = disco_four_patches_mve(patch, step, weights);
    return disco_narrow_mve(disco_scale_channel_mve(first, channel, op), disco_scale_channel_mve(second, channel, op),
                            op);
}

/* One output channel of the rows of a strip; `rows` is 1 or, where a patch has four windows, 2. */
DISCO_VARIANT void disco_depthwise_channel_mve(const disco_depthwise_mve_t *op, const int8_t *strip, int8_t *out,
                                               const disco_output_t *view, size_t rows, const int8_t *weights,
                                               disco_channel_mve_t channel) {
    const bool two_rows = disco_has_four_windows(&op->window);
    const size_t columns = two_rows ? 4 : 8, step = (two_rows ? 2 : op->window.stride_w) * DISCO_STRIP_COLUMN;
    /* Lane 2 i + k of the results: column i of row k, or column i + 4 k of the only row. */
    const uint16x8_t lanes = vidupq_n_u16(0, 1), second = vandq_u16(lanes, vdupq_n_u16(1));
    const uint16x8_t lane_columns = vmlaq_n_u16(vshrq_n_u16(lanes, 1), second, two_rows ? 0 : 4);
    const uint16x8_t places = vmlaq_n_u16(vmulq_n_u16(lane_columns, view->stride), second,
                                          (uint16_t)(two_rows ? view->width * view->stride : 0));
    const mve_pred16_t row_lanes = two_rows && rows == 1 ? 0x3333 : 0xFFFF;
    const size_t whole = row_lanes == 0xFFFF ? view->width / columns * columns : 0;
    const int8x16_t moved[4] = {vldrbq_s8(weights + DISCO_PATCH_MOVE), vldrbq_s8(weights + DISCO_PATCH_MOVE - 1),
                                vldrbq_s8(weights + DISCO_PATCH_MOVE - DISCO_PATCH), vldrbq_s8(weights)};
    uint32x4_t patch = vaddq_n_u32(vshlq_n_u32(vidupq_n_u32(0, 1), 6), (uint32_t)(uintptr_t)strip - (uint32_t)step);
    for (size_t x = 0; x < whole; x += columns, out += columns * view->stride) {
        vstrbq_scatter_offset_s16(out, places,
                                  two_rows ? disco_two_rows_mve(&op->requantise, &patch, moved, channel)
                                           : disco_one_row_mve(&op->requantise, &patch, step, moved[0], channel));
    }
    for (size_t x = whole; x < view->width; x += columns, out += columns * view->stride) {
        const mve_pred16_t there = vcmphiq_u16(vdupq_n_u16((uint16_t)(view->width - x)), lane_columns) & row_lanes;
        vstrbq_scatter_offset_p_s16(out, places,
                                    two_rows ? disco_two_rows_mve(&op->requantise, &patch, moved, channel)
                                             : disco_one_row_mve(&op->requantise, &patch, step, moved[0], channel),
                                    there);
    }
}

DISCO_VARIANT void disco_depthwise_rows_mve(const disco_depthwise_mve_t *op, const disco_input_t *in,
                                            const disco_output_t *out, int8_t *scratch, size_t y, size_t rows) {
    int8_t *const strip = scratch + DISCO_MVE_BYTES;
    const size_t multiplier = op->depth_multiplier, channels = out->channels / multiplier;
    for (size_t first = 0; first < channels; first += DISCO_MVE_BYTES) {
        const size_t count = channels - first < DISCO_MVE_BYTES ? channels - first : DISCO_MVE_BYTES;
        disco_fill_strip_mve(op, in, strip, scratch, y, rows, out->width, first, count);
        for (size_t c = first * multiplier; c < (first + count) * multiplier; c++) {
            const disco_channel_mve_t channel = {op->channels[3 * c], op->channels[3 * c + 1], op->channels[3 * c + 2]};
            disco_depthwise_channel_mve(op, strip + (c / multiplier - first) * DISCO_PATCH,
                                        disco_output_pixel(out, y, 0) + c, out, rows, op->weights + c * DISCO_MVE_BYTES,
                                        channel);
        }
    }
}

DISCO_VARIANT void disco_depthwise_mve(const disco_depthwise_mve_t *op, const disco_input_t *in,
                                       const disco_output_t *out, void *scratch, uint16_t row_begin, uint16_t row_end) {
    const size_t together = disco_has_four_windows(&op->window) ? 2 : 1;
    size_t y = row_begin;
    for (; y + together <= row_end; y += together) {
        disco_depthwise_rows_mve(op, in, out, scratch, y, together);
    }
    if (y < row_end) {
        disco_depthwise_rows_mve(op, in, out, scratch, y, 1);
    }
}

#endif
