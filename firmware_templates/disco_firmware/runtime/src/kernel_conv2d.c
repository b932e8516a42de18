/* CONV_2D. */
#include "disco/kernels.h"

#include "dot_products.h"
#include "fixed_point.h"
#include "tensor_view.h"
#include "window.h"

/* Adds the window's part inside the input for the output channels first .. first + DISCO_DOT_CHANNELS - 1. Those beyond
 * the last channel repeat it: their sums are not used. */
static void accumulate(const disco_conv2d_t *op, const disco_input_t *in, disco_span_t rows, disco_span_t columns,
                       size_t first, size_t channels, uint32_t sums[DISCO_DOT_CHANNELS]) {
    const disco_window_t *const window = &op->window;
    const size_t filter_size = (size_t)window->kernel_h * window->kernel_w * in->channels;
    /* Neighbouring pixels without gaps between them are one long row of values. */
    const int32_t run = window->dilation_w == 1 && in->channels == in->stride ? columns.end - columns.begin : 1;
    const int8_t *filters[DISCO_DOT_CHANNELS];
    for (size_t k = 0; k < DISCO_DOT_CHANNELS; k++) {
        filters[k] = op->weights + (first + k < channels ? first + k : channels - 1) * filter_size;
    }
    int32_t y = rows.first;
    for (int32_t kernel_y = rows.begin; kernel_y < rows.end; kernel_y++, y += window->dilation_h) {
        int32_t x = columns.first;
        for (int32_t kernel_x = columns.begin; kernel_x < columns.end; kernel_x += run, x += window->dilation_w) {
            const size_t offset = ((size_t)kernel_y * window->kernel_w + (size_t)kernel_x) * in->channels;
            const int8_t *weights[DISCO_DOT_CHANNELS];
            for (size_t k = 0; k < DISCO_DOT_CHANNELS; k++) {
                weights[k] = filters[k] + offset;
            }
            disco_add_dot_products(disco_input_pixel(in, (size_t)y, (size_t)x), op->input_zero_point, weights,
                                   (size_t)run * in->channels, sums);
        }
    }
}

static void convolve_pixel(const disco_conv2d_t *op, const disco_input_t *in, disco_span_t rows, disco_span_t columns,
                           int8_t *out, size_t channels) {
    const disco_requantise_t *const q = &op->requantise;
    for (size_t first = 0; first < channels; first += DISCO_DOT_CHANNELS) {
        uint32_t sums[DISCO_DOT_CHANNELS] = {0};
        accumulate(op, in, rows, columns, first, channels, sums);
        for (size_t k = 0; k < DISCO_DOT_CHANNELS && first + k < channels; k++) {
            const size_t c = first + k;
            const int32_t bias = op->bias ? op->bias[c] : 0;
            out[c] = disco_requantise(disco_wrap_add((int32_t)sums[k], bias), q->multiplier[c], q->shift[c],
                                      q->output_zero_point, q->activation_min, q->activation_max);
        }
    }
}

void disco_conv2d_s8(const disco_conv2d_t *op, const disco_input_t *in, const disco_output_t *out, uint16_t row_begin,
                     uint16_t row_end) {
    const disco_window_t *const w = &op->window;
    for (int32_t y = row_begin; y < row_end; y++) {
        const disco_span_t rows = disco_clip_window(y, w->stride_h, w->pad_top, w->kernel_h, w->dilation_h, in->height);
        for (int32_t x = 0; x < out->width; x++) {
            const disco_span_t columns =
                disco_clip_window(x, w->stride_w, w->pad_left, w->kernel_w, w->dilation_w, in->width);
            convolve_pixel(op, in, rows, columns, disco_output_pixel(out, (size_t)y, (size_t)x), out->channels);
        }
    }
}
