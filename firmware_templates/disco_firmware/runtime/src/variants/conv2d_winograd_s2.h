/*
 * CONV_2D with columns of stride 2 and kernels 3 wide, by Winograd along rows only, exact in integers: 9 products for 4
 * outputs instead of 12, and weights only twice as many as without.
 *
 * Outputs 2 apart read even inputs e[0..4] by the outer two weights, and odd inputs o[0..3] by the middle one:
 *
 *     y = A' [ (G (w0, w2)') * (B' e) ] + 6 w1 o   is 6 times the sums of products
 *
 *          | 2 -1 -2  1  0 |        |  3  0 |          | 1  1  1  1  0 |
 *          | 0 -2 -1  1  0 |        | -3 -3 |          | 0  1 -1  2  0 |
 *     B' = | 0  2 -3  1  0 |    G = | -1  1 |     A' = | 0  1  1  4  0 |
 *          | 0 -1  0  1  0 |        |  1  2 |          | 0  1 -1  8  1 |
 *          | 0  2 -1 -2  1 |        |  0  6 |
 *
 * Weights are stored 32 times as large, which int16 still holds. Products are summed over a window's rows and channels before A'.
 * Inputs are taken as x + 128, what lies outside as the zero point.
 */
#ifndef DISCO_VARIANTS_CONV2D_WINOGRAD_S2_H
#define DISCO_VARIANTS_CONV2D_WINOGRAD_S2_H

#include <stddef.h>

#include "disco/kernels.h"
#include "tensor_view.h"
#include "variants/conv2d_winograd_products.h"
#include "variants/simd.h"

typedef struct {
    uint16_t kernel_h, stride_h, pad_top, pad_left;
    uint16_t two_lines; /* how sums become int8: variants/winograd_scaling.py */
    uint16_t shift;
    int32_t input_zero_point;
    const uint32_t *weights; /* [out / 2][6][kernel row][in / 2][2], pairs of int16; G's rows 1, 2, 3, 0, 4, then w1 */
    const int32_t *channels; /* of two channels: biases; multiplier and rounding of each; jumps */
    int32_t activation_min, activation_max;
} disco_conv2d_winograd_s2_t;

/* Sizes in words. */
typedef struct {
    size_t pairs;   /* of input channels */
    size_t depth;   /* pairs in a window's column */
    size_t element; /* of two tiles: their inputs, and room for what comes out, 2 tiles x 2 channels */
    size_t tiles;   /* in a row: four outputs each */
} disco_winograd_s2_sizes_t;

/* Keeps the compiler from loading what comes after it before, for which there are too few registers. */
#define DISCO_WINOGRAD_S2_THEN() __asm__ volatile("" : : : "memory")

/* B' e to the first five elements, in the order that the weights have. */
DISCO_VARIANT void disco_winograd_s2_transform(const uint32_t e[5], uint32_t *out, size_t element) {
    const uint32_t outer = disco_ssub16(e[3], e[1]), inner = disco_ssub16(e[2], e[1]);
    const uint32_t first = disco_ssub16(e[0], e[2]);
    out[0] = disco_ssub16(outer, disco_sadd16(e[1], e[2]));
    out[element] = disco_ssub16(disco_ssub16(disco_ssub16(e[3], e[2]), inner), inner);
    out[2 * element] = outer;
    out[3 * element] = disco_sadd16(disco_sadd16(outer, first), first);
    out[4 * element] = disco_ssub16(disco_ssub16(disco_ssub16(e[4], e[2]), outer), outer);
}

/* A pair of channels of a tile, of whose inputs only the first and the last may lie outside; `pixel` is the second. */
DISCO_VARIANT void disco_winograd_s2_tile(int which, const int8_t *pixel, size_t stride, int has_first, int has_last,
                                          uint32_t padding, uint32_t *out, size_t element) {
    for (size_t i = 0; i < 4; i++) {
        out[(5 + i) * element] = disco_winograd_load(which, pixel + 2 * i * stride);
    }
    DISCO_WINOGRAD_S2_THEN();
    const uint32_t e[5] = {has_first ? disco_winograd_load(which, pixel - stride) : padding,
                           disco_winograd_load(which, pixel + stride), disco_winograd_load(which, pixel + 3 * stride),
                           disco_winograd_load(which, pixel + 5 * stride),
                           has_last ? disco_winograd_load(which, pixel + 7 * stride) : padding};
    disco_winograd_s2_transform(e, out, element);
}

