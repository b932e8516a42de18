/*
 * What the Helium (MVE) kernels share: dot products of 16 int8 at a time, and requantisation of 4 lanes at a time.
 *
 * VMLADAV adds 16 products to a general register of even number. Eight sums in flight - two pixels by four output
 * channels, or one pixel by eight - use all of them, so that a loaded vector serves several multiplications; compilers
 * do not find this allocation, hence assembly for the two loops (and for the VMOV that takes two registers to two
 * lanes).
 */
#ifndef DISCO_VARIANTS_MVE_H
#define DISCO_VARIANTS_MVE_H

#include <arm_mve.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "disco/kernels.h"

#include "variants/simd.h"

/* Bytes of a vector. */
#define DISCO_MVE_BYTES 16u

/*
 * Stores some lanes: vstrbq_p_s8 and its like. To GCC 12 these are stores of all lanes: before one it leaves out an
 * earlier store to what only the other lanes would cover (-fdse). Statements that may read memory keep it.
 */
#define DISCO_STORE_SOME_MVE(store, target, vector, lanes)                                                             \
    do {                                                                                                               \
        __asm__ volatile("" ::: "memory");                                                                             \
        store(target, vector, lanes);                                                                                  \
        __asm__ volatile("" ::: "memory");                                                                             \
    } while (0)

/* Requantisation, the same for all output channels of an op. */
typedef struct {
    int32_t output_zero_point;
    int32_t activation_min, activation_max;
    bool any_shift; /* some shift is not to the right by at least 1 */
} disco_requantise_mve_t;

/* Four output channels; in flash 12 words in this order. `bias` is less the input zero point times the sum of the
 * weights; `shift` is positive to the left. */
typedef struct {
    int32x4_t bias, multiplier, shift;
} disco_channels_mve_t;

DISCO_VARIANT disco_channels_mve_t disco_load_channels_mve(const int32_t *constants) {
    const disco_channels_mve_t channels = {vldrwq_s32(constants), vldrwq_s32(constants + 4), vldrwq_s32(constants + 8)};
    return channels;
}

/*
 * Rounds once in VQRDMULH, which is gemmlowp's SaturatingRoundingDoublingHighMul, and once in the shift. VRSHL rounds
 * halves up, gemmlowp away from zero: the same for x >= 0, and for x < 0 once 1 is taken from x. The difference would
 * be one below the zero point, where a ReLU cuts off what is negative anyway.
 */
DISCO_VARIANT int32x4_t disco_scale_mve(int32x4_t sums, const disco_channels_mve_t *channels,
                                        const disco_requantise_mve_t *op) {
    int32x4_t value = vaddq_s32(sums, channels->bias);
    if (op->any_shift) {
        const int32x4_t none = vdupq_n_s32(0);
        const int32x4_t right = vminq_s32(channels->shift, none);
        value = vqrdmulhq_s32(vshlq_s32(value, vmaxq_s32(channels->shift, none)), channels->multiplier);
        value = vaddq_s32(value, vshrq_n_s32(vandq_s32(value, right), 31)); /* not where nothing is shifted out */
        return vrshlq_s32(value, right);
    }
    value = vqrdmulhq_s32(value, channels->multiplier);
    if (op->activation_min < op->output_zero_point) {
        value = vaddq_s32(value, vshrq_n_s32(value, 31));
    }
    return vrshlq_s32(value, channels->shift);
}

/* The same where all lanes are of one channel. */
typedef struct {
    int32_t bias, multiplier, shift;
} disco_channel_mve_t;

