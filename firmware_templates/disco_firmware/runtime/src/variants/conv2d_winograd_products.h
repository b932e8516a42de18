/*
 * What Winograd convolutions have in common: pairs of channels, the sums of products, and lines that take them to int8.
 */
#ifndef DISCO_VARIANTS_CONV2D_WINOGRAD_PRODUCTS_H
#define DISCO_VARIANTS_CONV2D_WINOGRAD_PRODUCTS_H

#include <stddef.h>

#include "fixed_point.h"
#include "variants/simd.h"

/* Which two channels of those from a pixel's byte on make a pair. Of four: 0 and 2, 1 and 3. */
enum {
    DISCO_WINOGRAD_EVEN,
    DISCO_WINOGRAD_ODD,
    DISCO_WINOGRAD_APART, /* 0 and 2, of three */
    DISCO_WINOGRAD_NEXT,  /* 0 and 1, of two */
    DISCO_WINOGRAD_ALONE  /* 0; what is beside it meets weights of 0 */
};

DISCO_VARIANT uint32_t disco_winograd_load(int which, const int8_t *pixel) {
    const uint8_t *const bytes = (const uint8_t *)pixel;
    switch (which) {
    case DISCO_WINOGRAD_EVEN:
        return disco_sxtab16(0x00800080u, disco_load_word(pixel));
    case DISCO_WINOGRAD_ODD:
        return disco_sxtab16_high(0x00800080u, disco_load_word(pixel));
    case DISCO_WINOGRAD_APART:
        return disco_sxtab16(0x00800080u, bytes[0] | (uint32_t)bytes[2] << 16);
    case DISCO_WINOGRAD_NEXT:
        return disco_sxtab16(0x00800080u, bytes[0] | (uint32_t)bytes[1] << 16);
    default:
        return (uint32_t)(pixel[0] + 128);
    }
}

/* For each element the sums over the input channels of 2 tiles x 2 output channels. `values` holds per element
 * {tile 0, tile 1} for each pair of channels, then room for {tile 0 x channel 0, 0 x 1, 1 x 0, 1 x 1}; `weights` likewise
 * {channel 0, channel 1}. After each element weights go back by `back` words. The sums wrap. */
#if DISCO_ASSEMBLY && !defined(__ARM_FEATURE_MVE)

/* Ten instructions for eight products of pairs, six for four. Loads of four words need registers in order, which only assembly can
 * ask for. */
#define DISCO_WINOGRAD_ONE(first)                                                                                      \
    "ldmia %[v]!, {r4-r5}\n\t"                                                                                         \
    "ldmia %[w]!, {r8-r9}\n\t" first
#define DISCO_WINOGRAD_TWO(first)                                                                                      \
    "ldmia %[v]!, {r4-r7}\n\t"                                                                                         \
    "ldmia %[w]!, {r8-r11}\n\t" first "smlad %[s0], r6, r10, %[s0]\n\t"                                                \
    "smlad %[s1], r6, r11, %[s1]\n\t"                                                                                  \
    "smlad %[s2], r7, r10, %[s2]\n\t"                                                                                  \
    "smlad %[s3], r7, r11, %[s3]"
#define DISCO_WINOGRAD_BEGIN                                                                                           \
    "smuad %[s0], r4, r8\n\t"                                                                                          \
    "smuad %[s1], r4, r9\n\t"                                                                                          \
    "smuad %[s2], r5, r8\n\t"                                                                                          \
    "smuad %[s3], r5, r9\n\t"
#define DISCO_WINOGRAD_GO_ON                                                                                           \
    "smlad %[s0], r4, r8, %[s0]\n\t"                                                                                   \
    "smlad %[s1], r4, r9, %[s1]\n\t"                                                                                   \
    "smlad %[s2], r5, r8, %[s2]\n\t"                                                                                   \
    "smlad %[s3], r5, r9, %[s3]\n\t"
