/*
 * Requantisation in seven instructions, equal to disco_requantise (fixed_point.h) where the shift is to the right by at
 * least 1 and the accumulator lies within +-2^30; with a clamp that is not all of int8, two more.
 */
#ifndef DISCO_VARIANTS_REQUANTISE_FAST_H
#define DISCO_VARIANTS_REQUANTISE_FAST_H

#include "variants/simd.h"

/* One output channel: what to begin the accumulator with (the bias, minus the input zero point times the sum of the weights),
 * the multiplier (Q31), and the right shift, 1..31. */
typedef struct {
    int32_t bias;
    int32_t multiplier;
    int32_t right_shift;
} disco_channel_t;

/* What is the same for all channels. */
typedef struct {
    int32_t output_zero_point;
    int32_t activation_min, activation_max;
} disco_output_range_t;

/* gemmlowp rounds the high product half up and the shift half away from zero; adding the sign makes the latter half up too. */
DISCO_VARIANT int8_t disco_requantise_fast(int32_t accumulator, const disco_channel_t *channel,
                                           const disco_output_range_t *range) {
    const int32_t high = disco_smmulr((int32_t)((uint32_t)accumulator << 1), channel->multiplier);
    const int32_t rounding = (int32_t)(UINT32_C(1) << (channel->right_shift - 1));
    const int32_t scaled = (high + (high >> 31) + rounding) >> channel->right_shift;
    const int32_t value = scaled + range->output_zero_point;
    if (range->activation_min == -128 && range->activation_max == 127) {
        return disco_ssat8(value);
    }
    return (int8_t)(value < range->activation_min   ? range->activation_min
                    : value > range->activation_max ? range->activation_max
                                                    : value);
}

#endif
