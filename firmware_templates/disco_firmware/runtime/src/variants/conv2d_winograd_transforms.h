/*
 * The transforms of Winograd convolutions in one dimension, scaled so that all of them are whole numbers.
 *
 *     Y = A' [ (G w G') * (B' d B) ] A      d: inputs, w: 3x3 weights, Y: outputs, * element by element
 *
 * F(4x4, 3x3), 36 products for 4x4 outputs instead of 144, Y is 24^2 = 576 times the sums of products:
 *
 *          | 4  0 -5  0  1  0 |          |  6   0   0 |
 *          | 0 -4 -4  1  1  0 |          |  4   4   4 |          | 1 -1 -1  1  1  0 |
 *     B' = | 0  4 -4 -1  1  0 |      G = |  4  -4   4 |     A' = | 0 -1  1  2 -2  0 |
 *          | 0 -2 -1  2  1  0 |          |  1   2   4 |          | 0 -1 -1  4  4  0 |
 *          | 0  2 -1 -2  1  0 |          |  1  -2   4 |          | 0 -1  1  8 -8  8 |
 *          | 0  4  0 -5  0  1 |          |  0   0   3 |
 *
 * F(2x2, 3x3), 16 products for 2x2 outputs instead of 36, Y is 2^2 = 4 times the sums of products:
 *
 *          | 1  0 -1  0 |          | 2   0   0 |
 *     B' = | 0  1  1  0 |      G = | 1   1   1 |     A' = | 1  1  1  0 |
 *          | 0 -1  1  0 |          | 1  -1   1 |          | 0  1 -1  2 |
 *          | 0 -1  0  1 |          | 0   0   1 |
 *
 * The first row of G is stored halved and doubled in A'.
 */
#ifndef DISCO_VARIANTS_CONV2D_WINOGRAD_TRANSFORMS_H
#define DISCO_VARIANTS_CONV2D_WINOGRAD_TRANSFORMS_H

#include <stddef.h>

#include "variants/simd.h"

/* B' d of F4, to words that are `step` apart. Each holds two channels as high * 2^16 + low, the sum of two signed numbers, which
 * additions with shifted operands keep. What d[4] and d[5] both are too large by reaches all six. */
DISCO_VARIANT void disco_winograd4_inputs(const uint32_t d[6], uint32_t *out, size_t step) {
    const uint32_t even = d[4] - d[2], odd = d[3] - d[1];
    const uint32_t even4 = d[4] - (d[2] << 2), odd4 = d[3] - (d[1] << 2);
    out[0] = even + ((d[0] - d[2]) << 2);
    out[step] = even4 + odd4;
    out[2 * step] = even4 - odd4;
    out[3 * step] = even + (odd << 1);
    out[4 * step] = even - (odd << 1);
    out[5 * step] = d[5] - d[3] - (odd << 2);
}

/* B' d of F2, of two int16 each. */
DISCO_VARIANT void disco_winograd2_inputs(const uint32_t d[4], uint32_t *out, size_t step) {
    out[0] = disco_ssub16(d[0], d[2]);
    out[step] = disco_sadd16(d[1], d[2]);
    out[2 * step] = disco_ssub16(d[2], d[1]);
    out[3 * step] = disco_ssub16(d[3], d[1]);
}

/* G w of F4 for pairs of int16, unscaled: rows (1 0 0), (1 1 1), (1 -1 1), (1 2 4), (1 -2 4), (0 0 1). */
DISCO_VARIANT void disco_winograd4_weights(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t *out, size_t step) {
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

/* A' m of F4 for sums that are `step` apart; `bias` is added to m[1]. Where the weights were left unscaled it is done here. */
DISCO_VARIANT void disco_winograd4_outputs(const uint32_t *m, size_t step, uint32_t bias, int scaled, uint32_t out[4]) {
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

/* A' m of F2. */
DISCO_VARIANT void disco_winograd2_outputs(const uint32_t *m, size_t step, uint32_t bias, uint32_t out[2]) {
    const uint32_t m1 = m[step] + bias, m2 = m[2 * step];
    out[0] = (m[0] << 1) + m1 + m2;
    out[1] = m1 - m2 + (m[3 * step] << 1);
}

#endif
