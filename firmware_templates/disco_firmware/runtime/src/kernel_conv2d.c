/* CONV_2D. */
#include "disco/kernels.h"

#include "dot_products.h"
#include "requantise.h"
#include "tensor_view.h"
#include "window.h"

/* Adds the window's part inside the input. */
static void accumulate(const disco_conv2d_t *op, const disco_input_t *in, disco_span_t rows, disco_span_t columns,
                       const disco_filters_t *filters, uint32_t sums[DISCO_DOT_CHANNELS]) {
    const disco_window_t *const window = &op->window;
    /* Neighbouring pixels without gaps between them are one long row of values. */
    const int32_t run = window->dilation_w == 1 && in->channels == in->stride ? columns.end - columns.begin : 1;
    int32_t y = rows.first;
    for (int32_t kernel_y = rows.begin; kernel_y < rows.end; kernel_y++, y += window->dilation_h) {
        int32_t x = columns.first;
        for (int32_t kernel_x = columns.begin; kernel_x < columns.end; kernel_x += run, x += window->dilation_w) {
            const size_t offset = ((size_t)kernel_y * window->kernel_w + (size_t)kernel_x) * in->channels;
            disco_add_dot_products(disco_input_pixel(in, (size_t)y, (size_t)x), op->input_zero_point, filters, offset,
                                   (size_t)run * in->channels, sums);
        }
    }
}

static void convolve_pixel(const disco_conv2d_t *op, const disco_input_t *in, disco_span_t rows, disco_span_t columns,
                           int8_t *out, size_t channels) {
    const size_t filter_size = (size_t)op->window.kernel_h * op->window.kernel_w * in->channels;
    for (size_t first = 0; first < channels; first += DISCO_DOT_CHANNELS) {
        const disco_filters_t filters = disco_select_filters(op->weights, filter_size, first, channels);
        uint32_t sums[DISCO_DOT_CHANNELS] = {0};
        accumulate(op, in, rows, columns, &filters, sums);
        for (size_t k = 0; k < DISCO_DOT_CHANNELS && first + k < channels; k++) {
            out[first + k] = disco_requantise_channel(&op->requantise, op->bias, first + k, sums[k]);
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
