/* FULLY_CONNECTED. */
#include "disco/kernels.h"

#include "dot_products.h"
#include "requantise.h"
#include "tensor_view.h"

static void connect_pixel(const disco_fully_connected_t *op, const int8_t *values, size_t depth, int8_t *out,
                          size_t channels) {
    const disco_runs_t runs = {values, 1, 1, depth, 0, 0, 0, 0};
    for (size_t first = 0; first < channels; first += DISCO_DOT_CHANNELS) {
        uint32_t sums[DISCO_DOT_CHANNELS];
        disco_dot_products(&runs, op->input_zero_point, op->weights, depth, first, channels, sums);
        const size_t count = channels - first < DISCO_DOT_CHANNELS ? channels - first : DISCO_DOT_CHANNELS;
        disco_requantise_channels(&op->requantise, op->bias, first, count, sums, out + first);
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
