/*
 * What the depthwise variants compute from: rows of the input as int16, one line per row and channel, with the padding
 * around them.
 */
#ifndef DISCO_VARIANTS_DEPTHWISE_LINES_H
#define DISCO_VARIANTS_DEPTHWISE_LINES_H

#include <stddef.h>

#include "disco/kernels.h"
#include "tensor_view.h"
#include "variants/simd.h"

/* Channels that are expanded together: the bytes of a word. */
#define DISCO_DEPTHWISE_GROUP 4

typedef struct {
    uint16_t pad_top, pad_left;
    uint16_t stride_h;
    uint16_t extent; /* rows that a window covers */
    uint16_t pitch;  /* int16 in a line, a multiple of 4 */
    int32_t input_zero_point;
} disco_depthwise_lines_t;

/* Words from a line to that of the next channel, and from a row of lines to the next. */
DISCO_VARIANT size_t disco_depthwise_line(const disco_depthwise_lines_t *op) {
    return op->pitch / 2;
}

DISCO_VARIANT size_t disco_depthwise_row(const disco_depthwise_lines_t *op) {
    return DISCO_DEPTHWISE_GROUP * disco_depthwise_line(op);
}

/* Four neighbouring pixels of four channels to the four lines. */
DISCO_VARIANT void disco_depthwise_expand(const uint32_t pixels[4], uint32_t *target, size_t line) {
    const uint32_t left01 = disco_low_halves(pixels[0], pixels[1]), right01 = disco_low_halves(pixels[2], pixels[3]);
    const uint32_t left23 = disco_high_halves(pixels[0], pixels[1]), right23 = disco_high_halves(pixels[2], pixels[3]);
    disco_store_pair(target, disco_sxtb16(left01), disco_sxtb16(right01));
    disco_store_pair(target + line, disco_sxtb16_high(left01), disco_sxtb16_high(right01));
    disco_store_pair(target + 2 * line, disco_sxtb16(left23), disco_sxtb16(right23));
    disco_store_pair(target + 3 * line, disco_sxtb16_high(left23), disco_sxtb16_high(right23));
}

/* The same for pixels x .. x + 3, some of which may lie in the padding. */
DISCO_VARIANT void disco_depthwise_expand_edge(const disco_input_t *in, const int8_t *row, int32_t x, uint32_t padding,
                                               uint32_t *target, size_t line) {
    uint32_t pixels[4];
    for (int32_t i = 0; i < 4; i++) {
        const int inside = x + i >= 0 && x + i < in->width;
        pixels[i] = inside ? disco_load_word(row + (x + i) * in->stride) : padding;
    }
    disco_depthwise_expand(pixels, target, line);
}

/* One input row. */
DISCO_VARIANT void disco_depthwise_expand_row(const disco_depthwise_lines_t *op, const disco_input_t *in,
                                              const int8_t *row, uint32_t padding, uint32_t *target) {
    const size_t line = disco_depthwise_line(op);
    int32_t x = -(int32_t)op->pad_left;
    for (; x < 0; x += 4, target += 2) {
        disco_depthwise_expand_edge(in, row, x, padding, target, line);
    }
    DISCO_UNROLL(1)
    for (const int8_t *pixel = row + x * in->stride; x + 4 <= in->width; x += 4, pixel += 4 * in->stride, target += 2) {
        const uint32_t pixels[4] = {disco_load_word(pixel), disco_load_word(pixel + in->stride),
                                    disco_load_word(pixel + 2 * in->stride), disco_load_word(pixel + 3 * in->stride)};
        disco_depthwise_expand(pixels, target, line);
    }
    for (; x < op->pitch - op->pad_left; x += 4, target += 2) {
        disco_depthwise_expand_edge(in, row, x, padding, target, line);
    }
}

/* The lines of four channels from `channel` on, for the output rows from `y` on. */
DISCO_VARIANT void disco_depthwise_expand_block(const disco_depthwise_lines_t *op, const disco_input_t *in,
                                                size_t channel, int32_t y, int32_t rows, uint32_t *lines) {
    const uint32_t padding = (uint32_t)(uint8_t)op->input_zero_point * UINT32_C(0x01010101);
    int32_t source = y * op->stride_h - op->pad_top;
    DISCO_UNROLL(1)
    for (int32_t left = (rows - 1) * op->stride_h + op->extent; left > 0;
         left--, source++, lines += disco_depthwise_row(op)) {
        if (source >= 0 && source < in->height) {
            disco_depthwise_expand_row(op, in, disco_input_pixel(in, (size_t)source, 0) + channel, padding, lines);
        } else {
            for (size_t i = 0; i < disco_depthwise_row(op); i += 2) {
                disco_store_pair(lines + i, disco_sxtb16(padding), disco_sxtb16(padding));
            }
        }
    }
}

#endif
