/*
 * CONV_2D on cores with the DSP extension, without im2col: input rows are widened to int16 once, into a ring that holds
 * the rows of a window, and every sum runs straight over the ring. Pixel x and pixel x + half of an output row are
 * computed together; so the ring interleaves, pair of channels by pair of channels, the input pixels that they read.
 */
#ifndef DISCO_VARIANTS_CONV2D_DSP_H
#define DISCO_VARIANTS_CONV2D_DSP_H

#include <stdint.h>
#include <string.h>

#include "disco/kernels.h"

#include "fixed_point.h"
#include "tensor_view.h"
#include "variants/mac_2x4_dsp.h"
#include "variants/simd.h"
#include "window.h"

/* How sums become int8. All forms are exact; which one may be used is known offline, from the weights.
 *
 * gemmlowp rounds the high product half up and the shift half away from zero. For a product that is not negative, both
 * add half of their last place: with two more bits in the sum they are one addition, a shift, a clamp. For a negative
 * product the second half is one less.
 */
enum {
    /* Any shift. Sums are what they mean. */
    DISCO_CONV2D_DSP_GENERAL,
    /* Shifts to the right by 1 at least. Sums are doubled, which makes SMMLAR's product the one of gemmlowp. */
    DISCO_CONV2D_DSP_SIGNED,
    /* The same where a negative product ends at activation_min anyway. The sum of a channel is 2^k times what it means,
     * k at least 2, perhaps chosen such that all channels shift alike. */
    DISCO_CONV2D_DSP_POSITIVE
};

/* One output channel. GENERAL: as in disco_requantise_t, and no offset. Else the shift goes to the right, and offset
 * holds all that is added to the high product. */
typedef struct {
    int32_t multiplier, offset, shift;
} disco_conv2d_dsp_channel_t;

typedef struct {
    disco_window_t window;
    /* For every four output channels (the last are filled up with zeros), kernel row and pair of values: the pairs of
     * the four. The values of a kernel row are its columns' channels, filled up to an even number for each column or,
     * with `patches`, for the row. Pairs are (0, 2), (1, 3), (4, 6), ... as SXTB16 makes them; the last two of a number
     * that is no multiple of four are a pair. int8: a word holds one value of a pair in bytes 0 and 1, for two
     * channels, and the other value in bytes 2 and 3. */
    const void *weights; /* of int16_t or int8_t, aligned as uint32_t */
    /* For every four output channels, filled up likewise: four biases, scaled as the sums, and four
     * disco_conv2d_dsp_channel_t, without the shift where `shift` says it. */
    const int32_t *channels;
    int32_t input_zero_point, output_zero_point;
    int32_t activation_min, activation_max;
    uint8_t weight_bytes;  /* 2: int16; 1: int8, widened before every use */
    uint8_t form;          /* of the requantisation */
    uint8_t shift;         /* of all channels, if they shift alike; else 0 */
    uint8_t pixel_scale;   /* the input is scaled by 2^pixel_scale, for weights that are not scaled */
    uint8_t patches;       /* keep windows instead of rows: for few channels and for dilated columns */
    uint8_t rows_together; /* output rows per turn */
} disco_conv2d_dsp_t;

/* What follows from the parameters; in generated code all of it is constant. Sizes in words, each a pair of int16. */
typedef struct {
    int32_t width;     /* output pixels in a row; with `is_flat` all rows of a turn are one */
    int32_t half;      /* from an output pixel to the one computed together with it */
    int32_t pitch;     /* input pixels from one column of the ring to the next */
    int32_t columns;   /* of the ring */
    uint32_t run;      /* pairs that a sum reads without a gap */
    uint32_t step;     /* from one output pixel to the next, in the ring */
    uint32_t row;      /* a row of the ring */
    int32_t rows;      /* of the ring */
    uint32_t block;    /* int16 weights of four output channels */
    uint32_t *widened; /* int8 weights: those of four output channels */
    uint32_t *ring;
    int8_t *gathered; /* patches: the values of a kernel row that does not lie in the input as it is */
} disco_conv2d_dsp_plan_t;

/* Whether every input pixel belongs to one output pixel. */
DISCO_VARIANT int disco_conv2d_dsp_is_pointwise(const disco_conv2d_dsp_t *op) {
    const disco_window_t *const w = &op->window;
    return w->kernel_h == 1 && w->kernel_w == 1 && w->stride_h == 1 && w->stride_w == 1 && w->pad_top == 0 &&
           w->pad_left == 0;
}

