/*
 * CONV_2D 3x3 of stride 1 by Winograd's F(4x4, 3x3) or F(2x2, 3x3), exact in integers. The transforms are told in
 * conv2d_winograd_transforms.h.
 *
 * F4 leaves 576 times the accumulator, F2 4 times, or 64 times where its weights are stored 16 times as large. If that fits int32, a
 * line or two lead from it to the output (variants/winograd_scaling.py). Else, 576 being 9 * 64, multiplying by the inverse of 9 modulo
 * 2^32 leaves 64 times the accumulator, whatever wrapped before, if it fits, which the Python side has proven from the weights.
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
#include "variants/conv2d_winograd_products.h"
#include "variants/conv2d_winograd_transforms.h"
#include "variants/simd.h"

#define DISCO_WINOGRAD_OFFSET 0x3800u

/* How what the outputs' transform leaves is requantised. */
enum {
    /* One product and a shift, the same for all channels, come to the right result for each accumulator that there can be: the Python
     * side has chosen `multiplier` and `rounding` for that. */
    DISCO_WINOGRAD_LINE,
    DISCO_WINOGRAD_TWO_LINES, /* the same, but for what is negative `jump` is added to the product */
    DISCO_WINOGRAD_SIGNED,    /* shifted right */
    DISCO_WINOGRAD_ANY        /* shifted anywhere */
};

/* Numbers of each two output channels, in twos; with F2 the first four. */
enum {
    DISCO_WINOGRAD_BIAS, /* 576 (weights transformed in flash), 36 or, F2, 4 (lines: 64) times the bias, zero point folded in */
    DISCO_WINOGRAD_PRODUCT, /* Q31 multiplier and rounding of the one channel: 2^right shift * (zero point + 1/2); ANY: 0 */
    DISCO_WINOGRAD_PRODUCT_TWO,                       /* and of the other */
    DISCO_WINOGRAD_JUMP,                              /* TWO_LINES */
    DISCO_WINOGRAD_RIGHT_SHIFT = DISCO_WINOGRAD_JUMP, /* SIGNED: 1..23; ANY: negative is left */
    DISCO_WINOGRAD_CORNER /* four, added to what is requantised for the tile's lower right 2x2 outputs */
};

typedef struct {
    uint16_t tile; /* 4 or 2: outputs along a side */
    uint16_t pad_top, pad_left;
    uint16_t tile_rows;    /* computed together: tile * tile_rows output rows */
    uint16_t tile_columns; /* computed together, even */
    /* Weights: 1: [out / 2][element][in / 2][2], pairs of int16; 0 (F4 only): [out / 2][in / 4][2][9], four int8. */
    uint16_t transformed;
    uint16_t rounding; /* DISCO_WINOGRAD_LINE and so on */
    uint16_t shift;    /* to the right, of all channels: LINE and TWO_LINES */
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
    size_t quads;   /* input channels in fours, the last ones may be fewer */
    size_t pairs;   /* input channels in twos, the last one may be alone */
    size_t element; /* of two tiles: their input channels, and room for what comes out, 2 tiles x 2 channels */
    size_t channel; /* numbers of two output channels */
} disco_winograd_sizes_t;

