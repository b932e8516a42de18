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

#define DISCO_PATCH           4u /* rows and columns */
#define DISCO_STRIP_COLUMN    (DISCO_PATCH * DISCO_MVE_BYTES)
/* Zeros before the weights of the first channel: as far as they are moved. */
#define DISCO_PATCH_MOVE      (DISCO_PATCH + 1u)

typedef struct {
    disco_window_t window;
    const int8_t *weights;   /* [5], then [out][16]: weight [y][x] of channel c is at 5 + 16 c + 4 x + y, zeros elsewhere */
    const int32_t *channels; /* [out][bias, multiplier, shift] */
    uint16_t depth_multiplier;
    int32_t input_zero_point;
    disco_requantise_mve_t requantise;
} disco_depthwise_mve_t;

/* Outputs of one channel that are computed together: `rows` x `columns` of one patch, eight in all. */
typedef struct {
    size_t rows, columns;
    size_t patch_step; /* from one patch to the next, in the strip */
} disco_tile_mve_t;

DISCO_VARIANT disco_tile_mve_t disco_tile_of_mve(const disco_window_t *w) {
    const disco_tile_mve_t tile = {
        w->kernel_h < DISCO_PATCH && w->stride_h == 1 && w->dilation_h == 1 ? 2 : 1,
        w->kernel_w < DISCO_PATCH && w->stride_w == 1 ? 2 : 1,
        (size_t)(w->kernel_w < DISCO_PATCH && w->stride_w == 1 ? 2 : w->stride_w) * DISCO_STRIP_COLUMN,
    };
    return tile;
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
DISCO_VARIANT void disco_interleave_rows_mve(int8_t *strip, const int8_t *const rows[DISCO_PATCH], const size_t steps[DISCO_PATCH],
                                             size_t columns, size_t channels) {
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

/* Four outputs in a row of one channel, `dy` rows below the first of their patches. */
DISCO_VARIANT int32x4_t disco_sum_row_mve(const int8x16_t *patches, size_t dy, const disco_tile_mve_t *tile,
                                          const int8x16_t weights[4], size_t first, size_t step) {
    const size_t x0 = first, x1 = first + step, x2 = first + 2 * step, x3 = first + 3 * step, columns = tile->columns;
    return disco_four_dots_mve(patches[x0 / columns], weights[2 * (x0 % columns) + dy], patches[x1 / columns],
                               weights[2 * (x1 % columns) + dy], patches[x2 / columns], weights[2 * (x2 % columns) + dy],
                               patches[x3 / columns], weights[2 * (x3 % columns) + dy]);
}

/* Eight outputs of a channel, as disco_narrow_mve interleaves them: the upper and the lower of each column, or the columns of
 * one row. */
DISCO_VARIANT int16x8_t disco_depthwise_tile_mve(const disco_depthwise_mve_t *op, const int8_t *strip, uint32x4_t places,
                                                 const int8x16_t weights[4], const int32_t channel[3]) {
    const disco_tile_mve_t tile = disco_tile_of_mve(&op->window);
    int8x16_t patches[8];
    for (size_t i = 0; i < 8 / (tile.rows * tile.columns); i++, strip += tile.patch_step) {
        patches[i] = vreinterpretq_s8_s32(vldrwq_gather_offset_s32((const int32_t *)(const void *)strip, places));
    }
    const int32x4_t even = disco_sum_row_mve(patches, 0, &tile, weights, 0, tile.rows == 2 ? 1 : 2);
    const int32x4_t odd = tile.rows == 2 ? disco_sum_row_mve(patches, 1, &tile, weights, 0, 1)
                                         : disco_sum_row_mve(patches, 0, &tile, weights, 1, 2);
    return disco_narrow_mve(disco_scale_channel_mve(even, channel, &op->requantise),
                            disco_scale_channel_mve(odd, channel, &op->requantise), &op->requantise);
}

/* One output channel of `rows` rows (as many as the tile has, or 1). */
DISCO_VARIANT void disco_depthwise_channel_mve(const disco_depthwise_mve_t *op, const int8_t *strip, int8_t *out,
                                               const disco_output_t *view, size_t rows, const int8_t *weights,
                                               const int32_t channel[3]) {
    const disco_tile_mve_t tile = disco_tile_of_mve(&op->window);
    const size_t columns = 8 / tile.rows, tiles = view->width / columns, left = view->width % columns;
    const uint32x4_t places = vshlq_n_u32(vidupq_n_u32(0, 1), 6);
    const uint16x8_t lanes = vidupq_n_u16(0, 1);
    const uint16x8_t out_columns = tile.rows == 2 ? vshrq_n_u16(lanes, 1) : lanes;
    const uint16x8_t out_rows = tile.rows == 2 ? vandq_u16(lanes, vdupq_n_u16(1)) : vdupq_n_u16(0);
    const uint16x8_t out_places =
        vmlaq_n_u16(vmulq_n_u16(out_columns, view->stride), out_rows, (uint16_t)(view->width * view->stride));
    const mve_pred16_t row_lanes = rows < tile.rows ? 0x3333 : 0xFFFF;
    int8x16_t moved[4];
    for (size_t dx = 0; dx < tile.columns; dx++) {
        for (size_t dy = 0; dy < tile.rows; dy++) {
            moved[2 * dx + dy] = vldrbq_s8(weights + DISCO_PATCH_MOVE - DISCO_PATCH * dx - dy);
        }
    }
#pragma GCC unroll 1
    for (size_t n = tiles; n > 0; n--) {
        const int16x8_t result = disco_depthwise_tile_mve(op, strip, places, moved, channel);
        if (rows == tile.rows) {
            vstrbq_scatter_offset_s16(out, out_places, result);
        } else {
            vstrbq_scatter_offset_p_s16(out, out_places, result, row_lanes);
        }
        strip += columns / tile.columns * tile.patch_step;
        out += columns * view->stride;
    }
    if (left > 0) {
        const mve_pred16_t there = (mve_pred16_t)(vctp16q(left * tile.rows) & row_lanes);
        vstrbq_scatter_offset_p_s16(out, out_places, disco_depthwise_tile_mve(op, strip, places, moved, channel), there);
    }
}

DISCO_VARIANT void disco_depthwise_rows_mve(const disco_depthwise_mve_t *op, const disco_input_t *in, const disco_output_t *out,
                                            int8_t *scratch, size_t y, size_t rows) {
    int8_t *const strip = scratch + DISCO_MVE_BYTES;
    const size_t multiplier = op->depth_multiplier, channels = out->channels / multiplier;
    for (size_t first = 0; first < channels; first += DISCO_MVE_BYTES) {
        const size_t count = channels - first < DISCO_MVE_BYTES ? channels - first : DISCO_MVE_BYTES;
        disco_fill_strip_mve(op, in, strip, scratch, y, rows, out->width, first, count);
        for (size_t c = first * multiplier; c < (first + count) * multiplier; c++) {
            disco_depthwise_channel_mve(op, strip + (c / multiplier - first) * DISCO_PATCH, disco_output_pixel(out, y, 0) + c,
                                        out, rows, op->weights + c * DISCO_MVE_BYTES, op->channels + 3 * c);
        }
    }
}

DISCO_VARIANT void disco_depthwise_mve(const disco_depthwise_mve_t *op, const disco_input_t *in, const disco_output_t *out,
                                       void *scratch, uint16_t row_begin, uint16_t row_end) {
    const size_t together = disco_tile_of_mve(&op->window).rows;
    size_t y = row_begin;
    for (; y + together <= row_end; y += together) {
        disco_depthwise_rows_mve(op, in, out, scratch, y, together);
    }
    if (y < row_end) {
        disco_depthwise_rows_mve(op, in, out, scratch, y, 1);
    }
}

#endif