DISCO_VARIANT int32x4_t disco_scale_channel_mve(int32x4_t sums, disco_channel_mve_t channel,
                                                const disco_requantise_mve_t *op) {
    if (op->any_shift) {
        const disco_channels_mve_t lanes = {vdupq_n_s32(channel.bias), vdupq_n_s32(channel.multiplier),
                                            vdupq_n_s32(channel.shift)};
        return disco_scale_mve(sums, &lanes, op);
    }
    int32x4_t value = vqrdmulhq_n_s32(vaddq_n_s32(sums, channel.bias), channel.multiplier);
    if (op->activation_min < op->output_zero_point) {
        value = vaddq_s32(value, vshrq_n_s32(value, 31));
    }
    return vrshlq_n_s32(value, channel.shift);
}

/* Values of both vectors in turn, saturated. In place: of the intrinsics the compiler makes two more moves. */
DISCO_VARIANT int16x8_t disco_interleave_mve(int32x4_t even, int32x4_t odd) {
    __asm__("vqmovnb.s32 %q0, %q0\n\t"
            "vqmovnt.s32 %q0, %q1"
            : "+w"(even)
            : "w"(odd));
    return vreinterpretq_s16_s32(even);
}

/* Scaled values, those of `even` and `odd` in turn, as int8 in the low halves of 16 bits. */
DISCO_VARIANT int16x8_t disco_narrow_mve(int32x4_t even, int32x4_t odd, const disco_requantise_mve_t *op) {
    if (op->any_shift) { /* what is scaled may need all 32 bits */
        const int32x4_t low = vdupq_n_s32(op->activation_min), high = vdupq_n_s32(op->activation_max);
        even = vminq_s32(vmaxq_s32(vaddq_n_s32(even, op->output_zero_point), low), high);
        odd = vminq_s32(vmaxq_s32(vaddq_n_s32(odd, op->output_zero_point), low), high);
        return vmovntq_s32(vreinterpretq_s16_s32(even), odd);
    }
    int16x8_t both = vqaddq_n_s16(disco_interleave_mve(even, odd), (int16_t)op->output_zero_point);
    if (op->activation_min > INT8_MIN) {
        both = vmaxq_s16(both, vdupq_n_s16((int16_t)op->activation_min));
    }
    if (op->activation_max < INT8_MAX) {
        both = vminq_s16(both, vdupq_n_s16((int16_t)op->activation_max));
    }
    if (op->activation_min > INT8_MIN && op->activation_max < INT8_MAX) {
        return both;
    }
    __asm__("vqmovnb.s16 %q0, %q0" : "+w"(both));
    return both;
}

/* 16-bit lanes 0, 1, 2, ... times `step`. */
DISCO_VARIANT uint16x8_t disco_lanes_mve(size_t step) {
    return vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)step);
}

/* Lane i is the dot product of values i and weights i. */
DISCO_VARIANT int32x4_t disco_four_dots_mve(int8x16_t values0, int8x16_t weights0, int8x16_t values1,
                                            int8x16_t weights1, int8x16_t values2, int8x16_t weights2,
                                            int8x16_t values3, int8x16_t weights3) {
    int32x4_t sums;
    __asm__("vmladav.s8 r0, %q1, %q2\n\t"
            "vmladav.s8 r2, %q3, %q4\n\t"
            "vmladav.s8 r4, %q5, %q6\n\t"
            "vmladav.s8 r6, %q7, %q8\n\t"
            "vmov %q0[2], %q0[0], r0, r4\n\t"
            "vmov %q0[3], %q0[1], r2, r6"
            : "=w"(sums)
            : "w"(values0), "w"(weights0), "w"(values1), "w"(weights1), "w"(values2), "w"(weights2), "w"(values3),
              "w"(weights3)
            : "r0", "r2", "r4", "r6");
    return sums;
}

#if DISCO_ASSEMBLY