/* Whether the ring holds a window for each output pixel, so that rows need not be told apart. */
DISCO_VARIANT int disco_conv2d_dsp_is_flat(const disco_conv2d_dsp_t *op) {
    return op->patches || disco_conv2d_dsp_is_pointwise(op);
}

DISCO_VARIANT disco_conv2d_dsp_plan_t disco_conv2d_dsp_plan(const disco_conv2d_dsp_t *op, const disco_input_t *in,
                                                            const disco_output_t *out, void *scratch, int32_t rows) {
    const disco_window_t *const w = &op->window;
    const uint32_t pairs = (uint32_t)(in->channels + 1) / 2;
    disco_conv2d_dsp_plan_t plan;
    plan.width = disco_conv2d_dsp_is_flat(op) ? rows * out->width : out->width;
    plan.half = (plan.width + 1) / 2;
    /* A kernel of one column skips pixels. */
    plan.pitch = w->kernel_w == 1 ? w->stride_w : 1;
    plan.columns = (plan.half - 1) * (w->kernel_w == 1 ? 1 : w->stride_w) + w->kernel_w;
    if (op->patches) {
        plan.run = w->kernel_h * ((uint32_t)(w->kernel_w * in->channels + 1) / 2);
        plan.step = 2 * plan.run;
        plan.row = (uint32_t)plan.half * plan.step;
        plan.rows = 1;
        plan.block = 4 * plan.run;
    } else {
        plan.run = w->kernel_w * pairs;
        plan.step = 2 * pairs * (w->kernel_w == 1 ? 1 : w->stride_w);
        plan.row = (uint32_t)plan.columns * 2 * pairs;
        plan.rows = disco_conv2d_dsp_is_flat(op)
                        ? 1
                        : (w->kernel_h - 1) * w->dilation_h + 1 + (op->rows_together - 1) * w->stride_h;
        plan.block = 4 * w->kernel_h * plan.run;
    }
    plan.widened = scratch;
    plan.ring = plan.widened + (op->weight_bytes == 1 ? plan.block : 0);
    plan.gathered = (int8_t *)(plan.ring + (uint32_t)plan.rows * plan.row);
    return plan;
}

DISCO_VARIANT uint32_t disco_conv2d_dsp_scale(const disco_conv2d_dsp_t *op, uint32_t pair) {
    for (int i = 0; i < op->pixel_scale; i++) {
        pair = disco_sadd16(pair, pair);
    }
    return pair;
}

/* Less the zero point. */
DISCO_VARIANT void disco_conv2d_dsp_widen_word(const disco_conv2d_dsp_t *op, uint32_t *target, uint32_t values,
                                               int pairs) {
    const uint32_t zero_point = (uint32_t)-op->input_zero_point & 0xffffu;
    const uint32_t zero_points = zero_point << 16 | zero_point;
    target[0] = disco_conv2d_dsp_scale(op, disco_sxtab16(zero_points, values));
    if (pairs == 2) {
        target[2] = disco_conv2d_dsp_scale(op, disco_sxtab16_high(zero_points, values));
    }
}

/* `count` values into every other word of the ring. What fills up meets weights of zero. */
DISCO_VARIANT void disco_conv2d_dsp_widen(const disco_conv2d_dsp_t *op, uint32_t *target, const int8_t *source,
                                          uint32_t count) {
    const int8_t *const end = source + (count & ~UINT32_C(3));
    DISCO_UNROLL(4)
    for (; source != end; source += 4, target += 4) {
        disco_conv2d_dsp_widen_word(op, target, disco_load_word(source), 2);
    }
    const uint32_t first = count & 3 ? (uint8_t)source[0] : 0;
    const uint32_t second = (count & 3) > 1 ? (uint8_t)source[1] : 0;
    switch (count & 3) {
    case 1:
    case 2:
        disco_conv2d_dsp_widen_word(op, target, first | second << 16, 1);
        break;
    case 3:
        disco_conv2d_dsp_widen_word(op, target, first | second << 8 | (uint32_t)(uint8_t)source[2] << 16, 2);
        break;
    default:
        break;
    }
}

/* The columns of the ring that lie within a row of `width` input pixels: begin .. end-1. `first`: pixel of column 0. */
DISCO_VARIANT void disco_conv2d_dsp_inside(const disco_conv2d_dsp_plan_t *plan, int32_t first, int32_t width,
                                           int32_t *begin, int32_t *end) {
    *begin = first < 0 ? (-first + plan->pitch - 1) / plan->pitch : 0;
    *begin = *begin < plan->columns ? *begin : plan->columns;
    *end = first < width ? (width - first + plan->pitch - 1) / plan->pitch : 0;
    *end = *end < *begin ? *begin : *end < plan->columns ? *end : plan->columns;
}

