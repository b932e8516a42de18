/*
 * FULLY_CONNECTED with int8 weights on cores with the DSP extension: four outputs and four inputs at a time.
 *
 * A word of weights holds those of inputs 0 to 3 of one output, as two int16: low + 256 * high with low = w0, w2 and
 * high = w1, w3. SXTB16 gives the low ones; to take out the high ones would cost as much again. Instead the whole is
 * multiplied by the odd inputs, which leaves low * odd too much, and low by 256 * even - odd:
 *     (low + 256 * high) * odd + low * (256 * even - odd) = 256 * (low * even + high * odd)
 * Both fit int16 when 1 is added to the even inputs and 129 to the odd ones; the bias takes that back, as it does the
 * zero point. A sum is then 256 times the accumulator, so that this must stay within +-2^23; else the inputs go in
 * chunks.
 */
#ifndef DISCO_VARIANTS_FULLY_CONNECTED_DSP_H
#define DISCO_VARIANTS_FULLY_CONNECTED_DSP_H

#include <stddef.h>

#include "disco/kernels.h"
#include "tensor_view.h"
#include "variants/requantise_scaled.h"

/* Outputs computed together. */
#define DISCO_CONNECTED_GROUP 4

typedef struct {
    int32_t bias; /* what takes back zero point and shifted inputs included; times 256 unless there are chunks */
    disco_scaling_t scaling;
} disco_connected_channel_t;

typedef struct {
    const uint32_t *weights;                   /* [groups of outputs][quads][4 outputs] */
    const disco_connected_channel_t *channels; /* whole groups */
    uint16_t quads;                            /* inputs / 4, rounded up to an even number */
    uint16_t chunk_quads;                      /* the same, or less when a sum over all could overflow; even */
    disco_output_scaling_t output;
} disco_fully_connected_dsp_t;

/* Four inputs as (odd, 256 * even - odd). */
DISCO_VARIANT void disco_connected_expand(uint32_t inputs, uint32_t *target) {
    const uint32_t odd = disco_sxtb16_high(inputs);
    const uint32_t even_256 = (inputs & UINT32_C(0x00FF00FF)) << 8;
    const uint32_t mixed = disco_sadd16(disco_ssub16(even_256, odd), UINT32_C(0x007F007F)); /* 256 - 129 */
    disco_store_pair(target, disco_sadd16(odd, UINT32_C(0x00810081)), mixed);
}

/* All inputs of a pixel; those missing in the last quads are 0, as their weights are. */
DISCO_VARIANT void disco_connected_expand_pixel(const disco_fully_connected_dsp_t *op, const int8_t *pixel,
                                                size_t inputs, uint32_t *target) {
    size_t i = 0;
    for (; i + 4 <= inputs; i += 4, target += 2) {
        disco_connected_expand(disco_load_word(pixel + i), target);
    }
    for (; i < (size_t)op->quads * 4; i += 4, target += 2) {
        uint32_t last = 0;
        if (i < inputs) {
            memcpy(&last, pixel + i, inputs - i);
        }
        disco_connected_expand(last, target);
    }
}

/* Adds the products of `quads` quads to four sums. */
#if defined(__ARM_FEATURE_DSP)
#define DISCO_CONNECTED_ADD(sum, word)                                                                                 \
    "smlad %[" sum "], " word ", %[odd], %[" sum "]\n\tsxtb16 " word ", " word "\n\t"                                  \
    "smlad %[" sum "], " word ", %[mixed], %[" sum "]\n\t"

