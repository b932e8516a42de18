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

/* Fills `columns` of the strip from the four rows at `rows`, which advance by `steps`, for `channels` channels. */
DISCO_VARIANT void disco_interleave_rows_mve(int8_t *strip, const int8_t *const rows[DISCO_PATCH],
                                             const size_t steps[DISCO_PATCH], size_t columns, size_t channels) {
    const int8_t *row0 = rows[0], *row1 = rows[1], *row2 = rows[2], *row3 = rows[3];
    const mve_pred16_t some = vctp8q(channels);
    for (; columns > 0; columns--, strip += DISCO_STRIP_COLUMN) {
        int8x16x4_t values;
        if (channels >= DISCO_MVE_BYTES) {
            values.val[0] = vldrbq_s8(row0);
            values.val[1] = vldrbq_s8(row1);
            values.val[2] = vldrbq_s8(row2);
            values.val[3] = vldrbq_s8(row3);
        } else {
            values.val[0] = vldrbq_z_s8(row0, some);
            values.val[1] = vldrbq_z_s8(row1, some);
            values.val[2] = vldrbq_z_s8(row2, some);
            values.val[3] = vldrbq_z_s8(row3, some);
        }
        vst4q_s8(strip, values);
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

DISCO_VARIANT int8x16_t disco_load_patch_mve(const int8_t *strip, uint32x4_t places) {
    return vreinterpretq_s8_s32(vldrwq_gather_offset_s32((const int32_t *)(const void *)strip, places));
}

/* Two rows of four outputs, the upper and the lower of each column in turn. `weights`: as they are, one row down, one column to
 * the right, both. */
DISCO_VARIANT int16x8_t disco_two_rows_mve(const disco_requantise_mve_t *op, const int8_t *strip, uint32x4_t places,
                                           const int8x16_t weights[4], disco_channel_mve_t channel) {
    const int8x16_t left = disco_load_patch_mve(strip, places);
    const int8x16_t right = disco_load_patch_mve(strip + 2 * DISCO_STRIP_COLUMN, places);
    const int32x4_t upper =
        disco_four_dots_mve(left, weights[0], left, weights[2], right, weights[0], right, weights[2]);
    const int32x4_t lower =
        disco_four_dots_mve(left, weights[1], left, weights[3], right, weights[1], right, weights[3]);
    return disco_narrow_mve(disco_scale_channel_mve(upper, channel, op), disco_scale_channel_mve(lower, channel, op),
                            op);
}

/* Eight outputs of one row, whose patches are `step` apart. */
DISCO_VARIANT int16x8_t disco_one_row_mve(const disco_requantise_mve_t *op, const int8_t *strip, size_t step,
                                          uint32x4_t places, int8x16_t weights, disco_channel_mve_t channel) {
    int32x4_t sums[2];
    for (size_t odd = 0; odd < 2; odd++, strip += step) {
        const int8x16_t patch0 = disco_load_patch_mve(strip, places),
                        patch1 = disco_load_patch_mve(strip + 2 * step, places);
        const int8x16_t patch2 = disco_load_patch_mve(strip + 4 * step, places);
        const int8x16_t patch3 = disco_load_patch_mve(strip + 6 * step, places);
        sums[odd] = disco_four_dots_mve(patch0, weights, patch1, weights, patch2, weights, patch3, weights);
    }
    return disco_narrow_mve(disco_scale_channel_mve(sums[0], channel, op),
                            disco_scale_channel_mve(sums[1], channel, op), op);
}

/* One output channel of the rows of a strip; `rows` is 1 or, where a patch has four windows, 2. */
DISCO_VARIANT void disco_depthwise_channel_mve(const disco_depthwise_mve_t *op, const int8_t *strip, int8_t *out,
                                               const disco_output_t *view, size_t rows, const int8_t *weights,
                                               disco_channel_mve_t channel) {
    const bool two_rows = disco_has_four_windows(&op->window);
    const size_t columns = two_rows ? 4 : 8, step = (size_t)op->window.stride_w * DISCO_STRIP_COLUMN;
    const uint32x4_t places = vshlq_n_u32(vidupq_n_u32(0, 1), 6);
    const uint16x8_t lanes = vidupq_n_u16(0, 1);
    const uint16x8_t out_places =
        two_rows ? vmlaq_n_u16(vmulq_n_u16(vshrq_n_u16(lanes, 1), view->stride), vandq_u16(lanes, vdupq_n_u16(1)),
                               (uint16_t)(view->width * view->stride))
                 : vmulq_n_u16(lanes, view->stride);
    const mve_pred16_t row_lanes = two_rows && rows == 1 ? 0x3333 : 0xFFFF;
    const size_t whole = row_lanes == 0xFFFF ? view->width / columns * columns : 0;
    const int8x16_t moved[4] = {vldrbq_s8(weights + DISCO_PATCH_MOVE), vldrbq_s8(weights + DISCO_PATCH_MOVE - 1),
                                vldrbq_s8(weights + DISCO_PATCH_MOVE - DISCO_PATCH), vldrbq_s8(weights)};
    for (size_t x = 0; x < whole; x += columns, strip += columns * step, out += columns * view->stride) {
        vstrbq_scatter_offset_s16(out, out_places,
                                  two_rows
                                      ? disco_two_rows_mve(&op->requantise, strip, places, moved, channel)
                                      : disco_one_row_mve(&op->requantise, strip, step, places, moved[0], channel));
    }
    for (size_t x = whole; x < view->width; x += columns, strip += columns * step, out += columns * view->stride) {
        const mve_pred16_t there = vctp16q((view->width - x) * (two_rows ? 2 : 1));
        vstrbq_scatter_offset_p_s16(out, out_places,
                                    two_rows
                                        ? disco_two_rows_mve(&op->requantise, strip, places, moved, channel)
                                        : disco_one_row_mve(&op->requantise, strip, step, places, moved[0], channel),
                                    (mve_pred16_t)(there & row_lanes));
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
