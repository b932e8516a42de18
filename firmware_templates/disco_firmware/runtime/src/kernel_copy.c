/* Kernels that move values without computing: CONCATENATION, channel selection, RESHAPE. */
#include "disco/kernels.h"

#include <string.h>

#include "tensor_view.h"

void disco_copy_channels_s8(const disco_copy_channels_t *op, const disco_input_t *in, const disco_output_t *out,
                            uint16_t row_begin, uint16_t row_end) {
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            memcpy(disco_output_pixel(out, y, x) + op->first_channel, disco_input_pixel(in, y, x), in->channels);
        }
    }
}

void disco_select_channels_s8(const disco_select_channels_t *op, const disco_input_t *in, const disco_output_t *out,
                              uint16_t row_begin, uint16_t row_end) {
    for (size_t y = row_begin; y < row_end; y++) {
        for (size_t x = 0; x < out->width; x++) {
            const int8_t *const pixel = disco_input_pixel(in, y, x);
            int8_t *const result = disco_output_pixel(out, y, x);
            for (size_t c = 0; c < out->channels; c++) {
                result[c] = pixel[op->index[c]];
            }
        }
    }
}

void disco_reshape_s8(const disco_input_t *in, const disco_output_t *out) {
    const size_t out_pixels = (size_t)out->height * out->width;
    const int8_t *pixel = in->data;
    size_t in_channel = 0;
    for (size_t i = 0; i < out_pixels; i++) {
        int8_t *const result = out->data + i * out->stride;
        for (size_t c = 0; c < out->channels; c++) {
            result[c] = pixel[in_channel];
            if (++in_channel == in->channels) {
                in_channel = 0;
                pixel += in->stride;
            }
        }
    }
}
