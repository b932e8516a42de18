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

/* Two channels of A' m of F4; `m` goes on by `step` after each of six. `bias` is added to m[1]. Where the weights were left
 * unscaled it is done here. */
DISCO_VARIANT void disco_winograd4_outputs(const uint32_t **m, size_t step, const uint32_t bias[2], int scaled,
                                           uint32_t out[4][2]) {
    uint32_t m0[2], sum[2], difference[2], a[2], b[2];
    disco_load_pair(m, step, &m0[0], &m0[1]);
    disco_load_pair(m, step, &a[0], &a[1]);
    disco_load_pair(m, step, &b[0], &b[1]);
    for (size_t c = 0; c < 2; c++) {
        const uint32_t m1 = a[c] + bias[c];
        sum[c] = scaled ? m1 + b[c] : (m1 + b[c]) << 2;
        difference[c] = scaled ? m1 - b[c] : (m1 - b[c]) << 2;
        m0[c] = scaled ? m0[c] : m0[c] + (m0[c] << 1);
    }
    disco_load_pair(m, step, &a[0], &a[1]);
    disco_load_pair(m, step, &b[0], &b[1]);
    for (size_t c = 0; c < 2; c++) {
        const uint32_t sum2 = a[c] + b[c], difference2 = a[c] - b[c];
        out[0][c] = sum2 - sum[c] + (m0[c] << 1);
        out[1][c] = (difference2 << 1) - difference[c];
        out[2][c] = (sum2 << 2) - sum[c];
        a[c] = difference2;
    }
    disco_load_pair(m, step, &b[0], &b[1]);
    for (size_t c = 0; c < 2; c++) {
        const uint32_t m5 = scaled ? b[c] : b[c] + (b[c] << 1);
        out[3][c] = ((a[c] + m5) << 3) - difference[c];
    }
}

/* The same of F2 and four. */
DISCO_VARIANT void disco_winograd2_outputs(const uint32_t **m, size_t step, const uint32_t bias[2],
                                           uint32_t out[2][2]) {
    uint32_t m0[2], m1[2], m2[2], m3[2];
    disco_load_pair(m, step, &m0[0], &m0[1]);
    disco_load_pair(m, step, &m1[0], &m1[1]);
    disco_load_pair(m, step, &m2[0], &m2[1]);
    disco_load_pair(m, step, &m3[0], &m3[1]);
    for (size_t c = 0; c < 2; c++) {
        m1[c] += bias[c];
        out[0][c] = (m0[c] << 1) + m1[c] + m2[c];
        out[1][c] = m1[c] - m2[c] + (m3[c] << 1);
    }
}

#if DISCO_ASSEMBLY && !defined(__ARM_FEATURE_MVE)

/* disco_winograd4_outputs in 13 registers, where GCC, left alone, would spill; the first time with a bias, in one more for where it
 * is. x, a, b and c are read as m[0], m[1], ... of two channels each; s and a become sum and difference, t and c the other sum. */
#define DISCO_WINOGRAD4_BIAS                                                                                           \
    "ldrd %[c0], %[c1], [%[bias]]\n\t"                                                                                 \
    "add %[a0], %[c0]\n\t"                                                                                             \
    "add %[a1], %[c1]\n\t"
#define DISCO_WINOGRAD4_TIMES_3                                                                                        \
    "add %[x0], %[x0], %[x0], lsl #1\n\t"                                                                              \
    "add %[x1], %[x1], %[x1], lsl #1\n\t"
#define DISCO_WINOGRAD4_C1_TIMES_3 "add %[c1], %[c1], %[c1], lsl #1\n\t"
#define DISCO_WINOGRAD4_TIMES_4                                                                                        \
    "lsl %[s0], %[s0], #2\n\t"                                                                                         \
    "lsl %[s1], %[s1], #2\n\t"                                                                                         \
    "lsl %[a0], %[a0], #2\n\t"                                                                                         \
    "lsl %[a1], %[a1], #2\n\t"
#define DISCO_WINOGRAD4_FIRST(with_bias, times_3, times_4)                                                             \
    "ldrd %[x0], %[x1], [%[m]], %[step]\n\t"                                                                           \
    "ldrd %[a0], %[a1], [%[m]], %[step]\n\t"                                                                           \
    "ldrd %[b0], %[b1], [%[m]], %[step]\n\t" with_bias times_3 "add %[s0], %[a0], %[b0]\n\t"                           \
    "sub %[a0], %[a0], %[b0]\n\t"                                                                                      \
    "add %[s1], %[a1], %[b1]\n\t"                                                                                      \
    "sub %[a1], %[a1], %[b1]\n\t"                                                                                      \
    "ldrd %[b0], %[b1], [%[m]], %[step]\n\t"                                                                           \
    "ldrd %[c0], %[c1], [%[m]], %[step]\n\t" times_4 "add %[t], %[b0], %[c0]\n\t"                                      \
    "sub %[b0], %[b0], %[c0]\n\t"                                                                                      \
    "add %[c0], %[b1], %[c1]\n\t"                                                                                      \
    "sub %[b1], %[b1], %[c1]\n\t"                                                                                      \
    "add %[x0], %[t], %[x0], lsl #1\n\t"                                                                               \
    "add %[x1], %[c0], %[x1], lsl #1\n\t"                                                                              \
    "sub %[x0], %[x0], %[s0]\n\t"                                                                                      \
    "sub %[x1], %[x1], %[s1]\n\t"
