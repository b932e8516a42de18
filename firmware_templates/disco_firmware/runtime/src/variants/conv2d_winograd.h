/*
 * CONV_2D 3x3 of stride 1 by Winograd's F(4x4, 3x3) or F(2x2, 3x3), exact in integers. The transforms are told in
 * conv2d_winograd_transforms.h.
 *
 * F4: 576 is 9 * 64, so multiplying by the inverse of 9 modulo 2^32 leaves 64 times the accumulator, whatever wrapped before, if
 * it fits, which the Python side has proven from the weights. F2 leaves 4 times the accumulator.
 *
 * Inputs are taken as x + 128, which is never negative. All rows of B' but the second sum to 0, so a constant in all inputs
 * only changes element (1, 1), which is where the bias goes in too.
 *
 * F4 transforms two channels in one word, high * 2^16 + low. DISCO_WINOGRAD_OFFSET makes the low one non-negative in the end,
 * and the word then is a pair of int16. It is brought in where it adds the same to all 36 elements, at the 2x2 inputs of the
 * lower right corner; the 2x2 outputs that see those are put right by the channel's `corner`.
 */
#ifndef DISCO_VARIANTS_CONV2D_WINOGRAD_H
#define DISCO_VARIANTS_CONV2D_WINOGRAD_H

#include <stddef.h>

#include "disco/kernels.h"
#include "fixed_point.h"
#include "variants/conv2d_winograd_transforms.h"
#include "variants/simd.h"

#define DISCO_WINOGRAD_OFFSET 0x3800u

/* How accumulators are requantised. */
enum {
    DISCO_WINOGRAD_POSITIVE, /* shifted right, and clamped to the zero point or more: what is negative does not count */
    DISCO_WINOGRAD_SIGNED,   /* shifted right */
    DISCO_WINOGRAD_ANY       /* shifted anywhere */
};

/* Eight numbers per output channel, with F2 the first four. k is 5 with F4, 1 with F2. */
enum {
    DISCO_WINOGRAD_BIAS, /* 576 (weights transformed in flash), 36 or, F2, 4 times the bias, zero point folded in */
    DISCO_WINOGRAD_MULTIPLIER,  /* Q31 */
    DISCO_WINOGRAD_ROUNDING,    /* 2^right shift * (zero point + 1/2); POSITIVE: 2^k times that, + 2^(k - 1); ANY: 0 */
    DISCO_WINOGRAD_RIGHT_SHIFT, /* SIGNED: 1..23; POSITIVE: 1..17, + k; ANY: negative is left */
    DISCO_WINOGRAD_CORNER       /* four, added to 64 times the accumulators of the tile's lower right 2x2 outputs */
};

typedef struct {
    uint16_t tile; /* 4 or 2: outputs along a side */
    uint16_t pad_top, pad_left;
    uint16_t tile_rows;    /* computed together: tile * tile_rows output rows */
    uint16_t tile_columns; /* computed together, even */
    /* Weights: 1: [out / 2][element][in / 4][4], pairs of int16; 0 (F4 only): [out / 2][in / 4][2][9], four int8. */
    uint16_t transformed;
    uint16_t rounding; /* DISCO_WINOGRAD_POSITIVE, _SIGNED or _ANY */
    int32_t input_zero_point;
    const uint32_t *weights;
    const int32_t *channels;
    int32_t output_zero_point;
    int32_t activation_min, activation_max;
} disco_conv2d_winograd_t;

/* What follows from the op and the view; sizes in words. */
typedef struct {
    size_t tile, side; /* outputs and inputs of a tile along a side */
    size_t elements;
    size_t quads;   /* input channels in fours */
    size_t element; /* of two tiles: their input channels, and room for what comes out, 2 tiles x 2 channels */
    size_t channel; /* numbers per output channel */
} disco_winograd_sizes_t;