/* The same of which only inputs [first, end) exist; `pixel` is that of `first`. */
DISCO_VARIANT void disco_winograd_s2_cut_tile(int which, const int8_t *pixel, size_t stride, int32_t first, int32_t end,
                                              uint32_t padding, uint32_t *out, size_t element) {
    uint32_t e[5];
    DISCO_UNROLL(1)
    for (int32_t i = 0; i < 9; i++) {
        const uint32_t pair =
            i >= first && i < end ? disco_winograd_load(which, pixel + (size_t)(i - first) * stride) : padding;
        *(i % 2 == 0 ? &e[i / 2] : &out[(size_t)(5 + i / 2) * element]) = pair;
    }
    disco_winograd_s2_transform(e, out, element);
}

/* A pair of channels of all tiles of an input row, of which `width` pixels exist; the pair's first at `channel`. */
DISCO_VARIANT void disco_winograd_s2_pair(const disco_conv2d_winograd_s2_t *op, const disco_winograd_s2_sizes_t *sizes,
                                          int which, const disco_input_t *in, const int8_t *row, int32_t width,
                                          size_t channel, uint32_t *values) {
    const uint32_t padding = (uint32_t)(op->input_zero_point + 128) * 0x00010001u;
    const int32_t stop = 8 * (int32_t)sizes->tiles - op->pad_left;
    const int32_t stride = in->stride;
    const int8_t *const begin = row + channel;
    size_t step = 1; /* the tiles of two are beside each other */
    DISCO_UNROLL(1)
    for (int32_t left = -(int32_t)op->pad_left; left < stop; left += 8) {
        if (left >= -1 && left + 8 <= width) {
            disco_winograd_s2_tile(which, begin + (left + 1) * stride, in->stride, op->pad_left == 0 || left >= 0,
                                   left + 9 <= width, padding, values, sizes->element);
        } else {
            const int32_t first = left < 0 ? -left : 0;
            const int32_t end = width - left < 9 ? width - left : 9;
            const int8_t *const pixel = first < end ? begin + (left + first) * stride : row;
            disco_winograd_s2_cut_tile(which, pixel, in->stride, first, end, padding, values, sizes->element);
        }
        values += step;
        step = 9 * sizes->element - step;
    }
}

/* All channels of an input row, of which `width` pixels exist: all, or none. */
DISCO_VARIANT void disco_winograd_s2_row(const disco_conv2d_winograd_s2_t *op, const disco_winograd_s2_sizes_t *sizes,
                                         const disco_input_t *in, const int8_t *row, int32_t width, uint32_t *values) {
    const size_t whole = in->channels & ~3u, left = in->channels & 3u;
    DISCO_UNROLL(1)
    for (size_t channel = 0; channel < whole; channel += 4, values += 4) {
        disco_winograd_s2_pair(op, sizes, DISCO_WINOGRAD_EVEN, in, row, width, channel, values);
        disco_winograd_s2_pair(op, sizes, DISCO_WINOGRAD_ODD, in, row, width, channel, values + 2);
    }
    if (left == 3) {
        disco_winograd_s2_pair(op, sizes, DISCO_WINOGRAD_APART, in, row, width, whole, values);
        disco_winograd_s2_pair(op, sizes, DISCO_WINOGRAD_ALONE, in, row, width, whole + 1, values + 2);
    } else if (left > 0) {
        disco_winograd_s2_pair(op, sizes, left == 2 ? DISCO_WINOGRAD_NEXT : DISCO_WINOGRAD_ALONE, in, row, width, whole,
                               values);
    }
}

/* `columns` of a tile's outputs of one channel, of which `numbers` are the bias, the multiplier, and so on. */
DISCO_VARIANT void disco_winograd_s2_output(const disco_conv2d_winograd_s2_t *op, uint32_t bias,
                                            const disco_winograd_scaling_t *scaling, const uint32_t *sums,
                                            size_t element, int8_t *out, size_t stride, size_t columns) {
    const uint32_t m1 = sums[0] + bias, m2 = sums[element], m3 = sums[2 * element];
    const uint32_t sum = m1 + m2, difference = m1 - m2;
    DISCO_UNROLL(4)
    for (size_t x = 0; x < 4; x++) {
        uint32_t y = (x % 2 == 0 ? sum : difference) + (m3 << x) + sums[(5 + x) * element];
        y += x == 0 ? sums[3 * element] : x == 3 ? sums[4 * element] : 0;
        if (x < columns) {
            disco_store_byte(out + x * stride, disco_winograd_line(scaling, op->two_lines, op->shift,
                                                                   op->activation_min, op->activation_max, y));
        }
    }
}

