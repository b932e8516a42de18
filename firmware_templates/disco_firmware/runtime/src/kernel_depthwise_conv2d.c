/* DEPTHWISE_CONV_2D. */
#include "disco/kernels.h"

#include "patch.h"
#include "requantise.h"
#include "tensor_view.h"
#include "window.h"

/* Channels that are computed together, to share the walk over the window. */
#define GROUP 4

/* The sum for the output channel of the first of `weights`, which lie `channels` apart, and the input channel of the first of `values`. */
static uint32_t accumulate_one(const disco_depthwise_conv2d_t *op, const disco_patch_t *patch, const int8_t *values,
                               const int8_t *weights, size_t channels) {
    uint32_t sum = 0;
    size_t row = 0, weight_row = patch->position * channels;
    for (int32_t y = patch->rows; y > 0; y--, row += patch->row_step, weight_row += op->window.kernel_w * channels) {
        size_t value = row, weight = weight_row;
        for (int32_t x = patch->columns; x > 0; x--, value += patch->column_step, weight += channels) {
            sum += (uint32_t)((values[value] - op->input_zero_point) * weights[weight]);
        }
    }
    return sum;
}

/* The same for GROUP neighbouring channels, each of which reads the input channel of its own number. */
static void accumulate_group(const disco_depthwise_conv2d_t *op, const disco_patch_t *patch, const int8_t *values,
                             const int8_t *weights, size_t channels, uint32_t sums[GROUP]) {
    const int32_t zero_point = op->input_zero_point;
    const size_t step = patch->column_step;
    uint32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    size_t row = 0, weight_row = patch->position * channels;
    for (int32_t y = patch->rows; y > 0; y--, row += patch->row_step, weight_row += op->window.kernel_w * channels) {
        size_t value = row, weight = weight_row;
        for (int32_t x = patch->columns; x > 0; x--, value += step, weight += channels) {
            const int8_t *const v = values + value, *const w = weights + weight;
            s0 += (uint32_t)((v[0] - zero_point) * w[0]);
            s1 += (uint32_t)((v[1] - zero_point) * w[1]);
            s2 += (uint32_t)((v[2] - zero_point) * w[2]);
            s3 += (uint32_t)((v[3] - zero_point) * w[3]);
        }
    }
    sums[0] = s0;
    sums[1] = s1;
    sums[2] = s2;
    sums[3] = s3;
}

static void convolve_pixel(const disco_depthwise_conv2d_t *op, const disco_patch_t *patch, int8_t *out,
                           size_t channels) {
    const size_t grouped = op->depth_multiplier == 1 ? channels - channels % GROUP : 0;
    for (size_t c = 0; c < grouped; c += GROUP) {
        uint32_t sums[GROUP];
        accumulate_group(op, patch, patch->values + c, op->weights + c, channels, sums);
        disco_requantise_channels(&op->requantise, op->bias, c, GROUP, sums, out + c);
    }
    for (size_t c = grouped; c < channels; c++) {
        const size_t source = c / op->depth_multiplier;
        const uint32_t sum = accumulate_one(op, patch, patch->values + source, op->weights + c, channels);
        disco_requantise_channels(&op->requantise, op->bias, c, 1, &sum, out + c);
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
            const disco_patch_t patch = disco_patch(w, in, rows, columns);
            convolve_pixel(op, &patch, disco_output_pixel(out, (size_t)y, (size_t)x), out->channels);
        }
    }
}
