/*
 * The inner loop of the convolutions on cores with the DSP extension: sums of products for two pixels and four output
 * channels. The operands are pairs of int16; with LDRD that makes 11 instructions for 16 products.
 */
#ifndef DISCO_VARIANTS_MAC_2X4_DSP_H
#define DISCO_VARIANTS_MAC_2X4_DSP_H

#include <stdint.h>

#include "variants/simd.h"

/* Sums of channels 0..3: `first` of one pixel, `second` of the other. */
typedef struct {
    int32_t first[4], second[4];
} disco_sums_2x4_t;

/* What both operands are read from; both advance by what was read. */
typedef struct {
    const uint32_t *pixels;  /* a pair of the first pixel, the same pair of the second pixel, the next pair, ... */
    const uint32_t *weights; /* a pair of each of the four channels, the next pair of each, ... */
} disco_operands_t;

#if DISCO_ASSEMBLY && !defined(__ARM_FEATURE_MVE)

/* All of the 14 registers are taken: GCC, left alone, would load word by word and spill. There is none left for the loop
 * counter of Armv8.1-M. GCC has to see every instruction to know how far its branches reach,
 * so .rept is no choice. */
#define DISCO_MAC_2X4_1                                                                                                \
    "ldrd %[x0], %[x1], [%[x]], #8\n\t"                                                                                \
    "ldrd %[w0], %[w1], [%[w]], #8\n\t"                                                                                \
    "smlad %[a0], %[x0], %[w0], %[a0]\n\t"                                                                             \
    "smlad %[b0], %[x1], %[w0], %[b0]\n\t"                                                                             \
    "smlad %[a1], %[x0], %[w1], %[a1]\n\t"                                                                             \
    "smlad %[b1], %[x1], %[w1], %[b1]\n\t"                                                                             \
    "ldrd %[w0], %[w1], [%[w]], #8\n\t"                                                                                \
    "smlad %[a2], %[x0], %[w0], %[a2]\n\t"                                                                             \
    "smlad %[b2], %[x1], %[w0], %[b2]\n\t"                                                                             \
    "smlad %[a3], %[x0], %[w1], %[a3]\n\t"                                                                             \
    "smlad %[b3], %[x1], %[w1], %[b3]\n\t"
#define DISCO_MAC_2X4_2  DISCO_MAC_2X4_1 DISCO_MAC_2X4_1
#define DISCO_MAC_2X4_4  DISCO_MAC_2X4_2 DISCO_MAC_2X4_2
#define DISCO_MAC_2X4_8  DISCO_MAC_2X4_4 DISCO_MAC_2X4_4
#define DISCO_MAC_2X4_16 DISCO_MAC_2X4_8 DISCO_MAC_2X4_8

/* The end is compared in a register that is free between two pairs. */
#define DISCO_MAC_2X4_LOOP                                                                                             \
    "1:\n\t" DISCO_MAC_2X4_16 "ldr %[w0], %[end]\n\t"                                                                  \
    "cmp %[x], %[w0]\n\t"                                                                                              \
    "bne 1b\n\t"

#define DISCO_MAC_2X4_ASSEMBLY(instructions, sums, operands, ...)                                                      \
    do {                                                                                                               \
        uint32_t x0, x1, w0, w1;                                                                                       \
        __asm__ volatile(                                                                                              \
            instructions                                                                                               \
            : [a0] "+r"((sums)->first[0]), [a1] "+r"((sums)->first[1]), [a2] "+r"((sums)->first[2]),                   \
              [a3] "+r"((sums)->first[3]), [b0] "+r"((sums)->second[0]), [b1] "+r"((sums)->second[1]),                 \
              [b2] "+r"((sums)->second[2]), [b3] "+r"((sums)->second[3]), [x] "+r"((operands)->pixels),                \
              [w] "+r"((operands)->weights), [x0] "=&r"(x0), [x1] "=&r"(x1), [w0] "=&r"(w0), [w1] "=&r"(w1)            \
            : __VA_ARGS__                                                                                              \
            : "cc", "memory");                                                                                         \
    } while (0)

#define DISCO_MAC_2X4_TIMES(count, sums, operands) DISCO_MAC_2X4_ASSEMBLY(DISCO_MAC_2X4_##count, sums, operands, )

/* 16 pairs at a time, until `end`. */
DISCO_VARIANT void disco_mac_2x4_until(disco_sums_2x4_t *sums, disco_operands_t *operands, const uint32_t *end) {
    DISCO_MAC_2X4_ASSEMBLY(DISCO_MAC_2X4_LOOP, sums, operands, [end] "m"(end));
}

#else

#define DISCO_MAC_2X4_TIMES(count, sums, operands)                                                                     \
    do {                                                                                                               \
        for (int pair = 0; pair < (count); pair++) {                                                                   \
            for (int channel = 0; channel < 4; channel++) {                                                            \
                const uint32_t weights = disco_load_word((operands)->weights++);                                       \
                (sums)->first[channel] = disco_smlad((operands)->pixels[0], weights, (sums)->first[channel]);          \
                (sums)->second[channel] = disco_smlad((operands)->pixels[1], weights, (sums)->second[channel]);        \
            }                                                                                                          \
            (operands)->pixels += 2;                                                                                   \
        }                                                                                                              \
    } while (0)

DISCO_VARIANT void disco_mac_2x4_until(disco_sums_2x4_t *sums, disco_operands_t *operands, const uint32_t *end) {
    while (operands->pixels != end) {
        DISCO_MAC_2X4_TIMES(16, sums, operands);
    }
}

#endif

/* Adds the products of `pairs` pairs. */
DISCO_VARIANT void disco_mac_2x4(disco_sums_2x4_t *sums, disco_operands_t *operands, uint32_t pairs) {
    if (pairs >= 32) {
        disco_mac_2x4_until(sums, operands, operands->pixels + 2 * (pairs & ~UINT32_C(15)));
    } else if (pairs & 16) {
        DISCO_MAC_2X4_TIMES(16, sums, operands);
    }
    if (pairs & 8) {
        DISCO_MAC_2X4_TIMES(8, sums, operands);
    }
    if (pairs & 4) {
        DISCO_MAC_2X4_TIMES(4, sums, operands);
    }
    if (pairs & 2) {
        DISCO_MAC_2X4_TIMES(2, sums, operands);
    }
    if (pairs & 1) {
        DISCO_MAC_2X4_TIMES(1, sums, operands);
    }
}

#endif