/* One row of `width` pixels from `source` on; `clear`: sets what lies outside of it to zero instead. */
DISCO_VARIANT void disco_conv2d_dsp_fill_row(const disco_conv2d_dsp_t *op, const disco_conv2d_dsp_plan_t *plan,
                                             const disco_input_t *in, const int8_t *source, int32_t width,
                                             uint32_t *row, int clear) {
    const uint32_t column_words = 2 * ((uint32_t)(in->channels + 1) / 2);
    for (int32_t lane = 0; lane < 2; lane++) {
        const int32_t first = lane * plan->half * op->window.stride_w - op->window.pad_left;
        int32_t begin, end;
        disco_conv2d_dsp_inside(plan, first, width, &begin, &end);
        uint32_t *target = row + lane;
        if (clear) {
            for (int32_t column = 0; column < plan->columns; column++, target += column_words) {
                for (uint32_t i = 0; i < column_words && (column < begin || column >= end); i += 2) {
                    target[i] = 0;
                }
            }
        } else if (begin < end) {
            target += (uint32_t)begin * column_words;
            DISCO_UNROLL(1)
            for (int32_t column = begin; column < end; column++, target += column_words) {
                const size_t pixel = (size_t)(first + column * plan->pitch);
                disco_conv2d_dsp_widen(op, target, source + pixel * in->stride, in->channels);
            }
        }
    }
}

/* Brings into the ring what the output rows from y on read and those before did not. */
DISCO_VARIANT void disco_conv2d_dsp_fill_ring(const disco_conv2d_dsp_t *op, const disco_conv2d_dsp_plan_t *plan,
                                              const disco_input_t *in, int32_t y, int32_t rows) {
    const disco_window_t *const w = &op->window;
    const int32_t extent = (w->kernel_h - 1) * w->dilation_h + 1;
    const int32_t top = y * w->stride_h - w->pad_top;
    int32_t begin = top > 0 ? top : 0;
    if (y > 0 && top - w->stride_h + extent > begin) {
        begin = top - w->stride_h + extent;
    }
    int32_t end = top + (rows - 1) * w->stride_h + extent;
    end = end < in->height ? end : in->height;
    if (y == 0) {
        for (int32_t slot = 0; slot < plan->rows; slot++) {
            disco_conv2d_dsp_fill_row(op, plan, in, in->data, in->width, plan->ring + (uint32_t)slot * plan->row, 1);
        }
    }
    for (int32_t row = begin; row < end; row++) {
        uint32_t *const target = plan->ring + (uint32_t)(row % plan->rows) * plan->row;
        disco_conv2d_dsp_fill_row(op, plan, in, disco_input_pixel(in, (size_t)row, 0), in->width, target, 0);
    }
}

/* The values of a kernel row that reaches over the border or has gaps, from the input's column `left` on; the zero
 * point for what lies outside. */
DISCO_VARIANT void disco_conv2d_dsp_gather(const disco_conv2d_dsp_t *op, const disco_input_t *in, const int8_t *row,
                                           int32_t left, int8_t *gathered) {
    int32_t column = left;
    for (int32_t i = 0; i < op->window.kernel_w; i++, column += op->window.dilation_w) {
        const int known = column >= 0 && column < in->width;
        const int8_t *const pixel = known ? row + (size_t)column * in->stride : NULL;
        for (int32_t channel = 0; channel < in->channels; channel++) {
            *gathered++ = known ? pixel[channel] : (int8_t)op->input_zero_point;
        }
    }
}

/* Kernel row `kernel_y` of all windows of output row y, the first of which is the ring's window `position`. */
DISCO_VARIANT void disco_conv2d_dsp_fill_kernel_row(const disco_conv2d_dsp_t *op, const disco_conv2d_dsp_plan_t *plan,
                                                    const disco_input_t *in, const disco_output_t *out, int32_t y,
                                                    int32_t position, int32_t kernel_y) {
    const disco_window_t *const w = &op->window;
    const uint32_t values = (uint32_t)w->kernel_w * in->channels;
    const int32_t row = y * w->stride_h - w->pad_top + kernel_y * w->dilation_h;
    const int inside = row >= 0 && row < in->height;
    const int8_t *const source = disco_input_pixel(in, inside ? (size_t)row : 0, 0);
    const int gaps = w->dilation_w > 1 || in->stride > in->channels;
    uint32_t *const targets = plan->ring + (uint32_t)kernel_y * 2 * ((values + 1) / 2);
    DISCO_UNROLL(1)
    for (int32_t x = 0; x < out->width; x++, position++) {
        uint32_t *const target = position < plan->half ? targets + (uint32_t)position * plan->step
                                                       : targets + (uint32_t)(position - plan->half) * plan->step + 1;
        const int32_t left = x * w->stride_w - w->pad_left;
        if (!inside) {
            for (uint32_t i = 0; i < values; i += 2) {
                target[i] = 0;
            }
        } else if (gaps || left < 0 || left + w->kernel_w > in->width) {
            disco_conv2d_dsp_gather(op, in, source, left, plan->gathered);
            disco_conv2d_dsp_widen(op, target, plan->gathered, values);
        } else {
            disco_conv2d_dsp_widen(op, target, source + (size_t)left * in->stride, values);
        }
    }
}