#define DISCO_WINOGRAD_STEP(instructions, input)                                                                       \
    __asm__ volatile(                                                                                                  \
        instructions                                                                                                   \
        : [v] "+&r"(values), [w] "+&r"(weights), [s0] input(s0), [s1] input(s1), [s2] input(s2), [s3] input(s3)        \
        :                                                                                                              \
        : "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "memory")

#define DISCO_WINOGRAD_ELEMENT()                                                                                       \
    do {                                                                                                               \
        if (pairs == 1) {                                                                                              \
            DISCO_WINOGRAD_STEP(DISCO_WINOGRAD_ONE(DISCO_WINOGRAD_BEGIN), "=&r");                                      \
        } else {                                                                                                       \
            DISCO_WINOGRAD_STEP(DISCO_WINOGRAD_TWO(DISCO_WINOGRAD_BEGIN), "=&r");                                      \
            DISCO_UNROLL(16) for (size_t pair = 3; pair < pairs; pair += 2) {                                          \
                DISCO_WINOGRAD_STEP(DISCO_WINOGRAD_TWO(DISCO_WINOGRAD_GO_ON), "+&r");                                  \
            }                                                                                                          \
            if (pairs & 1) {                                                                                           \
                DISCO_WINOGRAD_STEP(DISCO_WINOGRAD_ONE(DISCO_WINOGRAD_GO_ON), "+&r");                                  \
            }                                                                                                          \
        }                                                                                                              \
        __asm__ volatile("stmia %[v]!, {%[s0], %[s1], %[s2], %[s3]}"                                                   \
                         : [v] "+r"(values)                                                                            \
                         : [s0] "r"(s0), [s1] "r"(s1), [s2] "r"(s2), [s3] "r"(s3)                                      \
                         : "memory");                                                                                  \
    } while (0)

DISCO_VARIANT void disco_winograd_products(size_t elements, uint32_t *values, const uint32_t *weights, size_t pairs,
                                           size_t back) {
    register uint32_t s0 __asm__("r0");
    register uint32_t s1 __asm__("r1");
    register uint32_t s2 __asm__("r2");
    register uint32_t s3 __asm__("r3");
    const uint32_t *const end = values + elements * (2 * pairs + 4);
    do {
        DISCO_WINOGRAD_ELEMENT();
        weights -= back;
        if (back == 0 && pairs <= 8 &&
            elements % 4 == 0) { /* Four at a time where the loop would cost more than a few per cent. */
            DISCO_WINOGRAD_ELEMENT();
            DISCO_WINOGRAD_ELEMENT();
            DISCO_WINOGRAD_ELEMENT();
        }
    } while (values != end);
}

#else

DISCO_VARIANT void disco_winograd_products(size_t elements, uint32_t *values, const uint32_t *weights, size_t pairs,
                                           size_t back) {
    for (size_t element = 0; element < elements; element++) {
        int32_t sums[4] = {0, 0, 0, 0};
        for (size_t pair = 0; pair < pairs; pair++, values += 2, weights += 2) {
            for (size_t i = 0; i < 4; i++) {
                sums[i] = disco_smlad(values[i / 2], weights[i % 2], sums[i]);
            }
        }
        for (size_t i = 0; i < 4; i++) {
            *values++ = (uint32_t)sums[i];
        }
        weights -= back;
    }
}

#endif

/* What takes what the transform leaves of one channel to int8. */
typedef struct {
    int32_t multiplier, rounding, jump;
} disco_winograd_scaling_t;

/* What a line, or two, make of `value` (variants/winograd_scaling.py). */
DISCO_VARIANT int32_t disco_winograd_line(const disco_winograd_scaling_t *scaling, int two, int32_t shift,
                                          int32_t activation_min, int32_t activation_max, uint32_t value) {
    const int32_t sum = two ? disco_smmla_jump((int32_t)value, scaling->multiplier, scaling->rounding, scaling->jump)
                            : disco_smmla((int32_t)value, scaling->multiplier, scaling->rounding);
    return activation_min == -128 && activation_max == 127 ? disco_ssat8_shifted(sum, shift)
                                                           : disco_clamp(sum >> shift, activation_min, activation_max);
}

#endif