DISCO_VARIANT disco_winograd_sizes_t disco_winograd_sizes(const disco_conv2d_winograd_t *op, const disco_input_t *in) {
    const size_t tile = op->tile == 4 ? 4 : 2, side = tile + 2, quads = ((size_t)in->channels + 3) / 4;
    const disco_winograd_sizes_t sizes = {tile, side, side * side, quads, 4 * quads + 4, tile == 4 ? 8 : 4};
    return sizes;
}

/* ---- inputs ---- */

DISCO_VARIANT void disco_winograd_input_1d(size_t tile, const uint32_t *d, uint32_t *out, size_t step) {
    if (tile == 4) {
        disco_winograd4_inputs(d, out, step);
    } else {
        disco_winograd2_inputs(d, out, step);
    }
}

/* Up to four channels; those that are not there read as 0, and their weights are 0. */
DISCO_VARIANT uint32_t disco_winograd_load(const int8_t *pixel, size_t channels) {
    uint32_t word = 0;
    if (channels >= 4) {
        return disco_load_word(pixel);
    }
    for (size_t i = 0; i < channels; i++) {
        word |= (uint32_t)(uint8_t)pixel[i] << (8 * i);
    }
    return word;
}

/* The inputs of a tile's column, from top to bottom, of which [first, end) exist. */
DISCO_VARIANT void disco_winograd_column(size_t tile, const int8_t *pixel, size_t row_bytes, size_t first, size_t end,
                                         uint32_t padding, size_t channels, uint32_t *out, size_t columns) {
    uint32_t low[6], high[6];
    for (size_t i = 0; i < tile + 2; i++) {
        const uint32_t word =
            i >= first && i < end ? disco_winograd_load(pixel + (i - first) * row_bytes, channels) : padding;
        low[i] = disco_sxtab16(0x00800080u, word);
        high[i] = disco_sxtab16_high(0x00800080u, word);
    }
    disco_winograd_input_1d(tile, low, out, columns);
    disco_winograd_input_1d(tile, high, out + (tile + 2) * columns, columns);
}

/* All columns of a group: out[channel pair 2][row of B' d][column]. `left` is where the first one lies, from -pad_left on. */
DISCO_VARIANT void disco_winograd_columns(size_t tile, const disco_input_t *in, int32_t top, size_t first, size_t end,
                                          int32_t left, size_t quad, uint32_t padding, uint32_t *out, size_t columns) {
    const size_t row_bytes = (size_t)in->width * in->stride;
    const int8_t *const row = in->data + (size_t)(top + (int32_t)first) * row_bytes + 4 * quad;
    const size_t channels = (size_t)in->channels - 4 * quad;
    const int32_t stop = (int32_t)columns;
    const int32_t begin = left < 0 ? (-left < stop ? -left : stop) : 0;
    const int32_t inside = (int32_t)in->width - left < stop ? (int32_t)in->width - left : stop;
    int32_t x = 0;
    for (; x < begin; x++) {
        disco_winograd_column(tile, row, row_bytes, 0, 0, padding, channels, out + x, columns);
    }
    for (; x < inside; x++) {
        disco_winograd_column(tile, row + (size_t)(left + x) * in->stride, row_bytes, first, end, padding, channels,
                              out + x, columns);
    }
    for (; x < stop; x++) {
        disco_winograd_column(tile, row, row_bytes, 0, 0, padding, channels, out + x, columns);
    }
}

/* (B' d) B for one row of B' d and one tile. `first` is the row's first two inputs, and then those of the next tile. */
DISCO_VARIANT void disco_winograd_tile(size_t tile, const uint32_t *row, uint32_t first[2], uint32_t *values,
                                       size_t element) {
    const uint32_t last[2] = {row[tile], row[tile + 1]};
    if (tile == 4) {
        const uint32_t d[6] = {
            first[0], first[1], row[2], row[3], last[0] + DISCO_WINOGRAD_OFFSET, last[1] + DISCO_WINOGRAD_OFFSET};
        disco_winograd4_inputs(d, values, element);
    } else {
        const uint32_t d[4] = {first[0], first[1], last[0], last[1]};
        disco_winograd2_inputs(d, values, element);
    }
    first[0] = last[0];
    first[1] = last[1];
}

