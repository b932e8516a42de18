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

/* Eight outputs of a channel: with two rows those of the upper row in `first`, of the lower in `second`; else in turn. */
DISCO_VARIANT void disco_sum_tile_mve(const int8_t *strip, const disco_tile_mve_t *tile, uint32x4_t places,
                                      const int8x16_t weights[4], int32x4_t *first, int32x4_t *second) {
    int32_t sums[8];
    const size_t columns = 8 / tile->rows;
    for (size_t x = 0; x < columns; x += tile->columns, strip += tile->patch_step) {
        const int8x16_t patch = vreinterpretq_s8_s32(vldrwq_gather_offset_s32((const int32_t *)(const void *)strip, places));
        for (size_t dx = 0; dx < tile->columns; dx++) {
            for (size_t dy = 0; dy < tile->rows; dy++) {
                sums[tile->rows * (x + dx) + dy] = vmladavq_s8(patch, weights[2 * dx + dy]);
            }
        }
    }
    *first = disco_collect_mve(sums[0], sums[2], sums[4], sums[6]);
    *second = disco_collect_mve(sums[1], sums[3], sums[5], sums[7]);
}

/* One output channel of `rows` rows (as many as the tile has, or 1). */
DISCO_VARIANT void disco_depthwise_channel_mve(const disco_depthwise_mve_t *op, const int8_t *strip, int8_t *out,
                                               const disco_output_t *view, size_t rows, const int8_t *weights,
                                               const int32_t channel[3]) {
    const disco_tile_mve_t tile = disco_tile_of_mve(&op->window);
    const size_t columns = 8 / tile.rows;
    const uint32x4_t places = vshlq_n_u32(vidupq_n_u32(0, 1), 6);
    const uint16x8_t lanes = vidupq_n_u16(0, 1);
    const uint16x8_t out_columns = tile.rows == 2 ? vshrq_n_u16(lanes, 1) : lanes;
    const uint16x8_t out_rows = tile.rows == 2 ? vandq_u16(lanes, vdupq_n_u16(1)) : vdupq_n_u16(0);
    const uint16x8_t out_places = vmlaq_n_u16(vmulq_n_u16(out_columns, view->stride), out_rows, (uint16_t)(view->width * view->stride));
    const mve_pred16_t row_lanes = rows < tile.rows ? 0x3333 : 0xFFFF;
    int8x16_t moved[4];
    for (size_t dx = 0; dx < tile.columns; dx++) {
        for (size_t dy = 0; dy < tile.rows; dy++) {
            moved[2 * dx + dy] = vldrbq_s8(weights + DISCO_PATCH_MOVE - DISCO_PATCH * dx - dy);
        }
    }
    for (size_t x = 0; x < view->width; x += columns) {
        int32x4_t first, second;
        disco_sum_tile_mve(strip, &tile, places, moved, &first, &second);
        const int16x8_t result = disco_narrow_mve(disco_scale_channel_mve(first, channel, &op->requantise),
                                                  disco_scale_channel_mve(second, channel, &op->requantise), &op->requantise);
        if (rows == tile.rows && x + columns <= view->width) {
            vstrbq_scatter_offset_s16(out, out_places, result);
        } else {
            const mve_pred16_t there = vctp16q((view->width - x) * tile.rows);
            vstrbq_scatter_offset_p_s16(out, out_places, result, (mve_pred16_t)(there & row_lanes));
        }
        strip += columns / tile.columns * tile.patch_step;
        out += columns * view->stride;
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