/* All windows of output rows y .. y + rows - 1. */
DISCO_VARIANT void disco_conv2d_dsp_fill_patches(const disco_conv2d_dsp_t *op, const disco_conv2d_dsp_plan_t *plan,
                                                 const disco_input_t *in, const disco_output_t *out, int32_t y,
                                                 int32_t rows) {
    for (int32_t i = 0; i < rows; i++) {
        DISCO_UNROLL(1)
        for (int32_t kernel_y = 0; kernel_y < op->window.kernel_h; kernel_y++) {
            disco_conv2d_dsp_fill_kernel_row(op, plan, in, out, y + i, i * out->width, kernel_y);
        }
    }
}

/* The weights of four output channels as int16. */
DISCO_VARIANT const uint32_t *disco_conv2d_dsp_weights(const disco_conv2d_dsp_t *op,
                                                       const disco_conv2d_dsp_plan_t *plan, uint32_t block) {
    const uint32_t *const weights = op->weights;
    if (op->weight_bytes == 2) {
        return weights + block * plan->block;
    }
    const uint32_t *source = weights + block * plan->block / 2;
    uint32_t *target = plan->widened;
    DISCO_UNROLL(4)
    for (uint32_t i = 0; i < plan->block; i += 4) {
        disco_sxtb16_two(&target, &source);
    }
    return plan->widened;
}

DISCO_VARIANT int32_t disco_conv2d_dsp_finish(const disco_conv2d_dsp_t *op, const disco_conv2d_dsp_channel_t *channel,
                                              int32_t sum) {
    if (op->form == DISCO_CONV2D_DSP_GENERAL) {
        return disco_requantise(sum, channel->multiplier, channel->shift, op->output_zero_point, op->activation_min,
                                op->activation_max);
    }
    const int32_t scaled = op->form == DISCO_CONV2D_DSP_SIGNED
                               ? disco_smmlar(sum, channel->multiplier, channel->offset + (sum >> 31))
                               : disco_smmla(sum, channel->multiplier, channel->offset);
    const int32_t shift = op->shift > 0 ? op->shift : channel->shift;
    return op->activation_min == -128 && op->activation_max == 127
               ? disco_ssat8_shifted(scaled, shift)
               : disco_clamp(scaled >> shift, op->activation_min, op->activation_max);
}

DISCO_VARIANT disco_conv2d_dsp_channel_t disco_conv2d_dsp_next_channel(const disco_conv2d_dsp_t *op,
                                                                       const int32_t **values) {
    disco_conv2d_dsp_channel_t channel = {0, 0, 0};
    disco_load_two(values, &channel.multiplier, &channel.offset);
    if (op->shift == 0) {
        channel.shift = *(*values)++;
    }
    return channel;
}

/* The sums of two output pixels. `pixels`: what the first of the weights belong to. */
DISCO_VARIANT void disco_conv2d_dsp_sum(const disco_conv2d_dsp_t *op, const disco_conv2d_dsp_plan_t *plan,
                                        const uint32_t *pixels, const uint32_t *weights, const uint32_t *weights_end,
                                        disco_sums_2x4_t *sums) {
    const uint32_t *const ring_end = plan->ring + (uint32_t)plan->rows * plan->row;
    disco_operands_t operands = {pixels, weights};
    if (disco_conv2d_dsp_is_flat(op)) {
        disco_mac_2x4(sums, &operands, plan->run);
        return;
    }
    while (operands.weights != weights_end) {
        disco_mac_2x4(sums, &operands, plan->run);
        if (operands.weights == weights_end) {
            break;
        }
        operands.pixels += op->window.dilation_h * plan->row - 2 * plan->run;
        operands.pixels -= operands.pixels >= ring_end ? (uint32_t)plan->rows * plan->row : 0;
    }
}