#define DISCO_MVE_LOAD(vector, pointer, move) "vldrb.8 %q[" vector "], [%[" pointer "]], #" move "\n\t"
#define DISCO_MVE_LOAD_WEIGHTS(vector, move)  "vldrw.32 %q[" vector "], [%[weights]], #" move "\n\t"
#define DISCO_MVE_ADD(accumulate, sum, x, y)  "vmladav" accumulate ".s8 " sum ", %q[" x "], %q[" y "]\n\t"
/* Two vectors of four sums. */
#define DISCO_MVE_COLLECT(vector, sum0, sum1, sum2, sum3)                                                              \
    "vmov %q[" vector "][2], %q[" vector "][0], " sum0 ", " sum2 "\n\t"                                                \
    "vmov %q[" vector "][3], %q[" vector "][1], " sum1 ", " sum3 "\n\t"

/* One vector of values of two pixels and of the weights of four channels. Loads and multiplications alternate, so
 * that a core with two pipelines overlaps them. */
#define DISCO_MVE_STEP_2X4(accumulate, values_move, weights_move)                                                      \
    DISCO_MVE_LOAD("first", "pixel0", values_move)                                                                     \
    DISCO_MVE_LOAD_WEIGHTS("even", "16")                                                                               \
    DISCO_MVE_LOAD("second", "pixel1", values_move)                                                                    \
    DISCO_MVE_ADD(accumulate, "r0", "first", "even")                                                                   \
    DISCO_MVE_LOAD_WEIGHTS("odd", "16")                                                                                \
    DISCO_MVE_ADD(accumulate, "r8", "second", "even")                                                                  \
    DISCO_MVE_ADD(accumulate, "r2", "first", "odd")                                                                    \
    DISCO_MVE_LOAD_WEIGHTS("even", "16")                                                                               \
    DISCO_MVE_ADD(accumulate, "r10", "second", "odd")                                                                  \
    DISCO_MVE_ADD(accumulate, "r4", "first", "even")                                                                   \
    DISCO_MVE_LOAD_WEIGHTS("odd", weights_move)                                                                        \
    DISCO_MVE_ADD(accumulate, "r12", "second", "even")                                                                 \
    DISCO_MVE_ADD(accumulate, "r6", "first", "odd")                                                                    \
    DISCO_MVE_ADD(accumulate, "lr", "second", "odd")
#define DISCO_MVE_COLLECT_2X4                                                                                          \
    DISCO_MVE_COLLECT("first", "r0", "r2", "r4", "r6")                                                                 \
    DISCO_MVE_COLLECT("second", "r8", "r10", "r12", "lr")

/* One vector of values of one pixel and of the weights of eight channels. */
#define DISCO_MVE_STEP_1X8(accumulate, values_move, weights_move)                                                      \
    DISCO_MVE_LOAD("first", "pixel0", values_move)                                                                     \
    DISCO_MVE_LOAD_WEIGHTS("even", "16")                                                                               \
    DISCO_MVE_LOAD_WEIGHTS("odd", "16")                                                                                \
    DISCO_MVE_ADD(accumulate, "r0", "first", "even")                                                                   \
    DISCO_MVE_LOAD_WEIGHTS("even", "16")                                                                               \
    DISCO_MVE_ADD(accumulate, "r2", "first", "odd")                                                                    \
    DISCO_MVE_LOAD_WEIGHTS("odd", "16")                                                                                \
    DISCO_MVE_ADD(accumulate, "r4", "first", "even")                                                                   \
    DISCO_MVE_LOAD_WEIGHTS("even", "16")                                                                               \
    DISCO_MVE_ADD(accumulate, "r6", "first", "odd")                                                                    \
    DISCO_MVE_LOAD_WEIGHTS("odd", "16")                                                                                \
    DISCO_MVE_ADD(accumulate, "r8", "first", "even")                                                                   \
    DISCO_MVE_LOAD_WEIGHTS("even", "16")                                                                               \
    DISCO_MVE_ADD(accumulate, "r10", "first", "odd")                                                                   \
    DISCO_MVE_LOAD_WEIGHTS("odd", weights_move)                                                                        \
    DISCO_MVE_ADD(accumulate, "r12", "first", "even")                                                                  \
    DISCO_MVE_ADD(accumulate, "lr", "first", "odd")
