/* CONV_2D. */
#include "disco/kernels.h"

#include <stdbool.h>

#include "dot_products.h"
#include "patch.h"
#include "requantise.h"
#include "tensor_view.h"
#include "window.h"

static disco_runs_t runs_of(const disco_conv2d_t *op, const disco_input_t *in, const disco_patch_t *patch) {
    const size_t channels = in->channels;
    const bool dense = patch->column_step == channels; /* pixels without gaps between them are one long run */
    const disco_runs_t runs = {.values = patch->values,
                               .rows = patch->columns > 0 ? patch->rows : 0,
                               .runs = dense ? 1 : patch->columns,
                               .length = dense ? (size_t)patch->columns * channels : channels,
                               .row_step = patch->row_step,
                               .run_step = patch->column_step,
                               .first_weight = patch->position * channels,
                               .weight_row_step = op->window.kernel_w * channels};
    return runs;
}

static void convolve_pixel(const disco_conv2d_t *op, const disco_runs_t *runs, size_t filter_size, int8_t *out,
                           size_t channels) {
    for (size_t first = 0; first < channels; first += DISCO_DOT_CHANNELS) {
        uint32_t sums[DISCO_DOT_CHANNELS];
        disco_dot_products(runs, op->input_zero_point, op->weights, filter_size, first, channels, sums);
        const size_t count = channels - first < DISCO_DOT_CHANNELS ? channels - first : DISCO_DOT_CHANNELS;
        disco_requantise_channels(&op->requantise, op->bias, first, count, sums, out + first);
    }
}

void disco_conv2d_s8(const disco_conv2d_t *op, const disco_input_t *in, const disco_output_t *out, uint16_t row_begin,
                     uint16_t row_end) {
    const disco_window_t *const w = &op->window;
    const size_t filter_size = (size_t)w->kernel_h * w->kernel_w * in->channels;
    for (int32_t y = row_begin; y < row_end; y++) {
        const disco_span_t rows = disco_clip_window(y, w->stride_h, w->pad_top, w->kernel_h, w->dilation_h, in->height);
        for (int32_t x = 0; x < out->width; x++) {
            const disco_span_t columns =
                disco_clip_window(x, w->stride_w, w->pad_left, w->kernel_w, w->dilation_w, in->width);
            const disco_patch_t patch = disco_patch(w, in, rows, columns);
            const disco_runs_t runs = runs_of(op, in, &patch);
            convolve_pixel(op, &runs, filter_size, disco_output_pixel(out, (size_t)y, (size_t)x), out->channels);
        }
    }
}
