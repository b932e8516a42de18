/*
 * CONV_2D with Helium, as products of vectors of 16 int8.
 *
 * For each output row the input rows of its windows are laid out anew in a strip [column][kernel row][channel], padding
 * included, so that each window is one run of memory, which neighbouring windows share in part. A 1x1 convolution of
 * whole vectors needs no strip: there the pixels themselves are the runs.
 */
#ifndef DISCO_VARIANTS_CONV2D_MVE_H
#define DISCO_VARIANTS_CONV2D_MVE_H

#include "tensor_view.h"
#include "variants/mve.h"

typedef struct {
    disco_window_t window;
    const int8_t
        *weights; /* [4 output channels each][vectors][4][16], a filter as [kernel column][kernel row][channel] */
    const int32_t *channels; /* [4 output channels each][bias, multiplier, shift][4] */
    const uint8_t *spread;   /* where 16 neighbouring bytes of an input row go in the strip */
    uint16_t vectors;        /* of a filter */
    uint16_t spread_columns; /* whole input pixels within these 16 bytes; 1 when a pixel takes more */
    int32_t input_zero_point;
    disco_requantise_mve_t requantise;
} disco_conv2d_mve_t;

/* Runs of values at equal steps, and where their results go. */
typedef struct {
    const int8_t *values;
    size_t step;
    int8_t *out;
    size_t out_step;
    size_t count;
} disco_runs_mve_t;

/* Lane 2 c + p of the results is channel c of pixel p. */
DISCO_VARIANT void disco_convolve_group_mve(const disco_conv2d_mve_t *op, disco_runs_mve_t runs, const int8_t *weights,
                                            const int32_t *constants, size_t channels) {
    const disco_channels_mve_t group = disco_load_channels_mve(constants);
    const uint16x8_t lanes = disco_lanes_mve(1);
    const uint16x8_t places =
        vaddq_u16(vshrq_n_u16(lanes, 1), vmulq_n_u16(vandq_u16(lanes, vdupq_n_u16(1)), (uint16_t)runs.out_step));
    const mve_pred16_t written = vctp16q(2 * channels);
    const int32_t read = (int32_t)(op->vectors * DISCO_MVE_BYTES), move = (int32_t)(2 * runs.step) - read;
    const int8_t *value0 = runs.values, *value1 = runs.values + runs.step;
    /* After the pairs of an odd number comes another one that begins a run earlier. */
    for (size_t round = 0; round <= runs.count % 2; round++) {
        for (size_t pairs = round == 0 ? runs.count / 2 : 1; pairs > 0; pairs--) {
            int32x4_t first, second;
            disco_dot_2x4_mve(&value0, &value1, move, &weights, -4 * read, op->vectors, &first, &second);
            const int16x8_t result =
                disco_narrow_mve(disco_scale_mve(first, &group, &op->requantise),
                                 disco_scale_mve(second, &group, &op->requantise), &op->requantise);
            if (channels >= 4) {
                vstrbq_scatter_offset_s16(runs.out, places, result);
            } else {
                vstrbq_scatter_offset_p_s16(runs.out, places, result, written);
            }
            runs.out += 2 * runs.out_step;
        }
        value0 -= runs.step;
        value1 -= runs.step;
        runs.out -= runs.out_step;
    }
}

DISCO_VARIANT void disco_convolve_runs_mve(const disco_conv2d_mve_t *op, disco_runs_mve_t runs, size_t channels) {
    if (runs.count == 1) {
        runs.step = 0;
        runs.out_step = 0;
    }
    const int8_t *weights = op->weights;
    const int32_t *constants = op->channels;
    for (size_t c = 0; c + 4 <= channels; c += 4, runs.out += 4) {
        disco_convolve_group_mve(op, runs, weights, constants, 4);
        weights += (size_t)op->vectors * 4 * DISCO_MVE_BYTES;
        constants += 12;
    }
    if (channels % 4 != 0) {
        disco_convolve_group_mve(op, runs, weights, constants, channels % 4);
    }
}

/* The strip of a row of windows: its columns, of which `before` lie left of the input and `inside` in it. */
typedef struct {
    size_t columns, before, inside;
    size_t column_bytes;
    size_t step; /* columns from one window to the next */
    bool shared; /* by neighbouring windows; else they are dilated, or lie apart, and each has its own columns */
} disco_strip_mve_t;

DISCO_VARIANT disco_strip_mve_t disco_strip_of_mve(const disco_window_t *w, const disco_input_t *in, size_t windows) {
    const bool shared = w->dilation_w == 1 && w->stride_w <= w->kernel_w;
    const size_t columns = shared ? (windows - 1) * w->stride_w + w->kernel_w : windows * w->kernel_w;
    const size_t before = w->pad_left < columns ? w->pad_left : columns;
    const size_t inside = columns - before < in->width ? columns - before : in->width;
    const disco_strip_mve_t strip = {
        columns, before, inside, (size_t)w->kernel_h * in->channels, shared ? w->stride_w : w->kernel_w, shared,
    };
    return strip;
}

/* One kernel row of one column. */
DISCO_VARIANT void disco_copy_pixel_mve(int8_t *column, const int8_t *pixel, size_t channels) {
    for (size_t c = 0; c < channels; c += DISCO_MVE_BYTES) {
        if (channels % DISCO_MVE_BYTES == 0) {
            vstrbq_s8(column + c, vldrbq_s8(pixel + c));
        } else {
            const mve_pred16_t some = vctp8q(channels - c);
            DISCO_STORE_SOME_MVE(vstrbq_p_s8, column + c, vldrbq_z_s8(pixel + c, some), some);
        }
    }
}