#define DISCO_MVE_COLLECT_1X8                                                                                          \
    DISCO_MVE_COLLECT("first", "r0", "r4", "r8", "r12")                                                                \
    DISCO_MVE_COLLECT("second", "r2", "r6", "r10", "lr")

/* By how many bytes the last load moves its pointer: also by `move`, which is then done, if that is known and within
 * reach. */
DISCO_VARIANT int32_t disco_last_move_mve(int32_t *move, int32_t reach) {
    const int32_t last = *move + (int32_t)DISCO_MVE_BYTES;
    if (__builtin_constant_p(last) && last > -reach && last < reach) {
        *move = 0;
        return last;
    }
    return (int32_t)DISCO_MVE_BYTES;
}

/* As many vectors as the assembler writes out one after the other; of more, eight at a time. */
#define DISCO_MVE_UNROLLED 16u
/* The compiler takes a line of assembly for an instruction, and must not think less of what .rept repeats, or else
 * it places constants out of reach: room for 256 instructions. */
#define DISCO_MVE_16_LINES "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n"
#define DISCO_MVE_64_LINES DISCO_MVE_16_LINES DISCO_MVE_16_LINES DISCO_MVE_16_LINES DISCO_MVE_16_LINES
#define DISCO_MVE_ROOM     DISCO_MVE_64_LINES DISCO_MVE_64_LINES DISCO_MVE_64_LINES DISCO_MVE_64_LINES
#define DISCO_MVE_OUTPUTS                                                                                              \
    : [pixel0] "+r"(*pixel0), [pixel1] "+r"(*pixel1), [weights] "+r"(*weights), [first] "=&w"(*first), \
        [second] "=&w"(*second), [even] "=&w"(even), [odd] "=&w"(odd)
#define DISCO_MVE_CLOBBERED "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "cc", "memory"
/* The first vector begins the sums; the last one takes the pointers where they are wanted, if a load can. */
#define DISCO_MVE_DOT(step, collect)                                                                                   \
    if (__builtin_constant_p(vectors) && vectors <= DISCO_MVE_UNROLLED) {                                              \
        const int32_t values_last = disco_last_move_mve(&values_move, 128);                                            \
        const int32_t weights_last = disco_last_move_mve(&weights_move, 512);                                          \
        __asm__(                                                                                                       \
            DISCO_MVE_ROOM ".if %c[more] == 0\n\t" step("", "%c[values_last]", "%c[weights_last]") ".else\n\t" step(   \
                "", "16",                                                                                              \
                "16") ".rept %c[more] - 1\n\t" step("a", "16",                                                         \
                                                    "16") ".endr\n\t" step("a", "%c[values_last]",                     \
                                                                           "%c[weights_last]") ".endif\n\t" collect    \
                DISCO_MVE_OUTPUTS                                                                                      \
            : [more] "i"(vectors - 1), [values_last] "i"(values_last), [weights_last] "i"(weights_last)                \
            : DISCO_MVE_CLOBBERED);                                                                                    \
    } else if (__builtin_constant_p(vectors)) {                                                                        \
        uint32_t rounds = (vectors - 1) / 8;                                                                           \
        __asm__(DISCO_MVE_ROOM step("", "16", "16") ".rept %c[more]\n\t" step(                                         \
                    "a", "16", "16") ".endr\n"                                                                         \
                                     "1:\n\t"                                                                          \
                                     ".rept 8\n\t" step("a", "16", "16") ".endr\n\t"                                   \
                                                                         "subs %[rounds], %[rounds], #1\n\t"           \
                                                                         "bne 1b\n\t" collect DISCO_MVE_OUTPUTS,       \
                [rounds] "+r"(rounds)                                                                                  \
                : [more] "i"((vectors - 1) % 8)                                                                        \
                : DISCO_MVE_CLOBBERED);                                                                                \
    } else {                                                                                                           \
        uint32_t rounds = vectors - 1;                                                                                 \
        __asm__(step("", "16", "16") "cmp %[rounds], #0\n\t"                                                           \
                                     "beq 2f\n"                                                                        \
                                     "1:\n\t" step("a", "16", "16") "subs %[rounds], %[rounds], #1\n\t"                \
                                                                    "bne 1b\n"                                         \
                                                                    "2:\n\t" collect DISCO_MVE_OUTPUTS,                \
                [rounds] "+r"(rounds)                                                                                  \
                :                                                                                                      \
                : DISCO_MVE_CLOBBERED);                                                                                \
    }                                                                                                                  \
    *pixel0 += values_move;                                                                                            \
    *pixel1 += values_move;                                                                                            \
    *weights += weights_move;

