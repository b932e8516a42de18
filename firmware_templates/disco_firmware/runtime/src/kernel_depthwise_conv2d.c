/* DEPTHWISE_CONV_2D. */
#include "disco/kernels.h"

#include "requantise.h"
#include "tensor_view.h"
#include "window.h"

/* Channels that are computed together, to share the walk over the window. */
#define GROUP 4

/* Adds the window's part inside the input for output channel `channel`, which reads input channel `source`. */
static uint32_t accumulate_one(const disco_depthwise_conv2d_t *op, const disco_input_t *in, disco_span_t rows,
                               disco_span_t columns, size_t source, size_t channel, size_t channels) {
    const size_t step = (size_t)op->window.dilation_w * in->stride;
    uint32_t sum = 0;
    int32_t y = rows.first;
    for (int32_t kernel_y = rows.begin; kernel_y < rows.end; kernel_y++, y += op->window.dilation_h) {
        const size_t position = (size_t)kernel_y * op->window.kernel_w + (size_t)columns.begin;
        const int8_t *value = disco_input_pixel(in, (size_t)y, (size_t)columns.first) + source;
        const int8_t *weight = op->weights + position * channels + channel;
        for (int32_t n = columns.end - columns.begin; n > 0; n--, value += step, weight += channels) {
            sum += (uint32_t)((*value - op->input_zero_point) * *weight);
        }
    }
    return sum;
}

/* The same for GROUP neighbouring channels, each of which reads the input channel of its own number. */
static void accumulate_group(const disco_depthwise_conv2d_t *op, const disco_input_t *in, disco_span_t rows,
                             disco_span_t columns, size_t channel, size_t channels, uint32_t sums[GROUP]) {
    const size_t step = (size_t)op->window.dilation_w * in->stride;
    const int32_t zero_point = op->input_zero_point;
    uint32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    int32_t y = rows.first;
    for (int32_t kernel_y = rows.begin; kernel_y < rows.end; kernel_y++, y += op->window.dilation_h) {
        const size_t position = (size_t)kernel_y * op->window.kernel_w + (size_t)columns.begin;
        const int8_t *values = disco_input_pixel(in, (size_t)y, (size_t)columns.first) + channel;
        const int8_t *weights = op->weights + position * channels + channel;
        for (int32_t n = columns.end - columns.begin; n > 0; n--, values += step, weights += channels) {
            s0 += (uint32_t)((values[0] - zero_point) * weights[0]);
            s1 += (uint32_t)((values[1] - zero_point) * weights[1]);
            s2 += (uint32_t)((values[2] - zero_point) * weights[2]);
            s3 += (uint32_t)((values[3] - zero_point) * weights[3]);
        }
    }
    sums[0] = s0;
    sums[1] = s1;
    sums[2] = s2;
    sums[3] = s3;
}

static void convolve_pixel(const disco_depthwise_conv2d_t *op, const disco_input_t *in, disco_span_t rows,
                           disco_span_t columns, int8_t *out, size_t channels) {
    const size_t grouped = op->depth_multiplier == 1 ? channels - channels % GROUP : 0;
    for (size_t first = 0; first < grouped; first += GROUP) {
        uint32_t sums[GROUP];
        accumulate_group(op, in, rows, columns, first, channels, sums);
        for (size_t k = 0; k < GROUP; k++) {
            out[first + k] = disco_requantise_channel(&op->requantise, op->bias, first + k, sums[k]);
        }
    }
    for (size_t c = grouped; c < channels; c++) {
        const uint32_t sum = accumulate_one(op, in, rows, columns, c / op->depth_multiplier, c, channels);
        out[c] = disco_requantise_channel(&op->requantise, op->bias, c, sum);
    }
}

void disco_depthwise_conv2d_s8(const disco_depthwise_conv2d_t *op, const disco_input_t *in, const disco_output_t *out,
                               uint16_t row_begin, uint16_t row_end) {
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
