/*
 * CONV_2D 3x3 of stride 1 by Winograd's F(4x4, 3x3): 36 products instead of 144 for 4x4 outputs, exact in integers.
 *
 *     Y = A' [ (G w G') * (B' d B) ] A      d: 6x6 inputs, w: 3x3 weights, Y: 4x4 outputs, * element by element
 *
 *          | 4  0 -5  0  1  0 |          |  6   0   0 |
 *          | 0 -4 -4  1  1  0 |          |  4   4   4 |          | 1 -1 -1  1  1  0 |
 *     B' = | 0  4 -4 -1  1  0 |      G = |  4  -4   4 |     A' = | 0 -1  1  2 -2  0 |
 *          | 0 -2 -1  2  1  0 |          |  1   2   4 |          | 0 -1 -1  4  4  0 |
 *          | 0  2 -1 -2  1  0 |          |  1  -2   4 |          | 0 -1  1  8 -8  8 |
 *          | 0  4  0 -5  0  1 |          |  0   0   3 |
 *
 * (the first row of G is stored halved). Fractions are cleared from G, so Y is 576 times the sums of products. 576 is 9 * 64:
 * multiplying by the inverse of 9 modulo 2^32 leaves 64 times the accumulator, whatever wrapped before, if it fits, which the
 * Python side has proven from the weights.
 *
 * Inputs are taken as x + 128, which is never negative. All rows of B' but the second sum to 0, so a constant in all inputs
 * only changes element (1, 1), which is where the bias goes in too.
 *
 * Two channels share a word as high * 2^16 + low, the sum of two signed numbers, so that plain additions with shifted
 * operands transform both. DISCO_WINOGRAD4_OFFSET makes the low one non-negative in the end, and the word then is a pair of
 * int16. It is brought in where it adds the same to all 36 elements, at the 2x2 inputs of the lower right corner; the
 * 2x2 outputs that see those are put right by the channel's `corner`.
 */
#ifndef DISCO_VARIANTS_CONV2D_WINOGRAD_H
#define DISCO_VARIANTS_CONV2D_WINOGRAD_H

#include <stddef.h>

#include "disco/kernels.h"
#include "fixed_point.h"
#include "variants/requantise_fast.h"
#include "variants/simd.h"

#define DISCO_WINOGRAD4_OFFSET   0x3800u
#define DISCO_WINOGRAD4_ELEMENTS 36u

/* How accumulators are requantised. */
enum {
    DISCO_WINOGRAD4_POSITIVE, /* shifted right, and clamped to the zero point or more: what is negative does not count */
    DISCO_WINOGRAD4_SIGNED,   /* shifted right */
    DISCO_WINOGRAD4_ANY       /* shifted anywhere */
};

/* Eight numbers per output channel. */
enum {
    DISCO_WINOGRAD4_BIAS, /* 576 (weights transformed in flash) or 36 times the bias with the zero point folded in */
    DISCO_WINOGRAD4_MULTIPLIER,  /* Q31 */
    DISCO_WINOGRAD4_ROUNDING,    /* 2^right shift * (zero point + 1/2); with POSITIVE 32 times that, + 16; with ANY 0 */
    DISCO_WINOGRAD4_RIGHT_SHIFT, /* SIGNED: 1..23; POSITIVE: 5 more, 6..22; ANY: negative is left */
    DISCO_WINOGRAD4_CORNER,      /* four, added to 64 times the accumulators of the tile's lower right 2x2 outputs */
    DISCO_WINOGRAD4_CHANNEL = DISCO_WINOGRAD4_CORNER + 4
};

typedef struct {
    uint16_t pad_top, pad_left;
    uint16_t tile_rows;    /* computed together: 4 * tile_rows output rows */
    uint16_t tile_columns; /* computed together, even */
    uint16_t transformed; /* weights: 1: [out / 2][36][in / 4][4], pairs of int16; 0: [out / 2][in / 4][2][9], 4 int8 */
    uint16_t rounding;    /* DISCO_WINOGRAD4_POSITIVE, _SIGNED or _ANY */
    int32_t input_zero_point;
    const uint32_t *weights;
    const int32_t *channels; /* [out][DISCO_WINOGRAD4_CHANNEL] */
    disco_output_range_t range;
} disco_conv2d_winograd4_t;

/* Sizes in words that follow from the op and the view. */
typedef struct {
    size_t quads; /* input channels in fours */
    size_t
        element; /* one element of two tiles: their input channels, and room for what comes out, 2 tiles x 2 channels */
    size_t columns; /* inputs that a group of tiles spans */
} disco_winograd4_sizes_t;