DISCO_VARIANT disco_winograd_sizes_t disco_winograd_sizes(const disco_conv2d_winograd_t *op, const disco_input_t *in) {
    const size_t tile = op->tile == 4 ? 4 : 2, side = tile + 2, channels = in->channels;
    const size_t pairs = (channels + 1) / 2;
    const disco_winograd_sizes_t sizes = {tile,  side,          side * side,       (channels + 3) / 4,
                                          pairs, 2 * pairs + 4, tile == 4 ? 16 : 8};
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

/* The inputs of a tile's column, from top to bottom, of which [first, end) exist. */
DISCO_VARIANT void disco_winograd_column(size_t tile, int which, const int8_t *pixel, size_t row_bytes, size_t first,
                                         size_t end, uint32_t padding, uint32_t *out, size_t columns) {
    uint32_t d[6];
    for (size_t i = 0; i < tile + 2; i++) {
        d[i] = i >= first && i < end ? disco_winograd_load(which, pixel + (i - first) * row_bytes) : padding;
    }
    disco_winograd_input_1d(tile, d, out, columns);
}

/* Those of a group: columns and, for each of them, inputs from `row` on, of which [first, end) exist. */
typedef struct {
    const int8_t *row; /* the first that exists */
    int32_t left;      /* where the first column lies */
    size_t first, end;
    int regular;      /* whether the end may be cut by one, or the beginning, but neither by more */
    uint32_t padding; /* of a pair */
} disco_winograd_inputs_t;

/* All columns of a pair of channels: out[row of B' d][column]; `channel` is the pair's first. */
DISCO_VARIANT void disco_winograd_columns(size_t tile, int which, const disco_input_t *in,
                                          const disco_winograd_inputs_t *inputs, size_t channel, uint32_t *out,
                                          size_t columns) {
    const size_t row_bytes = (size_t)in->width * in->stride, side = tile + 2;
    const int32_t stop = (int32_t)columns, left = inputs->left;
    const int32_t begin = left < 0 ? (-left < stop ? -left : stop) : 0;
    const int32_t inside = (int32_t)in->width - left < stop ? (int32_t)in->width - left : stop;
    const uint32_t padding = inputs->padding;
    int32_t x = 0;
    for (; x < begin; x++) {
        disco_winograd_column(tile, which, inputs->row, row_bytes, 0, 0, padding, out + x, columns);
    }
    const int8_t *pixel = inputs->row + (x < inside ? (size_t)(left + x) * in->stride + channel : 0);
    uint32_t *target = out + x;
    if (inputs->first == 0 && inputs->end == side) {
        DISCO_UNROLL(1)
        for (; x < inside; x++, pixel += in->stride) {
            disco_winograd_column(tile, which, pixel, row_bytes, 0, side, padding, target++, columns);
        }
    } else if (inputs->regular && inputs->first == 1) {
        DISCO_UNROLL(1)
        for (; x < inside; x++, pixel += in->stride) {
            disco_winograd_column(tile, which, pixel, row_bytes, 1, side, padding, target++, columns);
        }
    } else if (inputs->regular) {
        DISCO_UNROLL(1)
        for (; x < inside; x++, pixel += in->stride) {
            disco_winograd_column(tile, which, pixel, row_bytes, 0, side - 1, padding, target++, columns);
        }
    } else {
        DISCO_UNROLL(1)
        for (; x < inside; x++, pixel += in->stride) {
            disco_winograd_column(tile, which, pixel, row_bytes, inputs->first, inputs->end, padding, target++,
                                  columns);
        }
    }
    for (; x < stop; x++) {
        disco_winograd_column(tile, which, inputs->row, row_bytes, 0, 0, padding, out + x, columns);
    }
}

/* The columns of up to four channels, `step` words from one pair to the next; how many pairs. */
DISCO_VARIANT size_t disco_winograd_quad(size_t tile, const disco_input_t *in, const disco_winograd_inputs_t *inputs,
                                         size_t channel, uint32_t *out, size_t columns) {
    const size_t step = (tile + 2) * columns, left = in->channels % 4u;
    if (channel + 4 <= in->channels) {
        disco_winograd_columns(tile, DISCO_WINOGRAD_EVEN, in, inputs, channel, out, columns);
        disco_winograd_columns(tile, DISCO_WINOGRAD_ODD, in, inputs, channel, out + step, columns);
        return 2;
    }
    if (left == 3) {
        disco_winograd_columns(tile, DISCO_WINOGRAD_APART, in, inputs, channel, out, columns);
        disco_winograd_columns(tile, DISCO_WINOGRAD_ALONE, in, inputs, channel + 1, out + step, columns);
        return 2;
    }
    disco_winograd_columns(tile, left == 2 ? DISCO_WINOGRAD_NEXT : DISCO_WINOGRAD_ALONE, in, inputs, channel, out,
                           columns);
    return 1;
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
 * read. `columns` is room for the columns of four channels. */
DISCO_VARIANT void disco_winograd_input(const disco_conv2d_winograd_t *op, const disco_winograd_sizes_t *sizes,
                                        const disco_input_t *in, const disco_output_t *out, int32_t top, int32_t left,
                                        int32_t row_limit, size_t tiles, uint32_t *columns, uint32_t *values) {
    const size_t tile = sizes->tile, width = tile * tiles + 2;
    const int32_t side = (int32_t)sizes->side, below = row_limit - top;
    const int32_t above = top < 0 ? -top : 0;
    const int none = above >= below;
    disco_winograd_inputs_t inputs;
    inputs.first = none ? 0 : (size_t)above;
    inputs.end = none ? 0 : (size_t)(below < side ? below : side);
    inputs.row = in->data + (size_t)(none ? 0 : top + above) * in->width * in->stride;
    inputs.left = left;
    inputs.regular = op->pad_top <= 1 && out->height % sizes->tile == 0 && out->height > sizes->tile &&
                     in->height + op->pad_top > out->height;
    inputs.padding = (uint32_t)(op->input_zero_point + 128) * 0x00010001u;
    DISCO_UNROLL(1)
    for (size_t quad = 0; quad < sizes->quads; quad++) {
        const size_t pairs = disco_winograd_quad(tile, in, &inputs, 4 * quad, columns, width);
        DISCO_UNROLL(1)
        for (size_t pair = 0; pair < pairs; pair++) {
            for (size_t i = 0; i < sizes->side; i++) {
                disco_winograd_row(sizes, columns + (sizes->side * pair + i) * width, tiles,
                                   values + sizes->side * i * sizes->element + 4 * quad + 2 * pair);
            }
        }
    }
}

/* ---- outputs ---- */

/* `value` is 576 (F4), 4 (F2) or 64 (F2, lines) times the accumulator. */
DISCO_VARIANT int8_t disco_winograd_requantise(const disco_conv2d_winograd_t *op,
                                               const disco_winograd_scaling_t *scaling, uint32_t value,
                                               uint32_t corner) {
    const int whole = op->activation_min == -128 && op->activation_max == 127;
    if (op->rounding == DISCO_WINOGRAD_LINE || op->rounding == DISCO_WINOGRAD_TWO_LINES) {
        return (int8_t)disco_winograd_line(scaling, op->rounding == DISCO_WINOGRAD_TWO_LINES, op->shift,
                                           op->activation_min, op->activation_max, value + corner);
    }
    /* Times the inverse of 9, 2^(k + 1) times the accumulator. This is disco_requantise of the accumulator in fewer instructions,
     * as the product is rounded where it is shifted. Halves are rounded up, and of negative numbers down. */
    const int32_t k = op->tile == 4 ? 5 : 1;
    uint32_t inverse = op->tile == 4 ? 0x38E38E39u : 1u;
    if (op->tile == 4) { /* Not to be taken for a constant, which would be loaded again for each output. */
        DISCO_HIDE(inverse);
    }
    const int32_t scaled = (int32_t)(value * inverse + corner);
    if (op->rounding == DISCO_WINOGRAD_ANY) {
        return disco_requantise(scaled >> (k + 1), scaling->multiplier, -scaling->jump, op->output_zero_point,
                                op->activation_min, op->activation_max);
    }
    const int32_t high = disco_smmla(scaled, scaling->multiplier, 1 << k >> 1);
    const int32_t sum = (scaling->rounding + (high >> 31) + (high >> k)) >> scaling->jump;
    return whole ? disco_ssat8(sum) : (int8_t)disco_clamp(sum, op->activation_min, op->activation_max);
}

/* A' m in one dimension of two channels, which lie beside each other; `m` goes on by `step` after each of the inputs. */
DISCO_VARIANT void disco_winograd_output_1d(size_t tile, const uint32_t **m, size_t step, const uint32_t bias[2],
                                            int scaled, uint32_t out[4][2]) {
    if (tile == 4) {
        disco_winograd4_outputs(m, step, bias, scaled, out);
    } else {
        disco_winograd2_outputs(m, step, bias, out);
        out[2][0] = out[2][1] = out[3][0] = out[3][1] = 0;
    }
}

/* The first half of the outputs' transform of two channels: [column of the tile][row of sums][channel]. */
DISCO_VARIANT void disco_winograd_output_rows(const disco_conv2d_winograd_t *op, const disco_winograd_sizes_t *sizes,
                                              const int32_t *channels, const uint32_t *sums, uint32_t *out) {
    const size_t tile = sizes->tile, side = sizes->side;
    const uint32_t none[2] = {0, 0};
#if DISCO_ASSEMBLY && !defined(__ARM_FEATURE_MVE)
    if (tile == 4 && __builtin_constant_p(sizes->element) && sizes->element < 256) {
        sums = disco_winograd4_output_row(sums, sizes->element, 0, channels, op->transformed, out);
        sums = disco_winograd4_output_row(sums, sizes->element, 1, channels, op->transformed, out);
        sums = disco_winograd4_output_row(sums, sizes->element, 2, channels, op->transformed, out);
        sums = disco_winograd4_output_row(sums, sizes->element, 3, channels, op->transformed, out);
        sums = disco_winograd4_output_row(sums, sizes->element, 4, channels, op->transformed, out);
        (void)disco_winograd4_output_row(sums, sizes->element, 5, channels, op->transformed, out);
        return;
    }
#endif
    DISCO_UNROLL(6)
    for (size_t i = 0; i < side; i++) {
        uint32_t y[4][2];
        const uint32_t bias[2] = {(uint32_t)channels[2 * DISCO_WINOGRAD_BIAS],
                                  (uint32_t)channels[2 * DISCO_WINOGRAD_BIAS + 1]};
        disco_winograd_output_1d(tile, &sums, sizes->element, i == 1 ? bias : none, op->transformed, y);
        DISCO_UNROLL(4)
        for (size_t x = 0; x < tile; x++) {
            disco_store_pair(out + 2 * (side * x + i), y[x][0], y[x][1]);
        }
    }
}

/* The second half for one of those columns. */
DISCO_VARIANT void disco_winograd_output_column(size_t tile, const uint32_t **source, int scaled, uint32_t out[4][2]) {
#if DISCO_ASSEMBLY && !defined(__ARM_FEATURE_MVE)
    if (tile == 4) {
        *source = disco_winograd4_output_column(*source, scaled, out);
        return;
    }
#endif
    const uint32_t none[2] = {0, 0};
    disco_winograd_output_1d(tile, source, 2, none, scaled, out);
}

/* One tile of `count`, one or two, output channels; `rows` x `columns` of its outputs exist. */
DISCO_VARIANT void disco_winograd_output(const disco_conv2d_winograd_t *op, const disco_winograd_sizes_t *sizes,
                                         const int32_t *channels, const uint32_t *sums, size_t row_bytes,
                                         size_t pixel_bytes, int8_t *out, size_t rows, size_t columns, size_t count) {
    const size_t tile = sizes->tile;
    uint32_t transposed[4 * 6 * 2];
    uint32_t *target = transposed;
    DISCO_HIDE(target);
    disco_winograd_output_rows(op, sizes, channels, sums, target);
    const uint32_t *source = transposed;
    DISCO_HIDE(source);
    DISCO_UNROLL(4)
    for (size_t x = 0; x < tile; x++) {
        if (x >= columns) {
            break;
        }
        uint32_t y[4][2];
        disco_winograd_output_column(tile, &source, op->transformed, y);
        DISCO_UNROLL(2)
        for (size_t c = 0; c < count; c++) {
            const disco_winograd_scaling_t scaling = {channels[2 * (DISCO_WINOGRAD_PRODUCT + c)],
                                                      channels[2 * (DISCO_WINOGRAD_PRODUCT + c) + 1],
                                                      channels[2 * DISCO_WINOGRAD_JUMP + c]};
            DISCO_UNROLL(4)
            for (size_t i = 0; i < tile; i++) {
                const int apart = tile == 4 && i >= 2 && x >= 2;
                const size_t corner = 2 * (DISCO_WINOGRAD_CORNER + 2 * (i - 2) + x - 2) + c;
                if (i < rows) {
                    out[i * row_bytes + x * pixel_bytes + c] =
                        disco_winograd_requantise(op, &scaling, y[i][c], apart ? (uint32_t)channels[corner] : 0);
                }
            }
        }
    }
}

/* ---- weights that are transformed as they are needed (F4) ---- */

/* Keeps the compiler from mixing what comes before with what comes after, for which there are too few registers; the array
 * is in memory there. */
#define DISCO_WINOGRAD_THEN(array) __asm__ volatile("" : "+m"(array) : : "memory")

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

/* Two output channels: from [in / 4][2][9] words of four int8 to [36][in / 2][2] pairs of int16. */
DISCO_VARIANT void disco_winograd_weights(const uint32_t *packed, size_t pairs, uint32_t *out) {
    DISCO_UNROLL(1)
    for (size_t pair = 0; pair < pairs; pair += 2, out += 4) {
        for (size_t channel = 0; channel < 2; channel++, packed += 9) {
            disco_winograd_weights_2d(packed, 0, out + channel, 2 * pairs);
            if (pair + 1 < pairs) {
                disco_winograd_weights_2d(packed, 1, out + channel + 2, 2 * pairs);
            }
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
    const size_t count = view->channels % 2 == 0 || channels >= 2 ? 2 : 1;
    disco_winograd_products(sizes->elements, values, weights, sizes->pairs, 0);
    const uint32_t *sums = values + 2 * sizes->pairs;
    size_t tiles = view->width % (2 * tile) == 0 || x + tile < view->width ? 2 : 1;
    DISCO_HIDE(tiles); /* else GCC repeats what follows many times */
    DISCO_UNROLL(1)
    for (size_t t = 0; t < tiles; t++, sums += 2) {
        const size_t left = x + t * tile, columns = view->width % tile == 0 ? tile : view->width - left;
        int8_t *const out = view->data + (y * view->width + left) * pixel_bytes + channel;
        disco_winograd_output(op, sizes, op->channels + channel / 2 * sizes->channel, sums, view->width * pixel_bytes,
                              pixel_bytes, out, rows, columns, count);
    }
}

/* Scratch: the columns of one quad or the weights of two output channels; then the elements of a group of tiles. */
DISCO_VARIANT void disco_conv2d_winograd(const disco_conv2d_winograd_t *op, const disco_input_t *in,
                                         const disco_output_t *out, void *scratch, uint16_t row_begin,
                                         uint16_t row_end) {
    const disco_winograd_sizes_t sizes = disco_winograd_sizes(op, in);
    const size_t weight_words = sizes.elements * 2 * sizes.pairs, pair_words = sizes.elements * sizes.element;
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
                disco_winograd_input(op, &sizes, in, out, (int32_t)(y + tile * r) - op->pad_top,
                                     (int32_t)x - op->pad_left, row_limit, tiles, shared,
                                     values + r * row_pairs * pair_words);
            }
            for (size_t c = 0; c < out->channels; c += 2) {
                const uint32_t *weights = op->weights + c / 2 * weight_words;
                if (!op->transformed) {
                    disco_winograd_weights(op->weights + c / 2 * 18 * sizes.quads, sizes.pairs, shared);
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