/* All channels of two tiles; `x` is the first one's first output, `out` its pixel. */
DISCO_VARIANT void disco_winograd_s2_block(const disco_conv2d_winograd_s2_t *op, const disco_winograd_s2_sizes_t *sizes,
                                           const disco_output_t *view, uint32_t *values, size_t x, int8_t *out) {
    const uint32_t *weights = op->weights;
    const int32_t *channels = op->channels;
    size_t tiles = view->width % 8 == 0 || x + 4 < view->width ? 2 : 1;
    DISCO_HIDE(tiles); /* else GCC repeats what follows many times */
    DISCO_UNROLL(1)
    for (size_t channel = 0; channel < view->channels; channel += 2) {
        const size_t count = view->channels % 2 == 0 || channel + 1 < view->channels ? 2 : 1;
        disco_winograd_products(5, values, weights, sizes->depth, 0);
        weights += 5 * 2 * sizes->depth;
        disco_winograd_products(4, values + 5 * sizes->element, weights, sizes->depth, 2 * sizes->depth);
        weights += 2 * sizes->depth;
        DISCO_UNROLL(1)
        for (size_t tile = 0; tile < tiles; tile++) {
            const size_t begin = x + 4 * tile, left = view->width - begin;
            DISCO_UNROLL(2)
            for (size_t i = 0; i < count; i++) {
                const disco_winograd_scaling_t scaling = {channels[2 + 2 * i], channels[3 + 2 * i], channels[6 + i]};
                disco_winograd_s2_output(op, (uint32_t)channels[i], &scaling, values + 2 * sizes->depth + 2 * tile + i,
                                         sizes->element, out + 4 * tile * view->stride + channel + i, view->stride,
                                         view->width % 4 == 0 || left > 4 ? 4 : left);
            }
        }
        channels += 8;
    }
}

/* `count` pairs of two tiles of each element, from `begin` on, become the first ones: input rows of the next output row too. */
DISCO_VARIANT void disco_winograd_s2_keep(const disco_winograd_s2_sizes_t *sizes, uint32_t *values, size_t begin,
                                          size_t count) {
    uint32_t *const end = values + (sizes->tiles + 1) / 2 * 9 * sizes->element;
    DISCO_UNROLL(1)
    for (; values != end; values += sizes->element) {
        const uint32_t *source = values + 2 * begin;
        DISCO_UNROLL(16)
        for (size_t i = 0; i < count; i++) {
            uint32_t first, second;
            disco_load_pair(&source, 2, &first, &second);
            disco_store_pair(values + 2 * i, first, second);
        }
    }
}

/* Scratch: the elements of an output row. */
DISCO_VARIANT void disco_conv2d_winograd_s2(const disco_conv2d_winograd_s2_t *op, const disco_input_t *in,
                                            const disco_output_t *out, void *scratch, uint16_t row_begin,
                                            uint16_t row_end) {
    disco_winograd_s2_sizes_t sizes;
    sizes.pairs = ((size_t)in->channels + 1) / 2;
    sizes.depth = op->kernel_h * sizes.pairs;
    sizes.element = 2 * sizes.depth + 4;
    sizes.tiles = ((size_t)out->width + 3) / 4;
    uint32_t *const values = scratch;
    const size_t keep = op->kernel_h > op->stride_h ? (size_t)op->kernel_h - op->stride_h : 0;
    DISCO_UNROLL(1)
    for (size_t y = row_begin; y < row_end; y++) {
        if (y > 0 && keep > 0) {
            disco_winograd_s2_keep(&sizes, values, op->stride_h * sizes.pairs, keep * sizes.pairs);
        }
        DISCO_UNROLL(1)
        for (size_t i = y > 0 ? keep : 0; i < op->kernel_h; i++) {
            const int32_t row = (int32_t)(y * op->stride_h + i) - op->pad_top;
            const int exists = row >= 0 && row < in->height;
            const int8_t *const pixels = disco_input_pixel(in, exists ? (size_t)row : 0, 0);
            disco_winograd_s2_row(op, &sizes, in, pixels, exists ? in->width : 0, values + 2 * i * sizes.pairs);
        }
        DISCO_UNROLL(1)
        for (size_t tile = 0; tile < sizes.tiles; tile += 2) {
            disco_winograd_s2_block(op, &sizes, out, values + tile / 2 * 9 * sizes.element, 4 * tile,
                                    disco_output_pixel(out, y, 4 * tile));
        }
    }
}

#endif