DISCO_VARIANT disco_winograd4_sizes_t disco_winograd4_sizes(const disco_conv2d_winograd4_t *op,
                                                            const disco_input_t *in) {
    const size_t quads = ((size_t)in->channels + 3) / 4;
    const disco_winograd4_sizes_t sizes = {quads, 4 * quads + 4, 4u * op->tile_columns + 2};
    return sizes;
}

/* ---- inputs ---- */

/* B' d for six words that are `step` apart; d[4] and d[5] may carry an offset, which reaches all six. */
DISCO_VARIANT void disco_winograd4_input_1d(const uint32_t d[6], uint32_t *out, size_t step) {
    const uint32_t even = d[4] - d[2], odd = d[3] - d[1];
    const uint32_t even4 = d[4] - (d[2] << 2), odd4 = d[3] - (d[1] << 2);
    out[0] = even + ((d[0] - d[2]) << 2);
    out[step] = even4 + odd4;
    out[2 * step] = even4 - odd4;
    out[3 * step] = even + (odd << 1);
    out[4 * step] = even - (odd << 1);
    out[5 * step] = d[5] - d[3] - (odd << 2);
}

/* Up to four channels; those that are not there read as 0, and their weights are 0. */
DISCO_VARIANT uint32_t disco_winograd4_load(const int8_t *pixel, size_t channels) {
    uint32_t word = 0;
    if (channels >= 4) {
        return disco_load_word(pixel);
    }
    for (size_t i = 0; i < channels; i++) {
        word |= (uint32_t)(uint8_t)pixel[i] << (8 * i);
    }
    return word;
}

/* The six inputs of a column, from top to bottom, of which [first, end) exist. */
DISCO_VARIANT void disco_winograd4_column(const int8_t *pixel, size_t row_bytes, size_t first, size_t end,
                                          uint32_t padding, size_t channels, uint32_t *out, size_t columns) {
    uint32_t low[6], high[6];
    for (size_t i = 0; i < 6; i++) {
        const uint32_t word =
            i >= first && i < end ? disco_winograd4_load(pixel + (i - first) * row_bytes, channels) : padding;
        low[i] = disco_sxtab16(0x00800080u, word);
        high[i] = disco_sxtab16_high(0x00800080u, word);
    }
    disco_winograd4_input_1d(low, out, columns);
    disco_winograd4_input_1d(high, out + 6 * columns, columns);
}

/* All columns of a group: out[channel pair 2][row of B' d 6][column]. `left` is where the first one lies, from -pad_left on. */
DISCO_VARIANT void disco_winograd4_columns(const disco_input_t *in, int32_t top, size_t first, size_t end, int32_t left,
                                           size_t quad, uint32_t padding, uint32_t *out, size_t columns) {
    const size_t row_bytes = (size_t)in->width * in->stride;
    const int8_t *const row = in->data + (size_t)(top + (int32_t)first) * row_bytes + 4 * quad;
    const size_t channels = (size_t)in->channels - 4 * quad;
    const int32_t stop = (int32_t)columns;
    const int32_t begin = left < 0 ? (-left < stop ? -left : stop) : 0;
    const int32_t inside = (int32_t)in->width - left < stop ? (int32_t)in->width - left : stop;
    int32_t x = 0;
    for (; x < begin; x++) {
        disco_winograd4_column(row, row_bytes, 0, 0, padding, channels, out + x, columns);
    }
    for (; x < inside; x++) {
        disco_winograd4_column(row + (size_t)(left + x) * in->stride, row_bytes, first, end, padding, channels, out + x,
                               columns);
    }
    for (; x < stop; x++) {
        disco_winograd4_column(row, row_bytes, 0, 0, padding, channels, out + x, columns);
    }
}

/* (B' d) B for one row of B' d and one tile: six elements. `first` is the row's first two inputs, and those of the next. */
DISCO_VARIANT void disco_winograd4_tile(const uint32_t *row, uint32_t first[2], uint32_t *values, size_t element) {
    const uint32_t d4 = row[4], d5 = row[5];
    const uint32_t d[6] = {
        first[0], first[1], row[2], row[3], d4 + DISCO_WINOGRAD4_OFFSET, d5 + DISCO_WINOGRAD4_OFFSET};
    disco_winograd4_input_1d(d, values, element);
    first[0] = d4;
    first[1] = d5;
}

