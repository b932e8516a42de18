/* FULLY_CONNECTED. */
#include "disco/kernels.h"

#include "dot_products.h"
#include "requantise.h"
#include "tensor_view.h"

static void connect_pixel(const disco_fully_connected_t *op, const int8_t *values, size_t depth, int8_t *out,
                          size_t channels) {
    for (size_t first = 0; first < channels; first += DISCO_DOT_CHANNELS) {
        const disco_filters_t filters = disco_select_filters(op->weights, depth, first, channels);
        uint32_t sums[DISCO_DOT_CHANNELS] = {0};
        disco_add_dot_products(values, op->input_zero_point, &filters, 0, depth, sums);
        for (size_t k = 0; k < DISCO_DOT_CHANNELS && first + k < channels; k++) {
            out[first + k] = disco_requantise_channel(&op->requantise, op->bias, first + k, sums[k]);
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