/* Dot products over `vectors` x 16 values of two pixels with four output channels, of weights [vector][channel][16].
 * The pointers move on behind what was read, and from there by the moves. */
DISCO_VARIANT void disco_dot_2x4_mve(const int8_t **pixel0, const int8_t **pixel1, int32_t values_move,
                                     const int8_t **weights, int32_t weights_move, uint32_t vectors, int32x4_t *first,
                                     int32x4_t *second) {
    int8x16_t even, odd;
    DISCO_MVE_DOT(DISCO_MVE_STEP_2X4, DISCO_MVE_COLLECT_2X4)
}

/* The same of one pixel with eight output channels: `first` gets those of even, `second` those of odd number. */
DISCO_VARIANT void disco_dot_1x8_mve(const int8_t **pixel0, int32_t values_move, const int8_t **weights,
                                     int32_t weights_move, uint32_t vectors, int32x4_t *first, int32x4_t *second) {
    int8x16_t even, odd;
    const int8_t *none = NULL, **pixel1 = &none;
    DISCO_MVE_DOT(DISCO_MVE_STEP_1X8, DISCO_MVE_COLLECT_1X8)
}

#else

DISCO_VARIANT int8x16_t disco_next_vector_mve(const int8_t **pointer) {
    const int8x16_t vector = vldrbq_s8(*pointer);
    *pointer += DISCO_MVE_BYTES;
    return vector;
}

DISCO_VARIANT void disco_dot_2x4_mve(const int8_t **pixel0, const int8_t **pixel1, int32_t values_move,
                                     const int8_t **weights, int32_t weights_move, uint32_t vectors, int32x4_t *first,
                                     int32x4_t *second) {
    int32_t sums[2][4] = {{0}};
    for (; vectors > 0; vectors--) {
        const int8x16_t values0 = disco_next_vector_mve(pixel0), values1 = disco_next_vector_mve(pixel1);
        for (size_t c = 0; c < 4; c++) {
            const int8x16_t filter = disco_next_vector_mve(weights);
            sums[0][c] = vmladavaq_s8(sums[0][c], values0, filter);
            sums[1][c] = vmladavaq_s8(sums[1][c], values1, filter);
        }
    }
    *pixel0 += values_move;
    *pixel1 += values_move;
    *weights += weights_move;
    *first = vldrwq_s32(sums[0]);
    *second = vldrwq_s32(sums[1]);
}

DISCO_VARIANT void disco_dot_1x8_mve(const int8_t **pixel0, int32_t values_move, const int8_t **weights,
                                     int32_t weights_move, uint32_t vectors, int32x4_t *first, int32x4_t *second) {
    int32_t sums[2][4] = {{0}};
    for (; vectors > 0; vectors--) {
        const int8x16_t values = disco_next_vector_mve(pixel0);
        for (size_t c = 0; c < 8; c++) {
            sums[c % 2][c / 2] = vmladavaq_s8(sums[c % 2][c / 2], values, disco_next_vector_mve(weights));
        }
    }
    *pixel0 += values_move;
    *weights += weights_move;
    *first = vldrwq_s32(sums[0]);
    *second = vldrwq_s32(sums[1]);
}

#endif

#endif
