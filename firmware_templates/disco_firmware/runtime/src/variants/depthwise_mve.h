/*
 * DEPTHWISE_CONV_2D with Helium, windows of up to 4x4.
 *
 * Sixteen channels at a time, four input rows are laid out anew as a strip [column][channel][row], padding included:
 * four words 64 bytes apart are a patch of 4x4 values of one channel, one vector. A window of 3x3 lies in it in four
 * places, so one load serves four outputs, two rows of two, with the weights moved within their vector. Two such
 * patches make the eight outputs that are computed together: side by side, or one below the other where that leaves
 * less unused of a narrow output.
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

/* The eight outputs of a channel that are computed together. */
typedef struct {
    bool four_windows; /* two patches of two rows of two; else eight patches in a row */
    size_t rows, columns;
    size_t step;   /* bytes from a patch, or two of them side by side, to the next */
    size_t second; /* of four windows: bytes from the first patch to the second */
} disco_tile_mve_t;

DISCO_VARIANT disco_tile_mve_t disco_tile_of_mve(const disco_window_t *w, const disco_output_t *out) {
    const disco_tile_mve_t one_row = {false, 1, 8, w->stride_w * DISCO_STRIP_COLUMN, 0};
    const disco_tile_mve_t wide = {true, 2, 4, 4 * DISCO_STRIP_COLUMN, 2 * DISCO_STRIP_COLUMN};
    const size_t strip = (out->width + 2u) * DISCO_STRIP_COLUMN;
    const disco_tile_mve_t tall = {true, 4, 2, 2 * DISCO_STRIP_COLUMN, strip};
    if (w->kernel_h == DISCO_PATCH || w->kernel_w == DISCO_PATCH || w->stride_h > 1 || w->stride_w > 1 ||
        w->dilation_h > 1) {
        return one_row;
    }
    return out->height > 2 && out->width % 4u == 1 ? tall : wide;
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
    DISCO_UNROLL(1)
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

/* Moves the addresses of the columns of a patch on by `step` bytes and loads it. In assembly, because to the
 * compiler the intrinsic reads no memory. */
DISCO_VARIANT int8x16_t disco_next_patch_mve(uint32x4_t *patch, size_t step) {
    int8x16_t values;
    if (__builtin_constant_p(step) && step < 512) {
        __asm__ volatile("vldrw.u32 %q0, [%q1, %2]!" : "=&w"(values), "+w"(*patch) : "i"(step) : "memory");
    } else {
        *patch = vaddq_n_u32(*patch, step);
        __asm__ volatile("vldrw.u32 %q0, [%q1]" : "=&w"(values) : "w"(*patch) : "memory");
    }
    return values;
}

/* The patch `distance` bytes behind another one. */
DISCO_VARIANT int8x16_t disco_second_patch_mve(uint32x4_t patch, size_t distance) {
    int8x16_t values;
    if (__builtin_constant_p(distance) && distance < 512) {
        __asm__ volatile("vldrw.u32 %q0, [%q1, %2]" : "=&w"(values) : "w"(patch), "i"(distance) : "memory");
    } else {
        const uint32x4_t other = vaddq_n_u32(patch, distance);
        __asm__ volatile("vldrw.u32 %q0, [%q1]" : "=&w"(values) : "w"(other) : "memory");
    }
    return values;
}

/* Four windows of each of two patches. `weights`: as they are, one row down, one column to the right, both. */
DISCO_VARIANT int16x8_t disco_two_patches_mve(const disco_requantise_mve_t *op, uint32x4_t *patch,
                                              const disco_tile_mve_t *tile, const int8x16_t weights[4],
                                              disco_channel_mve_t channel) {
    const int8x16_t a = disco_next_patch_mve(patch, tile->step), b = disco_second_patch_mve(*patch, tile->second);
    const int32x4_t upper = disco_four_dots_mve(a, weights[0], a, weights[2], b, weights[0], b, weights[2]);
    const int32x4_t lower = disco_four_dots_mve(a, weights[1], a, weights[3], b, weights[1], b, weights[3]);
    return disco_narrow_mve(disco_scale_channel_mve(upper, channel, op), disco_scale_channel_mve(lower, channel, op),
                            op);
}

/* Four outputs of one row. */
DISCO_VARIANT int32x4_t disco_four_patches_mve(uint32x4_t *patch, size_t step, int8x16_t weights) {
    const int8x16_t patch0 = disco_next_patch_mve(patch, step), patch1 = disco_next_patch_mve(patch, step);
    const int8x16_t patch2 = disco_next_patch_mve(patch, step), patch3 = disco_next_patch_mve(patch, step);
    return disco_four_dots_mve(patch0, weights, patch1, weights, patch2, weights, patch3, weights);
}

DISCO_VARIANT int16x8_t disco_depthwise_tile_mve(const disco_requantise_mve_t *op, uint32x4_t *patch,
                                                 const disco_tile_mve_t *tile, const int8x16_t weights[4],
                                                 disco_channel_mve_t channel) {
    if (tile->four_windows) {
        return disco_two_patches_mve(op, patch, tile, weights, channel);
    }
    const int32x4_t first = disco_four_patches_mve(patch, tile->step, weights[0]);
    const int32x4_t second = disco_four_patches_mve(patch, tile->step, weights[0]);
    return disco_narrow_mve(disco_scale_channel_mve(first, channel, op), disco_scale_channel_mve(second, channel, op),
                            op);
}

/* Where lane 2 i + k of a tile is in the output: output i of the upper or lower rows of the patches, or of the first
 * or second four of the only row. */
typedef struct {
    uint16x8_t rows, columns;
} disco_lanes_mve_t;

DISCO_VARIANT disco_lanes_mve_t disco_tile_lanes_mve(const disco_tile_mve_t *tile) {
    const uint16x8_t lanes = vidupq_n_u16(0, 1), one = vdupq_n_u16(1);
    const uint16x8_t i = vshrq_n_u16(lanes, 1), k = vandq_u16(lanes, one);
    const disco_lanes_mve_t single = {vdupq_n_u16(0), vmlaq_n_u16(i, k, 4)}, wide = {k, i};
    const disco_lanes_mve_t tall = {vmlaq_n_u16(k, vshrq_n_u16(lanes, 2), 2), vandq_u16(i, one)};
    return tile->rows == 1 ? single : tile->rows == 2 ? wide : tall;
}

/* One output channel of `rows` rows, as many as the tile has or fewer. */
DISCO_VARIANT void disco_depthwise_channel_mve(const disco_depthwise_mve_t *op, const disco_tile_mve_t *tile,
                                               const int8_t *strip, int8_t *out, const disco_output_t *view,
                                               size_t rows, const int8_t *weights, disco_channel_mve_t channel) {
    const disco_lanes_mve_t lanes = disco_tile_lanes_mve(tile);
    const uint16x8_t places =
        vmlaq_n_u16(vmulq_n_u16(lanes.columns, view->stride), lanes.rows, (uint16_t)(view->width * view->stride));
    const size_t whole = rows == tile->rows ? view->width / tile->columns * tile->columns : 0;
    const int8x16_t moved[4] = {vldrbq_s8(weights + DISCO_PATCH_MOVE), vldrbq_s8(weights + DISCO_PATCH_MOVE - 1),
                                vldrbq_s8(weights + DISCO_PATCH_MOVE - DISCO_PATCH), vldrbq_s8(weights)};
    const size_t step = tile->columns * view->stride;
    uint32x4_t patch =
        vaddq_n_u32(vshlq_n_u32(vidupq_n_u32(0, 1), 6), (uint32_t)(uintptr_t)strip - (uint32_t)tile->step);
    for (size_t x = 0; x < whole; x += tile->columns, out += step) {
        vstrbq_scatter_offset_s16(out, places, disco_depthwise_tile_mve(&op->requantise, &patch, tile, moved, channel));
    }
    for (size_t x = whole; x < view->width; x += tile->columns, out += step) {
        const mve_pred16_t column_lanes = vcmphiq_u16(vdupq_n_u16((uint16_t)(view->width - x)), lanes.columns);
        const mve_pred16_t there = vcmphiq_m_u16(vdupq_n_u16((uint16_t)rows), lanes.rows, column_lanes);
        vstrbq_scatter_offset_p_s16(out, places,
                                    disco_depthwise_tile_mve(&op->requantise, &patch, tile, moved, channel), there);
    }
}

DISCO_VARIANT void disco_depthwise_rows_mve(const disco_depthwise_mve_t *op, const disco_tile_mve_t *tile,
                                            const disco_input_t *in, const disco_output_t *out, int8_t *scratch,
                                            size_t y, size_t rows) {
    int8_t *const strip = scratch + DISCO_MVE_BYTES;
    const size_t multiplier = op->depth_multiplier, channels = out->channels / multiplier;
    for (size_t first = 0; first < channels; first += DISCO_MVE_BYTES) {
        const size_t count = channels - first < DISCO_MVE_BYTES ? channels - first : DISCO_MVE_BYTES;
        disco_fill_strip_mve(op, in, strip, scratch, y, rows < 2 ? rows : 2, out->width, first, count);
        if (tile->rows > 2 && rows > 2) { /* the second strip is only there for tiles of four rows */
            disco_fill_strip_mve(op, in, strip + tile->second, scratch, y + 2, rows - 2, out->width, first, count);
        }
        for (size_t c = first * multiplier; c < (first + count) * multiplier; c++) {
            const disco_channel_mve_t channel = {op->channels[3 * c], op->channels[3 * c + 1], op->channels[3 * c + 2]};
            disco_depthwise_channel_mve(op, tile, strip + (c / multiplier - first) * DISCO_PATCH,
                                        disco_output_pixel(out, y, 0) + c, out, rows, op->weights + c * DISCO_MVE_BYTES,
                                        channel);
        }
    }
}

DISCO_VARIANT void disco_depthwise_mve(const disco_depthwise_mve_t *op, const disco_input_t *in,
                                       const disco_output_t *out, void *scratch, uint16_t row_begin, uint16_t row_end) {
    const disco_tile_mve_t tile = disco_tile_of_mve(&op->window, out);
    size_t y = row_begin;
    for (; y + tile.rows <= row_end; y += tile.rows) {
        disco_depthwise_rows_mve(op, &tile, in, out, scratch, y, tile.rows);
    }
    if (y < row_end) {
        disco_depthwise_rows_mve(op, &tile, in, out, scratch, y, row_end - y);
    }
}

#endif
