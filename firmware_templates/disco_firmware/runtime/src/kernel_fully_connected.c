/* FULLY_CONNECTED. */
#include "disco/kernels.h"

#include "dot_products.h"
#include "fixed_point.h"
#include "tensor_view.h"

static void connect_pixel(const disco_fully_connected_t *op, const int8_t *values, size_t depth, int8_t *out,
                          size_t channels) {
    const disco_requantise_t *const q = &op->requantise;
    for (size_t first = 0; first < channels; first += DISCO_DOT_CHANNELS) {
        const int8_t *weights[DISCO_DOT_CHANNELS];
        uint32_t sums[DISCO_DOT_CHANNELS] = {0};
        for (size_t k = 0; k < DISCO_DOT_CHANNELS; k++) {
            /* Beyond the last channel: repeat it, the sum is not used. */
            weights[k] = op->weights + (first + k < channels ? first + k : channels - 1) * depth;
        }
        disco_add_dot_products(values, op->input_zero_point, weights, depth, sums);
        for (size_t k = 0; k < DISCO_DOT_CHANNELS && first + k < channels; k++) {
            const size_t c = first + k;
            const int32_t bias = op->bias ? op->bias[c] : 0;
            out[c] = disco_requantise(disco_wrap_add((int32_t)sums[k], bias), q->multiplier[c], q->shift[c],
                                      q->output_zero_point, q->activation_min, q->activation_max);
        }
    }
}

void disco_fully_connected_s8(const disco_fully_connected_t *op, const disco_input_t *in, const disco_output_t *out,
                              uint16_t row_begin, uint16_t row_end) {
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            connect_pixel(op, disco_input_pixel(in, y, x), in->channels, disco_output_pixel(out, y, x), out->channels);
        }
    }
}