/* The same for all tiles of the group, which are stored in twos. `values` is where the channel pair of the first tile's first
 * element goes. */
DISCO_VARIANT void disco_winograd_row(const disco_winograd_sizes_t *sizes, const uint32_t *row, size_t tiles,
                                      uint32_t *values) {
    uint32_t first[2] = {row[0], row[1]};
    DISCO_UNROLL(1)
    for (size_t t = 0; t < tiles; t += 2) {
        disco_winograd_tile(sizes->tile, row, first, values, sizes->element);
        if (t + 1 < tiles) {
            disco_winograd_tile(sizes->tile, row + sizes->tile, first, values + 1, sizes->element);
        }
        row += 2 * sizes->tile;
        values += sizes->elements * sizes->element;
    }
}

/* B' d B of all channels for the tiles of a group; (top, left) is the first input, `row_limit` the end of those that may be
 * read. `columns` is room for disco_winograd_columns. */
DISCO_VARIANT void disco_winograd_input(const disco_conv2d_winograd_t *op, const disco_winograd_sizes_t *sizes,
                                        const disco_input_t *in, int32_t top, int32_t left, int32_t row_limit,
                                        size_t tiles, uint32_t *columns, uint32_t *values) {
    const uint32_t padding = ((uint32_t)op->input_zero_point & 0xFFu) * 0x01010101u;
    const size_t tile = sizes->tile, width = tile * tiles + 2;
    const int32_t side = (int32_t)sizes->side;
    const int32_t above = top < 0 ? -top : 0, below = row_limit - top;
    const size_t first = above < below ? (size_t)above : 0;
    const size_t end = above < below ? (size_t)(below < side ? below : side) : 0;
    for (size_t quad = 0; quad < sizes->quads; quad++) {
        if (first == 0 && end == sizes->side) {
            disco_winograd_columns(tile, in, top, 0, sizes->side, left, quad, padding, columns, width);
        } else {
            disco_winograd_columns(tile, in, first < end ? top : 0, first, end, left, quad, padding, columns, width);
        }
        for (size_t pair = 0; pair < 2; pair++) {
            for (size_t i = 0; i < sizes->side; i++) {
                disco_winograd_row(sizes, columns + (sizes->side * pair + i) * width, tiles,
                                   values + sizes->side * i * sizes->element + 4 * quad + 2 * pair);
            }
        }
    }
}

/* ---- products ---- */

/* For each element the sums over the input channels of 2 tiles x 2 output channels. `values` holds per element
 * {tile 0, tile 1} for each pair of channels, then room for {tile 0 x channel 0, 0 x 1, 1 x 0, 1 x 1}; `weights` likewise
 * {channel 0, channel 1}. The sums wrap. */
#if DISCO_ASSEMBLY

