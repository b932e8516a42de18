/*
 * Requantisation of one output channel in three forms, chosen for the whole layer by the packer
 * (disco_firmware/variants/scaling.py), which scales weights and bias by powers of two to save instructions here.
 */
#ifndef DISCO_VARIANTS_REQUANTISE_SCALED_H
#define DISCO_VARIANTS_REQUANTISE_SCALED_H

#include "fixed_point.h"
#include "variants/simd.h"

enum {
    /* Three instructions. The activation begins at the zero point or above, as with a fused RELU, so that no
     * accumulator below 0 counts. For the others, both roundings of the reference come to a threshold per output
     * value, accumulator * multiplier / 2^31 >= (value - 1/2) * 2^right_shift - 1/2, which one product without
     * rounding decides as well once the accumulator is scaled by 2^(common_shift - right_shift + 1), common_shift >
     * right_shift. */
    DISCO_SCALING_COMMON,
    /* Five instructions, any sign: accumulator times 2, right shift 1..22, results within +-2^30. */
    DISCO_SCALING_SIGNED,
    /* Any shift: fixed_point.h. */
    DISCO_SCALING_GENERAL
};

/* Of one channel. */
typedef struct {
    int32_t multiplier; /* Q31 */
    int32_t offset;     /* zero point and rounding; not for DISCO_SCALING_GENERAL */
    int32_t shift;      /* DISCO_SCALING_SIGNED: to the right; DISCO_SCALING_GENERAL: positive is left */
} disco_scaling_t;

/* What is the same for all channels. */
typedef struct {
    int32_t kind;         /* DISCO_SCALING_... */
    int32_t common_shift; /* DISCO_SCALING_COMMON: 2..22 */
    int32_t output_zero_point;
    int32_t activation_min, activation_max;
} disco_output_scaling_t;

DISCO_VARIANT int8_t disco_clamp_scaled(int32_t value, const disco_output_scaling_t *output) {
    if (output->activation_min == -128 && output->activation_max == 127) {
        return disco_ssat8(value);
    }
    return (int8_t)disco_clamp(value, output->activation_min, output->activation_max);
}

/* `accumulator` is scaled as `kind` says. */
DISCO_VARIANT int8_t disco_scale(int32_t accumulator, const disco_scaling_t *channel,
                                 const disco_output_scaling_t *output) {
    if (output->kind == DISCO_SCALING_COMMON) {
        const int32_t sum = disco_smmla(accumulator, channel->multiplier, channel->offset);
        return disco_clamp_scaled(sum >> output->common_shift, output);
    }
    if (output->kind == DISCO_SCALING_SIGNED) {
        /* The reference rounds halves away from zero: below zero, the least bit less before the shift. Where the
         * high half of the product is 0 that changes nothing, so that the accumulator's sign serves as well. */
        const int32_t sum = disco_smmlar(accumulator, channel->multiplier, channel->offset) + (accumulator >> 31);
        return disco_clamp_scaled(sum >> channel->shift, output);
    }
    return disco_requantise(accumulator, channel->multiplier, channel->shift, output->output_zero_point,
                            output->activation_min, output->activation_max);
}

#endif