/* The same for all tiles of the group, which are stored in twos. `values` is where the channel pair of the first tile's first
 * element goes. */
DISCO_VARIANT void disco_winograd4_row(const uint32_t *row, size_t tiles, uint32_t *values, size_t element) {
    uint32_t first[2] = {row[0], row[1]};
#pragma GCC unroll 1
    for (size_t t = 0; t < tiles; t += 2) {
        disco_winograd4_tile(row, first, values, element);
        if (t + 1 < tiles) {
            disco_winograd4_tile(row + 4, first, values + 1, element);
        }
        row += 8;
        values += DISCO_WINOGRAD4_ELEMENTS * element;
    }
}

/* B' d B of all channels for the tiles of a group; (top, left) is the first input, `row_limit` the end of those that may be
 * read. `columns` is room for disco_winograd4_columns. */
DISCO_VARIANT void disco_winograd4_input(const disco_conv2d_winograd4_t *op, const disco_input_t *in, int32_t top,
                                         int32_t left, int32_t row_limit, size_t tiles, uint32_t *columns,
                                         uint32_t *values) {
    const disco_winograd4_sizes_t sizes = disco_winograd4_sizes(op, in);
    const uint32_t padding = ((uint32_t)op->input_zero_point & 0xFFu) * 0x01010101u;
    const size_t width = 4 * tiles + 2;
    const int32_t above = top < 0 ? -top : 0, below = row_limit - top;
    const size_t first = above < below ? (size_t)above : 0;
    const size_t end = above < below ? (size_t)(below < 6 ? below : 6) : 0;
    for (size_t quad = 0; quad < sizes.quads; quad++) {
        if (first == 0 && end == 6) {
            disco_winograd4_columns(in, top, 0, 6, left, quad, padding, columns, width);
        } else {
            disco_winograd4_columns(in, first < end ? top : 0, first, end, left, quad, padding, columns, width);
        }
        for (size_t pair = 0; pair < 2; pair++) {
            for (size_t i = 0; i < 6; i++) {
                disco_winograd4_row(columns + (6 * pair + i) * width, tiles,
                                    values + 6 * i * sizes.element + 4 * quad + 2 * pair, sizes.element);
            }
        }
    }
}

/* ---- products ---- */

/* For each of the 36 elements, the sums over the input channels of 2 tiles x 2 output channels. `values` holds per element
 * {tile 0, tile 1} for each pair of channels, then room for {tile 0 x channel 0, 0 x 1, 1 x 0, 1 x 1}; `weights` likewise
 * {channel 0, channel 1}. The sums wrap. */
#if defined(__ARM_FEATURE_DSP) && !defined(__clang__)

