/* DEPTHWISE_CONV_2D. */
#include "disco/kernels.h"

#include "fixed_point.h"
#include "tensor_view.h"
#include "window.h"

/* Channels that are computed together, to share the walk over the window. */
#define GROUP 4

/* Adds the window's part inside the input for the output channels channel[0 .. GROUP-1], which read the input channels
 * source[]. */
static void accumulate(const disco_depthwise_conv2d_t *op, const disco_input_t *in, disco_span_t rows,
                       disco_span_t columns, const size_t channel[GROUP], const size_t source[GROUP], size_t channels,
                       uint32_t sums[GROUP]) {
    const disco_window_t *const window = &op->window;
    const int32_t zero_point = op->input_zero_point;
    const size_t step = (size_t)window->dilation_w * in->stride;
    int32_t y = rows.first;
    for (int32_t kernel_y = rows.begin; kernel_y < rows.end; kernel_y++, y += window->dilation_h) {
        const int8_t *pixel = disco_input_pixel(in, (size_t)y, (size_t)columns.first);
        const int8_t *weights = op->weights + ((size_t)kernel_y * window->kernel_w + (size_t)columns.begin) * channels;
        for (int32_t kernel_x = columns.begin; kernel_x < columns.end; kernel_x++) {
            for (size_t k = 0; k < GROUP; k++) {
                sums[k] += (uint32_t)((pixel[source[k]] - zero_point) * weights[channel[k]]);
            }
            pixel += step;
            weights += channels;
        }
    }
}

static void convolve_pixel(const disco_depthwise_conv2d_t *op, const disco_input_t *in, disco_span_t rows,
                           disco_span_t columns, int8_t *out, size_t channels) {
    const disco_requantise_t *const q = &op->requantise;
    for (size_t first = 0; first < channels; first += GROUP) {
        size_t channel[GROUP], source[GROUP];
        uint32_t sums[GROUP] = {0};
        for (size_t k = 0; k < GROUP; k++) {
            /* Beyond the last channel: repeat it, the sum is not used. */
            channel[k] = first + k < channels ? first + k : channels - 1;
            source[k] = op->input_channel ? op->input_channel[channel[k]] : channel[k] / op->depth_multiplier;
        }
        accumulate(op, in, rows, columns, channel, source, channels, sums);
        for (size_t k = 0; k < GROUP && first + k < channels; k++) {
            const size_t c = first + k;
            const int32_t bias = op->bias ? op->bias[c] : 0;
            out[c] = disco_requantise(disco_wrap_add((int32_t)sums[k], bias), q->multiplier[c], q->shift[c],
                                      q->output_zero_point, q->activation_min, q->activation_max);
        }
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