#define DISCO_WINOGRAD4_STORE(times_3)                                                                                 \
    "strd %[x0], %[x1], [%[out], %[place]]\n\t"                                                                        \
    "rsb %[x0], %[a0], %[b0], lsl #1\n\t"                                                                              \
    "rsb %[x1], %[a1], %[b1], lsl #1\n\t"                                                                              \
    "strd %[x0], %[x1], [%[out], %[place] + 48]\n\t"                                                                   \
    "rsb %[x0], %[s0], %[t], lsl #2\n\t"                                                                               \
    "rsb %[x1], %[s1], %[c0], lsl #2\n\t"                                                                              \
    "strd %[x0], %[x1], [%[out], %[place] + 96]\n\t"                                                                   \
    "ldrd %[x0], %[x1], [%[m]], %[step]\n\t" times_3 "add %[x0], %[b0]\n\t"                                            \
    "add %[x1], %[b1]\n\t"                                                                                             \
    "rsb %[x0], %[a0], %[x0], lsl #3\n\t"                                                                              \
    "rsb %[x1], %[a1], %[x1], lsl #3\n\t"                                                                              \
    "strd %[x0], %[x1], [%[out], %[place] + 144]\n\t"
#define DISCO_WINOGRAD4_KEEP(times_3)                                                                                  \
    "rsb %[s0], %[s0], %[t], lsl #2\n\t"                                                                               \
    "rsb %[s1], %[s1], %[c0], lsl #2\n\t"                                                                              \
    "rsb %[t], %[a0], %[b0], lsl #1\n\t"                                                                               \
    "rsb %[c0], %[a1], %[b1], lsl #1\n\t"                                                                              \
    "ldr %[c1], [%[m]], #4\n\t" times_3 "add %[b0], %[c1]\n\t"                                                         \
    "ldr %[c1], [%[m]], #4\n\t" times_3 "add %[b1], %[c1]\n\t"                                                         \
    "rsb %[a0], %[a0], %[b0], lsl #3\n\t"                                                                              \
    "rsb %[a1], %[a1], %[b1], lsl #3\n\t"
#define DISCO_WINOGRAD4_ASSEMBLY(instructions, ...)                                                                    \
    __asm__ volatile(instructions                                                                                      \
                     : [m] "+&r"(m), [x0] "=&r"(x0), [x1] "=&r"(x1), [a0] "=&r"(a0), [a1] "=&r"(a1), [b0] "=&r"(b0),   \
                       [b1] "=&r"(b1), [c0] "=&r"(c0), [c1] "=&r"(c1), [s0] "=&r"(s0), [s1] "=&r"(s1), [t] "=&r"(t)    \
                     : __VA_ARGS__                                                                                     \
                     : "cc", "memory")

/* Row `row` of the sums, `step` words from one to the next, to [4][row][2]. Both numbers are constant. */
DISCO_VARIANT const uint32_t *disco_winograd4_output_row(const uint32_t *m, size_t step, size_t row,
                                                         const int32_t bias[2], int scaled, uint32_t *out) {
    uint32_t x0, x1, a0, a1, b0, b1, c0, c1, s0, s1, t;
    if (row == 1 && scaled) {
        DISCO_WINOGRAD4_ASSEMBLY(DISCO_WINOGRAD4_FIRST(DISCO_WINOGRAD4_BIAS, "", "") DISCO_WINOGRAD4_STORE(""),
                                 [out] "r"(out), [bias] "r"(bias), [step] "i"(4 * step), [place] "i"(8 * row));
    } else if (row == 1) {
        DISCO_WINOGRAD4_ASSEMBLY(
            DISCO_WINOGRAD4_FIRST(DISCO_WINOGRAD4_BIAS, DISCO_WINOGRAD4_TIMES_3, DISCO_WINOGRAD4_TIMES_4)
                DISCO_WINOGRAD4_STORE(DISCO_WINOGRAD4_TIMES_3),
            [out] "r"(out), [bias] "r"(bias), [step] "i"(4 * step), [place] "i"(8 * row));
    } else if (scaled) {
        DISCO_WINOGRAD4_ASSEMBLY(DISCO_WINOGRAD4_FIRST("", "", "") DISCO_WINOGRAD4_STORE(""), [out] "r"(out),
                                 [step] "i"(4 * step), [place] "i"(8 * row));
    } else {
        DISCO_WINOGRAD4_ASSEMBLY(DISCO_WINOGRAD4_FIRST("", DISCO_WINOGRAD4_TIMES_3, DISCO_WINOGRAD4_TIMES_4)
                                     DISCO_WINOGRAD4_STORE(DISCO_WINOGRAD4_TIMES_3),
                                 [out] "r"(out), [step] "i"(4 * step), [place] "i"(8 * row));
    }
    return m;
}

/* A column of what the rows became; what follows it is the next column. */
DISCO_VARIANT const uint32_t *disco_winograd4_output_column(const uint32_t *m, int scaled, uint32_t out[4][2]) {
    uint32_t x0, x1, a0, a1, b0, b1, c0, c1, s0, s1, t;
    if (scaled) {
        DISCO_WINOGRAD4_ASSEMBLY(DISCO_WINOGRAD4_FIRST("", "", "") DISCO_WINOGRAD4_KEEP(""), [step] "i"(8));
    } else {
        DISCO_WINOGRAD4_ASSEMBLY(DISCO_WINOGRAD4_FIRST("", DISCO_WINOGRAD4_TIMES_3, DISCO_WINOGRAD4_TIMES_4)
                                     DISCO_WINOGRAD4_KEEP(DISCO_WINOGRAD4_C1_TIMES_3),
                                 [step] "i"(8));
    }
    out[0][0] = x0, out[0][1] = x1;
    out[1][0] = t, out[1][1] = c0;
    out[2][0] = s0, out[2][1] = s1;
    out[3][0] = a0, out[3][1] = a1;
    return m;
}

#endif

#endif
