/* FULLY_CONNECTED with Helium: eight output channels at a time. */
#ifndef DISCO_VARIANTS_FULLY_CONNECTED_MVE_H
#define DISCO_VARIANTS_FULLY_CONNECTED_MVE_H

#include <string.h>

#include "tensor_view.h"
#include "variants/mve.h"

typedef struct {
    const int8_t *weights;   /* [8 output channels each][vectors][8][16] */
    const int32_t *channels; /* [8 output channels each][even, odd ones][bias, multiplier, shift][4] */
    uint16_t vectors;        /* of a pixel */
    disco_requantise_mve_t requantise;
} disco_fully_connected_mve_t;

DISCO_VARIANT void disco_connect_pixel_mve(const disco_fully_connected_mve_t *op, const int8_t *values, int8_t *out,
                                           size_t channels) {
    const int8_t *weights = op->weights;
    const int32_t *constants = op->channels;
    for (size_t c = 0; c < channels; c += 8) {
        const disco_channels_mve_t evens = disco_load_channels_mve(constants);
        const disco_channels_mve_t odds = disco_load_channels_mve(constants + 12);
        int32x4_t even, odd;
        disco_dot_1x8_mve(&values, -(int32_t)(op->vectors * DISCO_MVE_BYTES), &weights, 0, op->vectors, &even, &odd);
        const int16x8_t result = disco_narrow_mve(disco_scale_mve(even, &evens, &op->requantise),
                                                  disco_scale_mve(odd, &odds, &op->requantise), &op->requantise);
        if (channels % 8 == 0) {
            vstrbq_s16(out + c, result);
        } else {
            DISCO_STORE_SOME_MVE(vstrbq_p_s16, out + c, result, vctp16q(channels - c));
        }
        constants += 24;
    }
}

DISCO_VARIANT void disco_fully_connected_mve(const disco_fully_connected_mve_t *op, const disco_input_t *in,
                                             const disco_output_t *out, void *scratch, uint16_t row_begin,
                                             uint16_t row_end) {
    int8_t *const copy = scratch;
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            const int8_t *values = disco_input_pixel(in, y, x);
            /* The last vector would reach beyond the pixel; only then is there scratch memory. */
            if (in->channels % DISCO_MVE_BYTES != 0 && copy != NULL) {
                memcpy(copy, values, in->channels);
                values = copy;
            }
            disco_connect_pixel_mve(op, values, disco_output_pixel(out, y, x), out->channels);
        }
    }
}

#endif