/* Ten instructions for eight products of pairs. Loads of four words need registers in order, which only assembly can ask for. */
#define DISCO_WINOGRAD_STEP(first, input)                                                                              \
    __asm__ volatile(                                                                                                  \
        "ldmia %[v]!, {r4-r7}\n\t"                                                                                     \
        "ldmia %[w]!, {r8-r11}\n\t" first "smlad %[s0], r6, r10, %[s0]\n\t"                                            \
        "smlad %[s1], r6, r11, %[s1]\n\t"                                                                              \
        "smlad %[s2], r7, r10, %[s2]\n\t"                                                                              \
        "smlad %[s3], r7, r11, %[s3]"                                                                                  \
        : [v] "+&r"(values), [w] "+&r"(weights), [s0] input(s0), [s1] input(s1), [s2] input(s2), [s3] input(s3)        \
        :                                                                                                              \
        : "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "memory")

#define DISCO_WINOGRAD_ELEMENT()                                                                                       \
    do {                                                                                                               \
        DISCO_WINOGRAD_STEP("smuad %[s0], r4, r8\n\t"                                                                  \
                            "smuad %[s1], r4, r9\n\t"                                                                  \
                            "smuad %[s2], r5, r8\n\t"                                                                  \
                            "smuad %[s3], r5, r9\n\t",                                                                 \
                            "=&r");                                                                                    \
        DISCO_UNROLL(16) for (size_t quad = 1; quad < quads; quad++) {                                                 \
            DISCO_WINOGRAD_STEP("smlad %[s0], r4, r8, %[s0]\n\t"                                                       \
                                "smlad %[s1], r4, r9, %[s1]\n\t"                                                       \
                                "smlad %[s2], r5, r8, %[s2]\n\t"                                                       \
                                "smlad %[s3], r5, r9, %[s3]\n\t",                                                      \
                                "+&r");                                                                                \
        }                                                                                                              \
        __asm__ volatile("stmia %[v]!, {%[s0], %[s1], %[s2], %[s3]}"                                                   \
                         : [v] "+r"(values)                                                                            \
                         : [s0] "r"(s0), [s1] "r"(s1), [s2] "r"(s2), [s3] "r"(s3)                                      \
                         : "memory");                                                                                  \
    } while (0)

DISCO_VARIANT void disco_winograd_products(size_t elements, uint32_t *values, const uint32_t *weights, size_t quads) {
    register uint32_t s0 __asm__("r0");
    register uint32_t s1 __asm__("r1");
    register uint32_t s2 __asm__("r2");
    register uint32_t s3 __asm__("r3");
    const uint32_t *const end = values + elements * (4 * quads + 4);
    do {
        DISCO_WINOGRAD_ELEMENT();
        if (quads <= 4) { /* Four at a time where the loop would cost more than a few per cent. */
            DISCO_WINOGRAD_ELEMENT();
            DISCO_WINOGRAD_ELEMENT();
            DISCO_WINOGRAD_ELEMENT();
        }
    } while (values != end);
}

#else

DISCO_VARIANT void disco_winograd_products(size_t elements, uint32_t *values, const uint32_t *weights, size_t quads) {
    for (size_t element = 0; element < elements; element++) {
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

/* What takes a sum to int8. */
typedef struct {
    int32_t extra; /* k */
    uint32_t inverse;
    int32_t half, multiplier, rounding, right_shift;
} disco_winograd_scaling_t;

DISCO_VARIANT disco_winograd_scaling_t disco_winograd_scaling(size_t tile, const int32_t *channel) {
    disco_winograd_scaling_t scaling = {tile == 4 ? 5 : 1,
                                        tile == 4 ? 0x38E38E39u : 1u,
                                        tile == 4 ? 16 : 1,
                                        channel[DISCO_WINOGRAD_MULTIPLIER],
                                        channel[DISCO_WINOGRAD_ROUNDING],
                                        channel[DISCO_WINOGRAD_RIGHT_SHIFT]};
    if (tile == 4) { /* Not to be taken for a constant, which would be loaded again for each output. */
        __asm__("" : "+r"(scaling.inverse));
    }
    __asm__("" : "+r"(scaling.half));
    return scaling;
}

/* `scaled` is 2^(k + 1) times the accumulator. This is disco_requantise of the accumulator in fewer instructions, as the product is
 * rounded where it is shifted. Halves are rounded up, and of negative numbers down. */
DISCO_VARIANT int8_t disco_winograd_requantise(const disco_conv2d_winograd_t *op,
                                               const disco_winograd_scaling_t *scaling, uint32_t scaled) {
    int32_t value;
    if (op->rounding == DISCO_WINOGRAD_ANY) {
        return disco_requantise((int32_t)scaled >> (scaling->extra + 1), scaling->multiplier, -scaling->right_shift,
                                op->output_zero_point, op->activation_min, op->activation_max);
    }
    if (op->rounding == DISCO_WINOGRAD_POSITIVE) {
        value = disco_smmla((int32_t)scaled, scaling->multiplier, scaling->rounding) >> scaling->right_shift;
    } else {
        const int32_t high = disco_smmla((int32_t)scaled, scaling->multiplier, scaling->half);
        value = (scaling->rounding + (high >> 31) + (high >> scaling->extra)) >> scaling->right_shift;
    }
    if (op->activation_min == -128 && op->activation_max == 127) {
        return disco_ssat8(value);
    }
    return (int8_t)disco_clamp(value, op->activation_min, op->activation_max);
}

DISCO_VARIANT void disco_winograd_output_1d(size_t tile, const uint32_t *m, size_t step, uint32_t bias, int scaled,
                                            uint32_t *out) {
    if (tile == 4) {
        disco_winograd4_outputs(m, step, bias, scaled, out);
    } else {
        disco_winograd2_outputs(m, step, bias, out);
    }
}

/* Keeps the compiler from mixing what comes before with what comes after, for which there are too few registers; the array
 * is in memory there. */
#define DISCO_WINOGRAD_THEN(array) __asm__ volatile("" : "+m"(array) : : "memory")

/* One tile of one output channel; `rows` x `columns` of its outputs exist. */
DISCO_VARIANT void disco_winograd_output(const disco_conv2d_winograd_t *op, const disco_winograd_sizes_t *sizes,
                                         const int32_t *channel, const uint32_t *sums, size_t row_bytes,
                                         size_t pixel_bytes, int8_t *out, size_t rows, size_t columns) {
    const size_t tile = sizes->tile, side = sizes->side, element = sizes->element;
    uint32_t t[4][6], y[4] = {0};
    DISCO_UNROLL(6)
    for (size_t i = 0; i < side; i++) {
        const uint32_t bias = i == 1 ? (uint32_t)channel[DISCO_WINOGRAD_BIAS] : 0;
        disco_winograd_output_1d(tile, sums + side * i * element, element, bias, op->transformed, y);
        DISCO_UNROLL(4)
        for (size_t x = 0; x < tile; x++) {
            t[x][i] = y[x];
        }
        DISCO_WINOGRAD_THEN(t);
    }
    const disco_winograd_scaling_t scaling = disco_winograd_scaling(tile, channel);
    DISCO_UNROLL(4)
    for (size_t x = 0; x < tile; x++) {
        if (x >= columns) {
            break;
        }
        disco_winograd_output_1d(tile, t[x], 1, 0, op->transformed, y);
        DISCO_UNROLL(4)
        for (size_t i = 0; i < tile; i++) {
            if (i < rows) {
                const int apart = tile == 4 && i >= 2 && x >= 2;
                const int32_t corner = apart ? channel[DISCO_WINOGRAD_CORNER + 2 * (i - 2) + x - 2] : 0;
                const uint32_t scaled = y[i] * scaling.inverse + (uint32_t)corner;
                out[i * row_bytes + x * pixel_bytes] = disco_winograd_requantise(op, &scaling, scaled);
            }
        }
        DISCO_WINOGRAD_THEN(t);
    }
}

/* ---- weights that are transformed as they are needed (F4) ---- */

/* A pair of input channels of one output channel, bytes 0 and 2 of the words or (high) 1 and 3. */
DISCO_VARIANT void disco_winograd_weights_2d(const uint32_t packed[9], int high, uint32_t *out, size_t step) {
    uint32_t t[6][3];
    DISCO_UNROLL(3)
    for (size_t x = 0; x < 3; x++) {
        uint32_t w[3];
        for (size_t y = 0; y < 3; y++) {
            w[y] = high ? disco_sxtb16_high(packed[3 * y + x]) : disco_sxtb16(packed[3 * y + x]);
        }
        disco_winograd4_weights(w[0], w[1], w[2], &t[0][x], 3);
        DISCO_WINOGRAD_THEN(t);
    }
    DISCO_UNROLL(6)
    for (size_t y = 0; y < 6; y++) {
        disco_winograd4_weights(t[y][0], t[y][1], t[y][2], out + 6 * y * step, step);
        DISCO_WINOGRAD_THEN(t);
    }
}

/* Two output channels: from [in / 4][2][9] words of four int8 to [36][in / 4][4] pairs of int16. */
DISCO_VARIANT void disco_winograd_weights(const uint32_t *packed, size_t quads, uint32_t *out) {
    for (size_t quad = 0; quad < quads; quad++, out += 4) {
        for (size_t channel = 0; channel < 2; channel++, packed += 9) {
            disco_winograd_weights_2d(packed, 0, out + channel, 4 * quads);
            disco_winograd_weights_2d(packed, 1, out + channel + 2, 4 * quads);
        }
    }
}

/* ---- the op ---- */

/* Products and outputs of two tiles and two output channels; `y`, `x` is where the first tile begins. */
DISCO_VARIANT void disco_winograd_block(const disco_conv2d_winograd_t *op, const disco_winograd_sizes_t *sizes,
                                        const disco_output_t *view, uint32_t *values, const uint32_t *weights,
                                        size_t channel, size_t y, size_t x, size_t row_end) {
    const size_t channels = (size_t)view->channels - channel, pixel_bytes = view->stride, tile = sizes->tile;
    const size_t rows = view->height % tile == 0 ? tile : row_end - y;
    const int32_t *const constants = op->channels + channel * sizes->channel;
    disco_winograd_products(sizes->elements, values, weights, sizes->quads);
    uint32_t *sums = values + 4 * sizes->quads;
    for (size_t left = x; left < x + 2 * tile && left < view->width; left += tile, sums += 2) {
        const size_t columns = view->width % tile == 0 ? tile : view->width - left;
        int8_t *const out = view->data + (y * view->width + left) * pixel_bytes + channel;
        for (size_t c = 0; c < 2 && c < channels; c++) {
            disco_winograd_output(op, sizes, constants + c * sizes->channel, sums + c, view->width * pixel_bytes,
                                  pixel_bytes, out + c, rows, columns);
        }
    }
}

/* Scratch: the columns of one quad or the weights of two output channels; then the elements of a group of tiles. */
DISCO_VARIANT void disco_conv2d_winograd(const disco_conv2d_winograd_t *op, const disco_input_t *in,
                                         const disco_output_t *out, void *scratch, uint16_t row_begin,
                                         uint16_t row_end) {
    const disco_winograd_sizes_t sizes = disco_winograd_sizes(op, in);
    const size_t weight_words = sizes.elements * 4 * sizes.quads, pair_words = sizes.elements * sizes.element;
    const size_t tile = sizes.tile, column_words = 2 * sizes.side * (tile * op->tile_columns + 2);
    uint32_t *const shared = (uint32_t *)scratch;
    uint32_t *const values = shared + (!op->transformed && weight_words > column_words ? weight_words : column_words);
    const size_t row_pairs = ((size_t)op->tile_columns + 1) / 2;
    const int32_t last_row = (int32_t)row_end + 2 - op->pad_top;
    const int32_t row_limit = last_row < in->height ? last_row : in->height;
    for (size_t y = row_begin; y < row_end; y += tile * op->tile_rows) {
        for (size_t x = 0; x < out->width; x += tile * op->tile_columns) {
            const size_t left_over = ((size_t)out->width - x + tile - 1) / tile;
            const size_t tiles = left_over < op->tile_columns ? left_over : op->tile_columns;
            for (size_t r = 0; r < op->tile_rows && y + tile * r < row_end; r++) {
                disco_winograd_input(op, &sizes, in, (int32_t)(y + tile * r) - op->pad_top, (int32_t)x - op->pad_left,
                                     row_limit, tiles, shared, values + r * row_pairs * pair_words);
            }
            for (size_t c = 0; c < out->channels; c += 2) {
                const uint32_t *weights = op->weights + c / 2 * weight_words;
                if (!op->transformed) {
                    disco_winograd_weights(op->weights + c / 2 * 18 * sizes.quads, sizes.quads, shared);
                    weights = shared;
                }
                for (size_t r = 0; r < op->tile_rows && y + tile * r < row_end; r++) {
                    for (size_t t = 0; t < tiles; t += 2) {
                        disco_winograd_block(op, &sizes, out, values + (r * row_pairs + t / 2) * pair_words, weights, c,
                                             y + tile * r, x + tile * t, row_end);
                    }
                }
            }
        }
    }
}

#endif
