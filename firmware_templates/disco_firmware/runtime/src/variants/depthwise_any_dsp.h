/*
 * DEPTHWISE_CONV_2D with any window and depth multiplier on cores with the DSP extension: SMLAD over two neighbouring
 * columns of the window. A dilated window is packed as a wider one with weights of 0 between.
 */
#ifndef DISCO_VARIANTS_DEPTHWISE_ANY_DSP_H
#define DISCO_VARIANTS_DEPTHWISE_ANY_DSP_H

#include <stddef.h>

#include "disco/kernels.h"
#include "tensor_view.h"
#include "variants/depthwise_lines.h"
#include "variants/requantise_scaled.h"

typedef struct {
    int32_t bias; /* minus the input zero point times the sum of the weights */
    disco_scaling_t scaling;
} disco_depthwise_any_channel_t;

typedef struct {
    const uint32_t *weights; /* [outputs][kernel_h][pairs], the left one in the low half */
    const disco_depthwise_any_channel_t *channels;
    uint16_t kernel_h, dilation_h;
    uint16_t pairs; /* of columns */
    uint16_t stride_w;
    uint16_t depth_multiplier;
    uint16_t block_rows; /* output rows of a block */
    disco_depthwise_lines_t lines;
    disco_output_scaling_t output;
} disco_depthwise_any_dsp_t;

/* One output whose window begins at `values`. */
DISCO_VARIANT int8_t disco_depthwise_any_one(const disco_depthwise_any_dsp_t *op, const int16_t *values,
                                             const uint32_t *weights, const disco_depthwise_any_channel_t *channel) {
    int32_t sum = channel->bias;
    for (size_t r = 0; r < op->kernel_h; r++, values += op->dilation_h * 2 * disco_depthwise_row(&op->lines)) {
        for (size_t j = 0; j < op->pairs; j++) {
            sum = disco_smlad(disco_load_word(values + 2 * j), *weights++, sum);
        }
    }
    return disco_scale(sum, &channel->scaling, &op->output);
}

/* At least 4 input channels; row_begin a multiple of block_rows, row_end too or the last row. */
DISCO_VARIANT void disco_depthwise_any_dsp(const disco_depthwise_any_dsp_t *op, const disco_input_t *in,
                                           const disco_output_t *out, void *scratch, uint16_t row_begin,
                                           uint16_t row_end) {
    const size_t inputs = out->channels / op->depth_multiplier, group = DISCO_DEPTHWISE_GROUP * op->depth_multiplier;
    const size_t line = 2 * disco_depthwise_line(&op->lines), row = 2 * disco_depthwise_row(&op->lines);
    for (int32_t y = row_begin; y < row_end; y += op->block_rows) {
        const int32_t rows = row_end - y < op->block_rows ? row_end - y : op->block_rows;
        for (size_t next = 0; next < inputs; next += DISCO_DEPTHWISE_GROUP) {
            /* The last group may overlap the one before, so that no byte beyond a pixel is read. */
            const size_t first = next + DISCO_DEPTHWISE_GROUP <= inputs ? next : inputs - DISCO_DEPTHWISE_GROUP;
            disco_depthwise_expand_block(&op->lines, in, first, y, rows, scratch);
            for (size_t k = 0; k < group; k++) {
                const size_t channel = first * op->depth_multiplier + k;
                const int16_t *values = (const int16_t *)scratch + k / op->depth_multiplier * line;
                const uint32_t *const weights = op->weights + channel * op->kernel_h * op->pairs;
                int8_t *result = disco_output_pixel(out, (size_t)y, 0) + channel;
                for (int32_t i = 0; i < rows; i++, values += op->lines.stride_h * row) {
                    for (size_t x = 0; x < out->width; x++, result += out->stride) {
                        *result =
                            disco_depthwise_any_one(op, values + x * op->stride_w, weights, &op->channels[channel]);
                    }
                }
            }
        }
    }
}

#endif