/* One kernel row of neighbouring columns, several at once where pixels are short and without gaps. */
DISCO_VARIANT void disco_copy_pixels_mve(const disco_conv2d_mve_t *op, const disco_input_t *in, int8_t *column,
                                         const int8_t *pixel, size_t columns, size_t column_bytes) {
    const size_t at_once = in->channels == in->stride ? op->spread_columns : 1;
    if (at_once > 1) {
        const uint8x16_t places = vldrbq_u8(op->spread);
        for (; columns * in->channels >= DISCO_MVE_BYTES;
             columns -= at_once) { /* a part of a pixel more does not matter */
            vstrbq_scatter_offset_s8(column, places, vldrbq_s8(pixel));
            pixel += at_once * in->channels;
            column += at_once * column_bytes;
        }
        const mve_pred16_t some = vctp8q(columns * in->channels);
        vstrbq_scatter_offset_p_s8(column, places, vldrbq_z_s8(pixel, some), some);
        return;
    }
    for (; columns > 0; columns--, pixel += in->stride, column += column_bytes) {
        disco_copy_pixel_mve(column, pixel, in->channels);
    }
}

DISCO_VARIANT void disco_fill_mve(int8_t *bytes, size_t count, int8_t value) {
    const int8x16_t values = vdupq_n_s8(value);
    for (size_t i = 0; i < count; i += DISCO_MVE_BYTES) {
        DISCO_STORE_SOME_MVE(vstrbq_p_s8, bytes + i, values, vctp8q(count - i));
    }
}

/* One kernel row of the strip, from input row `row`, or of zero points when that is NULL. */
DISCO_VARIANT void disco_fill_strip_row_mve(const disco_conv2d_mve_t *op, const disco_input_t *in,
                                            disco_strip_mve_t strip, int8_t *start, const int8_t *row) {
    const disco_window_t *const w = &op->window;
    if (row == NULL) {
        for (size_t i = 0; i < strip.columns; i++, start += strip.column_bytes) {
            disco_fill_mve(start, in->channels, (int8_t)op->input_zero_point);
        }
        return;
    }
    if (strip.shared) {
        disco_copy_pixels_mve(op, in, start + strip.before * strip.column_bytes, row, strip.inside, strip.column_bytes);
        return;
    }
    for (size_t i = 0; i < strip.columns; i++, start += strip.column_bytes) {
        const int32_t x = (int32_t)(i / w->kernel_w * w->stride_w + i % w->kernel_w * w->dilation_w) - w->pad_left;
        if (x >= 0 && x < in->width) {
            disco_copy_pixel_mve(start, row + (size_t)x * in->stride, in->channels);
        }
    }
}

/* The whole strip of output row y. What lies left and right of the input stays as the first row of all leaves it. */
DISCO_VARIANT void disco_fill_conv_strip_mve(const disco_conv2d_mve_t *op, const disco_input_t *in,
                                             disco_strip_mve_t strip, int8_t *bytes, size_t y) {
    const disco_window_t *const w = &op->window;
    if (y == 0 && strip.columns > (strip.shared ? strip.inside : 0)) {
        disco_fill_mve(bytes, strip.columns * strip.column_bytes, (int8_t)op->input_zero_point);
    }
    for (size_t kernel_y = 0; kernel_y < w->kernel_h; kernel_y++) {
        const int32_t from = (int32_t)(y * w->stride_h + kernel_y * w->dilation_h) - w->pad_top;
        const int8_t *const row = from >= 0 && from < in->height ? disco_input_pixel(in, (size_t)from, 0) : NULL;
        disco_fill_strip_row_mve(op, in, strip, bytes + kernel_y * in->channels, row);
    }
}

DISCO_VARIANT void disco_conv2d_mve(const disco_conv2d_mve_t *op, const disco_input_t *in, const disco_output_t *out,
                                    void *scratch, uint16_t row_begin, uint16_t row_end) {
    const disco_window_t *const w = &op->window;
    const bool direct = w->kernel_h == 1 && w->kernel_w == 1 && w->pad_top == 0 && w->pad_left == 0 &&
                        in->channels % DISCO_MVE_BYTES == 0;
    const bool dense = direct && w->stride_h == 1 && w->stride_w == 1 && in->width == out->width;
    if (dense) { /* all rows are one */
        const size_t pixels = (size_t)(row_end - row_begin) * out->width;
        const disco_runs_mve_t runs = {disco_input_pixel(in, row_begin, 0), in->stride,
                                       disco_output_pixel(out, row_begin, 0), out->stride, pixels};
        if (pixels > 0) {
            disco_convolve_runs_mve(op, runs, out->channels);
        }
        return;
    }
    if (direct) {
        for (size_t y = row_begin; y < row_end; y++) {
            const disco_runs_mve_t runs = {disco_input_pixel(in, y * w->stride_h, 0), (size_t)w->stride_w * in->stride,
                                           disco_output_pixel(out, y, 0), out->stride, out->width};
            disco_convolve_runs_mve(op, runs, out->channels);
        }
        return;
    }
    const disco_strip_mve_t strip = disco_strip_of_mve(w, in, out->width);
    for (size_t y = row_begin; y < row_end; y++) {
        disco_fill_conv_strip_mve(op, in, strip, scratch, y);
        const disco_runs_mve_t runs = {scratch, strip.step * strip.column_bytes, disco_output_pixel(out, y, 0),
                                       out->stride, out->width};
        disco_convolve_runs_mve(op, runs, out->channels);
    }
}

#endif