/* `count` output channels of two pixels; `second` may be the same as `first`, which then is the one that lasts. */
DISCO_VARIANT void disco_conv2d_dsp_store(const disco_conv2d_dsp_t *op, const int32_t *channels,
                                          const disco_sums_2x4_t *sums, int8_t *first, int8_t *second, int count) {
    for (int i = 0; i < count; i++) {
        const disco_conv2d_dsp_channel_t channel = disco_conv2d_dsp_next_channel(op, &channels);
        disco_store_byte(second + i, disco_conv2d_dsp_finish(op, &channel, sums->second[i]));
        disco_store_byte(first + i, disco_conv2d_dsp_finish(op, &channel, sums->first[i]));
    }
}

/* Four output channels, or fewer, of one output row. */
DISCO_VARIANT void disco_conv2d_dsp_row(const disco_conv2d_dsp_t *op, const disco_conv2d_dsp_plan_t *plan,
                                        const uint32_t *pixels, const uint32_t *weights, const uint32_t *weights_end,
                                        const int32_t *channels, int8_t *first, uint16_t stride, int count) {
    for (int32_t x = 0; x < plan->half; x++, pixels += plan->step, first += stride) {
        disco_sums_2x4_t sums;
        const int32_t *biases = channels;
        disco_load_two(&biases, &sums.first[0], &sums.first[1]);
        disco_load_two(&biases, &sums.first[2], &sums.first[3]);
        memcpy(sums.second, sums.first, sizeof sums.second);
        disco_conv2d_dsp_sum(op, plan, pixels, weights, weights_end, &sums);
        const int both = x + plan->half < plan->width;
        disco_conv2d_dsp_store(op, channels + 4, &sums, first, first + (both ? plan->half * stride : 0), count);
    }
}

/* Output rows y .. y + rows - 1, for which the ring is filled. */
DISCO_VARIANT void disco_conv2d_dsp_rows(const disco_conv2d_dsp_t *op, const disco_conv2d_dsp_plan_t *plan,
                                         const disco_input_t *in, const disco_output_t *out, int32_t y, int32_t rows,
                                         uint32_t block, int count) {
    const disco_window_t *const w = &op->window;
    const uint32_t *const weights = disco_conv2d_dsp_weights(op, plan, block);
    const int whole = disco_conv2d_dsp_is_flat(op);
    const int32_t row_end = whole ? y + 1 : y + rows;
    for (int32_t row = y; row < row_end; row++) {
        const disco_span_t span =
            disco_clip_window(row, w->stride_h, w->pad_top, w->kernel_h, w->dilation_h, in->height);
        const int32_t begin = whole ? 0 : span.begin;
        const int32_t end = whole ? w->kernel_h : span.end;
        const int32_t slot = whole ? 0 : span.first % plan->rows;
        const uint32_t kernel_row = plan->block / w->kernel_h;
        disco_conv2d_dsp_row(op, plan, plan->ring + (uint32_t)slot * plan->row, weights + (uint32_t)begin * kernel_row,
                             weights + (uint32_t)end * kernel_row, op->channels + (op->shift > 0 ? 12 : 16) * block,
                             disco_output_pixel(out, (size_t)row, 0) + 4 * block, out->stride, count);
    }
}

DISCO_VARIANT void disco_conv2d_dsp(const disco_conv2d_dsp_t *op, const disco_input_t *in, const disco_output_t *out,
                                    void *scratch, uint16_t row_begin, uint16_t row_end) {
    for (int32_t y = row_begin; y < row_end; y += op->rows_together) {
        /* Ranges end at multiples of rows_together too, but for the last row. */
        const int whole_turns = out->height % op->rows_together == 0;
        const int32_t rows = whole_turns || row_end - y > op->rows_together ? op->rows_together : row_end - y;
        const disco_conv2d_dsp_plan_t plan = disco_conv2d_dsp_plan(op, in, out, scratch, rows);
        if (op->patches) {
            disco_conv2d_dsp_fill_patches(op, &plan, in, out, y, rows);
        } else if (disco_conv2d_dsp_is_flat(op)) {
            disco_conv2d_dsp_fill_row(op, &plan, in, disco_input_pixel(in, (size_t)y, 0), plan.width, plan.ring, 0);
        } else {
            disco_conv2d_dsp_fill_ring(op, &plan, in, y, rows);
        }
        const uint32_t blocks = out->channels / 4u;
        for (uint32_t block = 0; block < blocks; block++) {
            disco_conv2d_dsp_rows(op, &plan, in, out, y, rows, block, 4);
        }
        if (out->channels % 4 > 0) {
            disco_conv2d_dsp_rows(op, &plan, in, out, y, rows, blocks, out->channels % 4);
        }
    }
}

#endif
