/* AVERAGE_POOL_2D and MAX_POOL_2D. */
#include "disco/kernels.h"

#include "fixed_point.h"
#include "tensor_view.h"
#include "window.h"

/* The part of one window that lies inside the input. */
typedef struct {
    const int8_t *first; /* its upper left pixel */
    int32_t height, width;
} patch_t;

typedef int8_t (*pool_channel_t)(const disco_pool2d_t *op, const disco_input_t *in, const patch_t *patch,
                                 size_t channel);

static int8_t average_channel(const disco_pool2d_t *op, const disco_input_t *in, const patch_t *patch, size_t channel) {
    const int32_t count = patch->height * patch->width;
    int32_t sum = 0;
    for (int32_t y = 0; y < patch->height; y++) {
        const int8_t *value = patch->first + (size_t)y * in->width * in->stride + channel;
        for (int32_t x = 0; x < patch->width; x++, value += in->stride) {
            sum += *value;
        }
    }
    /* The mean, halves away from zero. */
    const int32_t mean = sum > 0 ? (sum + count / 2) / count : (sum - count / 2) / count;
    return (int8_t)disco_clamp(mean, op->activation_min, op->activation_max);
}

static int8_t max_channel(const disco_pool2d_t *op, const disco_input_t *in, const patch_t *patch, size_t channel) {
    int32_t largest = INT8_MIN;
    for (int32_t y = 0; y < patch->height; y++) {
        const int8_t *value = patch->first + (size_t)y * in->width * in->stride + channel;
        for (int32_t x = 0; x < patch->width; x++, value += in->stride) {
            largest = *value > largest ? *value : largest;
        }
    }
    return (int8_t)disco_clamp(largest, op->activation_min, op->activation_max);
}

static void pool(pool_channel_t pool_channel, const disco_pool2d_t *op, const disco_input_t *in,
                 const disco_output_t *out, uint16_t row_begin, uint16_t row_end) {
    const disco_window_t *const w = &op->window;
    for (int32_t y = row_begin; y < row_end; y++) {
        const disco_span_t rows = disco_clip_window(y, w->stride_h, w->pad_top, w->kernel_h, 1, in->height);
        for (int32_t x = 0; x < out->width; x++) {
            const disco_span_t columns = disco_clip_window(x, w->stride_w, w->pad_left, w->kernel_w, 1, in->width);
            const patch_t patch = {disco_input_pixel(in, (size_t)rows.first, (size_t)columns.first),
                                   rows.end - rows.begin, columns.end - columns.begin};
            int8_t *const result = disco_output_pixel(out, (size_t)y, (size_t)x);
            for (size_t c = 0; c < out->channels; c++) {
                result[c] = pool_channel(op, in, &patch, c);
            }
        }
    }
}

void disco_average_pool2d_s8(const disco_pool2d_t *op, const disco_input_t *in, const disco_output_t *out,
                             uint16_t row_begin, uint16_t row_end) {
    pool(average_channel, op, in, out, row_begin, row_end);
}

void disco_max_pool2d_s8(const disco_pool2d_t *op, const disco_input_t *in, const disco_output_t *out,
                         uint16_t row_begin, uint16_t row_end) {
    pool(max_channel, op, in, out, row_begin, row_end);
}