DISCO_VARIANT void disco_connected_sums(const uint32_t *weights, const uint32_t *inputs, int32_t quads,
                                        int32_t sums[DISCO_CONNECTED_GROUP]) {
    uint32_t odd, mixed;
    /* clang-format off */
    __asm__ volatile(
            "0:\n\t"
            ".rept %c[unrolled]\n\t"
            "ldmia %[weights]!, {r4, r5, r6, r8}\n\t"
            "ldrd %[odd], %[mixed], [%[inputs]], #8\n\t"
            DISCO_CONNECTED_ADD("sum0", "r4") DISCO_CONNECTED_ADD("sum1", "r5")
            DISCO_CONNECTED_ADD("sum2", "r6") DISCO_CONNECTED_ADD("sum3", "r8")
            ".endr\n\t"
            "subs %[quads], %[quads], %[unrolled]\n\t"
            "bne 0b"
            : [weights] "+&r"(weights), [inputs] "+&r"(inputs), [quads] "+&r"(quads), [odd] "=&r"(odd),
              [mixed] "=&r"(mixed), [sum0] "+&r"(sums[0]), [sum1] "+&r"(sums[1]), [sum2] "+&r"(sums[2]),
              [sum3] "+&r"(sums[3])
            : [unrolled] "i"(__builtin_constant_p(quads) && quads % 4 == 0 ? 4 : 2)
            : "r4", "r5", "r6", "r8", "cc", "memory");
    /* clang-format on */
}
#else
DISCO_VARIANT void disco_connected_sums(const uint32_t *weights, const uint32_t *inputs, int32_t quads,
                                        int32_t sums[DISCO_CONNECTED_GROUP]) {
    for (; quads > 0; quads--, inputs += 2, weights += DISCO_CONNECTED_GROUP) {
        for (size_t k = 0; k < DISCO_CONNECTED_GROUP; k++) {
            sums[k] = disco_smlad(weights[k], inputs[0], sums[k]);
            sums[k] = disco_smlad(disco_sxtb16(weights[k]), inputs[1], sums[k]);
        }
    }
}
#endif

/* A sum over everything, 256 times the accumulator, scaled as requantisation wants it. */
DISCO_VARIANT int32_t disco_connected_rescale(int32_t sum, int32_t kind) {
    return kind == DISCO_SCALING_COMMON ? sum : kind == DISCO_SCALING_SIGNED ? sum >> 7 : sum >> 8;
}

/* The scaled accumulators of four outputs. */
DISCO_VARIANT void disco_connected_accumulate(const disco_fully_connected_dsp_t *op, const uint32_t *weights,
                                              const uint32_t *inputs, const disco_connected_channel_t *channels,
                                              int32_t accumulators[DISCO_CONNECTED_GROUP]) {
    for (size_t k = 0; k < DISCO_CONNECTED_GROUP; k++) {
        accumulators[k] = channels[k].bias;
    }
    if (op->chunk_quads == op->quads) {
        disco_connected_sums(weights, inputs, op->quads, accumulators);
        for (size_t k = 0; k < DISCO_CONNECTED_GROUP; k++) {
            accumulators[k] = disco_connected_rescale(accumulators[k], op->output.kind);
        }
        return;
    }
    for (int32_t first = 0; first < op->quads; first += op->chunk_quads) {
        int32_t sums[DISCO_CONNECTED_GROUP] = {0, 0, 0, 0};
        const int32_t left = op->quads - first;
        disco_connected_sums(weights + (size_t)first * DISCO_CONNECTED_GROUP, inputs + (size_t)first * 2,
                             left < op->chunk_quads ? left : op->chunk_quads, sums);
        for (size_t k = 0; k < DISCO_CONNECTED_GROUP; k++) {
            accumulators[k] = disco_wrap_add(accumulators[k], sums[k] >> 8);
        }
    }
    for (size_t k = 0; k < DISCO_CONNECTED_GROUP; k++) {
        accumulators[k] = disco_wrap_shift_left(accumulators[k], op->output.kind == DISCO_SCALING_SIGNED ? 1 : 0);
    }
}

DISCO_VARIANT void disco_connected_group(const disco_fully_connected_dsp_t *op, const uint32_t *inputs, size_t first,
                                         int8_t *result, size_t count) {
    const disco_connected_channel_t *const channels = op->channels + first;
    int32_t accumulators[DISCO_CONNECTED_GROUP];
    disco_connected_accumulate(op, op->weights + first * op->quads, inputs, channels, accumulators);
    for (size_t k = 0; k < count; k++) {
        result[first + k] = disco_scale(accumulators[k], &channels[k].scaling, &op->output);
    }
}

DISCO_VARIANT void disco_fully_connected_dsp(const disco_fully_connected_dsp_t *op, const disco_input_t *in,
                                             const disco_output_t *out, void *scratch, uint16_t row_begin,
                                             uint16_t row_end) {
    uint32_t *const inputs = scratch;
    const size_t rest = out->channels % DISCO_CONNECTED_GROUP;
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            int8_t *const result = disco_output_pixel(out, y, x);
            disco_connected_expand_pixel(op, disco_input_pixel(in, y, x), in->channels, inputs);
            DISCO_UNROLL(1)
            for (size_t first = 0; first < out->channels - rest; first += DISCO_CONNECTED_GROUP) {
                disco_connected_group(op, inputs, first, result, DISCO_CONNECTED_GROUP);
            }
            if (rest > 0) {
                disco_connected_group(op, inputs, out->channels - rest, result, rest);
            }
        }
    }
}

#endif