/* Ten instructions for eight products of pairs. Loads of four words need registers in order, which only assembly can ask for. */
#define DISCO_WINOGRAD4_STEP(first, input)                                                                             \
    __asm__("ldmia %[v]!, {r4-r7}\n\t"                                                                                 \
            "ldmia %[w]!, {r8-r11}\n\t" first "smlad %[s0], r6, r10, %[s0]\n\t"                                        \
            "smlad %[s1], r6, r11, %[s1]\n\t"                                                                          \
            "smlad %[s2], r7, r10, %[s2]\n\t"                                                                          \
            "smlad %[s3], r7, r11, %[s3]"                                                                              \
            : [v] "+&r"(values), [w] "+&r"(weights), [s0] input(s0), [s1] input(s1), [s2] input(s2), [s3] input(s3)    \
            :                                                                                                          \
            : "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "memory")

#define DISCO_WINOGRAD4_ELEMENT()                                                                                      \
    do {                                                                                                               \
        DISCO_WINOGRAD4_STEP("smuad %[s0], r4, r8\n\t"                                                                 \
                             "smuad %[s1], r4, r9\n\t"                                                                 \
                             "smuad %[s2], r5, r8\n\t"                                                                 \
                             "smuad %[s3], r5, r9\n\t",                                                                \
                             "=&r");                                                                                   \
        for (size_t quad = 1; quad < quads; quad++) {                                                                  \
            DISCO_WINOGRAD4_STEP("smlad %[s0], r4, r8, %[s0]\n\t"                                                      \
                                 "smlad %[s1], r4, r9, %[s1]\n\t"                                                      \
                                 "smlad %[s2], r5, r8, %[s2]\n\t"                                                      \
                                 "smlad %[s3], r5, r9, %[s3]\n\t",                                                     \
                                 "+&r");                                                                               \
        }                                                                                                              \
        __asm__("stmia %[v]!, {%[s0], %[s1], %[s2], %[s3]}"                                                            \
                : [v] "+r"(values)                                                                                     \
                : [s0] "r"(s0), [s1] "r"(s1), [s2] "r"(s2), [s3] "r"(s3)                                               \
                : "memory");                                                                                           \
    } while (0)

DISCO_VARIANT void disco_winograd4_products(uint32_t *values, const uint32_t *weights, size_t quads) {
    register uint32_t s0 __asm__("r0");
    register uint32_t s1 __asm__("r1");
    register uint32_t s2 __asm__("r2");
    register uint32_t s3 __asm__("r3");
    const uint32_t *const end = values + DISCO_WINOGRAD4_ELEMENTS * (4 * quads + 4);
    do {
        DISCO_WINOGRAD4_ELEMENT();
        if (quads <= 4) { /* Four at a time where the loop would cost more than a few per cent. */
            DISCO_WINOGRAD4_ELEMENT();
            DISCO_WINOGRAD4_ELEMENT();
            DISCO_WINOGRAD4_ELEMENT();
        }
    } while (values != end);
}

#else

DISCO_VARIANT void disco_winograd4_products(uint32_t *values, const uint32_t *weights, size_t quads) {
    for (size_t element = 0; element < DISCO_WINOGRAD4_ELEMENTS; element++) {
        int32_t sums[4] = {0, 0, 0, 0};
        for (size_t pair = 0; pair < 2 * quads; pair++, values += 2, weights += 2) {
            for (size_t i = 0; i < 4; i++) {
                sums[i] = disco_smlad(values[i / 2], weights[i % 2], sums[i]);
            }
        }
        for (size_t i = 0; i < 4; i++) {
            *values++ = (uint32_t)sums[i];
        }
    }
}

#endif

/* ---- outputs ---- */

/* A' m for six sums that are `step` apart. Where the weights were left unscaled it is done here. */
DISCO_VARIANT void disco_winograd4_output_1d(const uint32_t *m, size_t step, uint32_t bias, int scaled,
                                             uint32_t out[4]) {
    const uint32_t m1 = m[step] + bias, m2 = m[2 * step], m3 = m[3 * step], m4 = m[4 * step];
    const uint32_t sum = m1 + m2, difference = m1 - m2;
    const uint32_t sum1 = scaled ? sum : sum << 2, difference1 = scaled ? difference : difference << 2;
    const uint32_t m0 = scaled ? m[0] : m[0] + (m[0] << 1),
                   m5 = scaled ? m[5 * step] : m[5 * step] + (m[5 * step] << 1);
    const uint32_t sum2 = m3 + m4, difference2 = m3 - m4;
    out[0] = sum2 - sum1 + (m0 << 1);
    out[1] = (difference2 << 1) - difference1;
    out[2] = (sum2 << 2) - sum1;
    out[3] = ((difference2 + m5) << 3) - difference1;
}

/* What takes a sum to int8. */
typedef struct {
    uint32_t inverse9;
    int32_t multiplier, half, rounding, right_shift;
} disco_winograd4_scaling_t;

DISCO_VARIANT disco_winograd4_scaling_t disco_winograd4_scaling(const int32_t *channel) {
    disco_winograd4_scaling_t scaling = {0x38E38E39u, channel[DISCO_WINOGRAD4_MULTIPLIER], 16,
                                         channel[DISCO_WINOGRAD4_ROUNDING], channel[DISCO_WINOGRAD4_RIGHT_SHIFT]};
    /* Not to be taken for constants, which would be loaded again for each output. */
    __asm__("" : "+r"(scaling.inverse9), "+r"(scaling.half));
    return scaling;
}

/* `scaled` is 64 times the accumulator. This is disco_requantise of its sixty-fourth, in fewer instructions, as the product is
 * rounded where it is shifted. Halves are rounded up, and of negative numbers down. */
DISCO_VARIANT int8_t disco_winograd4_requantise(const disco_conv2d_winograd4_t *op,
                                                const disco_winograd4_scaling_t *scaling, uint32_t scaled) {
    const disco_output_range_t *const range = &op->range;
    int32_t value;
    if (op->rounding == DISCO_WINOGRAD4_ANY) {
        return disco_requantise((int32_t)scaled >> 6, scaling->multiplier, -scaling->right_shift,
                                range->output_zero_point, range->activation_min, range->activation_max);
    }
    if (op->rounding == DISCO_WINOGRAD4_POSITIVE) {
        value = disco_smmla((int32_t)scaled, scaling->multiplier, scaling->rounding) >> scaling->right_shift;
    } else {
        const int32_t high = disco_smmla((int32_t)scaled, scaling->multiplier, scaling->half);
        value = (scaling->rounding + (high >> 31) + (high >> 5)) >> scaling->right_shift;
    }
    if (range->activation_min == -128 && range->activation_max == 127) {
        return disco_ssat8(value);
    }
    return (int8_t)disco_clamp(value, range->activation_min, range->activation_max);
}

/* Keeps the compiler from mixing what comes before with what comes after, for which there are too few registers; the array
 * is in memory there. */
#define DISCO_WINOGRAD4_THEN(array) __asm__ volatile("" : "+m"(array) : : "memory")

/* One tile of one output channel; `rows` x `columns` of its 4x4 outputs exist. */
DISCO_VARIANT void disco_winograd4_output(const disco_conv2d_winograd4_t *op, const int32_t *channel,
                                          const uint32_t *sums, size_t element, size_t row_bytes, size_t pixel_bytes,
                                          int8_t *out, size_t rows, size_t columns) {
    uint32_t t[4][6];
#pragma GCC unroll 6
    for (size_t i = 0; i < 6; i++) {
        uint32_t y[4];
        const uint32_t bias = i == 1 ? (uint32_t)channel[DISCO_WINOGRAD4_BIAS] : 0;
        disco_winograd4_output_1d(sums + 6 * i * element, element, bias, op->transformed, y);
        t[0][i] = y[0];
        t[1][i] = y[1];
        t[2][i] = y[2];
        t[3][i] = y[3];
        DISCO_WINOGRAD4_THEN(t);
    }
    const disco_winograd4_scaling_t scaling = disco_winograd4_scaling(channel);
#pragma GCC unroll 4
    for (size_t x = 0; x < 4; x++) {
        if (x < columns) {
            uint32_t y[4];
            disco_winograd4_output_1d(t[x], 1, 0, op->transformed, y);
#pragma GCC unroll 4
            for (size_t i = 0; i < 4; i++) {
                if (i < rows) {
                    const int32_t corner = i < 2 || x < 2 ? 0 : channel[DISCO_WINOGRAD4_CORNER + 2 * (i - 2) + x - 2];
                    const uint32_t scaled = y[i] * scaling.inverse9 + (uint32_t)corner;
                    out[i * row_bytes + x * pixel_bytes] = disco_winograd4_requantise(op, &scaling, scaled);
                }
            }
            DISCO_WINOGRAD4_THEN(t);
        }
    }
}

/* ---- weights that are transformed as they are needed ---- */

/* G w for three words that are `step` apart, unscaled: rows (1 0 0), (1 1 1), (1 -1 1), (1 2 4), (1 -2 4), (0 0 1). */
DISCO_VARIANT void disco_winograd4_weights_1d(const uint32_t w0, const uint32_t w1, const uint32_t w2, uint32_t *out,
                                              size_t step) {
    const uint32_t sum = disco_sadd16(w0, w2);
    const uint32_t twice1 = disco_sadd16(w1, w1), twice2 = disco_sadd16(w2, w2);
    const uint32_t sum4 = disco_sadd16(w0, disco_sadd16(twice2, twice2));
    out[0] = w0;
    out[step] = disco_sadd16(sum, w1);
    out[2 * step] = disco_ssub16(sum, w1);
    out[3 * step] = disco_sadd16(sum4, twice1);
    out[4 * step] = disco_ssub16(sum4, twice1);
    out[5 * step] = w2;
}

/* A pair of input channels of one output channel, bytes 0 and 2 of the words or (high) 1 and 3. */
DISCO_VARIANT void disco_winograd4_weights_2d(const uint32_t packed[9], int high, uint32_t *out, size_t step) {
    uint32_t t[6][3];
#pragma GCC unroll 3
    for (size_t x = 0; x < 3; x++) {
        uint32_t w[3];
        for (size_t y = 0; y < 3; y++) {
            w[y] = high ? disco_sxtb16_high(packed[3 * y + x]) : disco_sxtb16(packed[3 * y + x]);
        }
        disco_winograd4_weights_1d(w[0], w[1], w[2], &t[0][x], 3);
        DISCO_WINOGRAD4_THEN(t);
    }
#pragma GCC unroll 6
    for (size_t y = 0; y < 6; y++) {
        disco_winograd4_weights_1d(t[y][0], t[y][1], t[y][2], out + 6 * y * step, step);
        DISCO_WINOGRAD4_THEN(t);
    }
}

/* Two output channels: from [in / 4][2][9] words of four int8 to [36][in / 4][4] pairs of int16. */
DISCO_VARIANT void disco_winograd4_weights(const uint32_t *packed, size_t quads, uint32_t *out) {
    for (size_t quad = 0; quad < quads; quad++, out += 4) {
        for (size_t channel = 0; channel < 2; channel++, packed += 9) {
            disco_winograd4_weights_2d(packed, 0, out + channel, 4 * quads);
            disco_winograd4_weights_2d(packed, 1, out + channel + 2, 4 * quads);
        }
    }
}

/* ---- the op ---- */

/* Products and outputs of two tiles and two output channels; `y`, `x` is where the first tile begins. */
DISCO_VARIANT void disco_winograd4_block(const disco_conv2d_winograd4_t *op, const disco_output_t *view, size_t element,
                                         uint32_t *values, const uint32_t *weights, size_t channel, size_t y, size_t x,
                                         size_t row_end) {
    const size_t channels = (size_t)view->channels - channel, pixel_bytes = view->stride;
    const size_t rows = view->height % 4 == 0 ? 4 : row_end - y;
    const int32_t *constants = op->channels + channel * DISCO_WINOGRAD4_CHANNEL;
    disco_winograd4_products(values, weights, element / 4 - 1);
    uint32_t *sums = values + element - 4;
    for (size_t left = x; left < x + 8 && left < view->width; left += 4, sums += 2) {
        const size_t columns = view->width % 4 == 0 ? 4 : view->width - left;
        int8_t *const out = view->data + (y * view->width + left) * pixel_bytes + channel;
        for (size_t c = 0; c < 2 && c < channels; c++) {
            disco_winograd4_output(op, constants + c * DISCO_WINOGRAD4_CHANNEL, sums + c, element,
                                   view->width * pixel_bytes, pixel_bytes, out + c, rows, columns);
        }
    }
}

/* Scratch: the columns of one quad or the weights of two output channels; then the elements of a group of tiles. */
DISCO_VARIANT void disco_conv2d_winograd4(const disco_conv2d_winograd4_t *op, const disco_input_t *in,
                                          const disco_output_t *out, void *scratch, uint16_t row_begin,
                                          uint16_t row_end) {
    const disco_winograd4_sizes_t sizes = disco_winograd4_sizes(op, in);
    const size_t weight_words = DISCO_WINOGRAD4_ELEMENTS * 4 * sizes.quads,
                 pair_words = DISCO_WINOGRAD4_ELEMENTS * sizes.element;
    const size_t column_words = 12 * sizes.columns;
    uint32_t *const shared = (uint32_t *)scratch;
    uint32_t *const values = shared + (!op->transformed && weight_words > column_words ? weight_words : column_words);
    const size_t row_pairs = ((size_t)op->tile_columns + 1) / 2;
    const int32_t last_row = (int32_t)row_end + 2 - op->pad_top;
    const int32_t row_limit = last_row < in->height ? last_row : in->height;
    for (size_t y = row_begin; y < row_end; y += 4u * op->tile_rows) {
        for (size_t x = 0; x < out->width; x += 4u * op->tile_columns) {
            const size_t left_over = ((size_t)out->width - x + 3) / 4;
            const size_t tiles = left_over < op->tile_columns ? left_over : op->tile_columns;
            for (size_t r = 0; r < op->tile_rows && y + 4 * r < row_end; r++) {
                disco_winograd4_input(op, in, (int32_t)(y + 4 * r) - op->pad_top, (int32_t)x - op->pad_left, row_limit,
                                      tiles, shared, values + r * row_pairs * pair_words);
            }
            for (size_t c = 0; c < out->channels; c += 2) {
                const uint32_t *weights = op->weights + c / 2 * weight_words;
                if (!op->transformed) {
                    disco_winograd4_weights(op->weights + c / 2 * 18 * sizes.quads, sizes.quads, shared);
                    weights = shared;
                }
                for (size_t r = 0; r < op->tile_rows && y + 4 * r < row_end; r++) {
                    for (size_t t = 0; t < tiles; t += 2) {
                        disco_winograd4_block(op, out, sizes.element, values + (r * row_pairs + t / 2) * pair_words,
                                              weights, c, y + 4 * r, x + 4 * t, row_end);
                    }
                }
            }
        }
    }
}

#endif
