/*
 * DEPTHWISE_CONV_2D with a window of 3 x 3 and stride 1 or 2 on cores with the DSP extension.
 *
 * Four channels at a time: the input rows that a block of output rows needs go to scratch as int16, one line per row
 * and channel, with the padding around them. Then SMLAD multiplies two horizontal neighbours at once, with a channel's
 * weights in registers for the whole block.
 */
#ifndef DISCO_VARIANTS_DEPTHWISE_DSP_H
#define DISCO_VARIANTS_DEPTHWISE_DSP_H

#include <stddef.h>

#include "disco/kernels.h"
#include "tensor_view.h"
#include "variants/depthwise_lines.h"
#include "variants/requantise_scaled.h"

typedef struct {
    uint32_t weights[3][2]; /* per row (w0, w1), (w1, w2), the left one in the low half */
    int32_t bias;           /* minus the input zero point times the sum of the weights */
    disco_scaling_t scaling;
} disco_depthwise_channel_t;

typedef struct {
    const disco_depthwise_channel_t *channels;
    uint16_t stride;     /* 1 or 2, in both directions */
    uint16_t block_rows; /* output rows of a block */
    disco_depthwise_lines_t lines;
    disco_output_scaling_t output;
} disco_depthwise_3x3_dsp_t;

/* One output. */
DISCO_VARIANT void disco_depthwise_one(const disco_depthwise_3x3_dsp_t *op, const disco_depthwise_channel_t *channel,
                                       const uint32_t *line, int8_t *result) {
    int32_t sum = channel->bias;
    for (size_t r = 0; r < 3; r++, line += disco_depthwise_row(&op->lines)) {
        sum = disco_smlabt(line[1], channel->weights[r][1], disco_smlad(line[0], channel->weights[r][0], sum));
    }
    *result = disco_scale(sum, &channel->scaling, &op->output);
}

/* The output to the right of it with stride 1. */
DISCO_VARIANT void disco_depthwise_odd_one(const disco_depthwise_3x3_dsp_t *op,
                                           const disco_depthwise_channel_t *channel, const uint32_t *line,
                                           int8_t *result) {
    int32_t sum = channel->bias;
    for (size_t r = 0; r < 3; r++, line += disco_depthwise_row(&op->lines)) {
        sum = disco_smlad(line[1], channel->weights[r][1], disco_smlatb(line[0], channel->weights[r][0], sum));
    }
    *result = disco_scale(sum, &channel->scaling, &op->output);
}

/* One row. */
DISCO_VARIANT void disco_depthwise_one_row(const disco_depthwise_3x3_dsp_t *op, const disco_output_t *out,
                                           const disco_depthwise_channel_t *channel, const uint32_t *line,
                                           int8_t *result) {
    for (size_t x = 0; x < out->width; x++, result += out->stride) {
        if (op->stride == 2) {
            disco_depthwise_one(op, channel, line + x, result);
        } else if (x % 2 == 0) {
            disco_depthwise_one(op, channel, line + x / 2, result);
        } else {
            disco_depthwise_odd_one(op, channel, line + x / 2, result);
        }
    }
}

#if DISCO_ASSEMBLY
/* Whether the assembly can be used: sizes known and within reach of immediate operands, and the short
 * requantisation. */
DISCO_VARIANT int disco_depthwise_is_fast(const disco_depthwise_3x3_dsp_t *op, const disco_output_t *out) {
    return __builtin_constant_p(op->lines.pitch + out->width + out->stride + op->output.common_shift) &&
           op->lines.pitch <= 84 && out->width > 1 && 2 * out->width * out->stride <= 4095 &&
           op->output.kind == DISCO_SCALING_COMMON && op->output.activation_min == -128 &&
           op->output.activation_max == 127;
}

/*
 * The same in assembly, with weights and sums in all of the 14 registers: GCC, left alone, moves loads up and spills.
 * %[middle] walks along the middle one of the window's (first) three rows of lines; a and b, for stride 2 also c, hold
 * neighbouring words of one line.
 */
#define DISCO_DEPTHWISE_WEIGHTS                                                                                        \
    "ldrd %[w0], %[w1], [%[w5]]\n\tldrd %[w2], %[w3], [%[w5], #8]\n\tldrd %[w4], %[w5], [%[w5], #16]\n"
#define DISCO_DEPTHWISE_TOP "ldrd %[a], %[b], [%[middle], #-%c[row]]\n\t"
/* With a word too many, in the row below at worst: LDR does not reach as far back as LDRD. */
#define DISCO_DEPTHWISE_TOP_RIGHT "ldrd %[c], %[unused], [%[middle], #8 - %c[row]]\n\t"
#define DISCO_DEPTHWISE_MIDDLE    "ldrd %[a], %[b], [%[middle]], #%c[step]\n\t"
#define DISCO_DEPTHWISE_BOTTOM    "ldrd %[a], %[b], [%[middle], #%c[row] - %c[step]]\n\t"
#define DISCO_DEPTHWISE_BENEATH   "ldrd %[a], %[b], [%[middle], #2 * %c[row] - %c[step]]\n\t"
#define DISCO_DEPTHWISE_SCALINGS  "ldrd %[a], %[b], %[scaling]\n\t"
#define DISCO_DEPTHWISE_BIAS(sum) "ldr %[" sum "], %[bias]\n\t"

/* One output: the word a and half of b times the weights left and right, added to `start`. */
#define DISCO_DEPTHWISE_ADD(sum, start, left, right)                                                                   \
    "smlad %[" sum "], %[a], %[" left "], %[" start "]\n\tsmlabt %[" sum "], %[b], %[" right "], %[" sum "]\n\t"
/* Two neighbouring outputs of stride 1, from one start or from what is there. */
#define DISCO_DEPTHWISE_START_TWO(sum, start, left, right)                                                             \
    "smlad %[" sum "0], %[a], %[" left "], %[" start "]\n\tsmlatb %[" sum "1], %[a], %[" left "], %[" start "]\n\t"    \
    "smlabt %[" sum "0], %[b], %[" right "], %[" sum "0]\n\tsmlad %[" sum "1], %[b], %[" right "], %[" sum "1]\n\t"
#define DISCO_DEPTHWISE_ADD_TWO(sum, left, right)                                                                      \
    "smlad %[" sum "0], %[a], %[" left "], %[" sum "0]\n\tsmlatb %[" sum "1], %[a], %[" left "], %[" sum "1]\n\t"      \
    "smlabt %[" sum "0], %[b], %[" right "], %[" sum "0]\n\tsmlad %[" sum "1], %[b], %[" right "], %[" sum "1]\n\t"
/* The right one of two outputs of stride 2. */
#define DISCO_DEPTHWISE_ADD_RIGHT(left, right)                                                                         \
    "smlad %[u1], %[b], %[" left "], %[u1]\n\tsmlabt %[u1], %[c], %[" right "], %[u1]\n\t"
#define DISCO_DEPTHWISE_STORE(sum, where)                                                                              \
    "smmla %[" sum "], %[" sum "], %[a], %[b]\n\tssat %[" sum "], #8, %[" sum "], asr %[shift]\n\t"                    \
    "strb %[" sum "], [%[result], #" where "]\n\t"
#define DISCO_DEPTHWISE_NEXT_PAIR                                                                                      \
    "ldr %[a], %[end]\n\tadd %[result], %[result], #2 * %c[right]\n\tcmp %[middle], %[a]\n\tbne 0b\n\t"

/* On to the window two rows below and the output `rows` below. */
#define DISCO_DEPTHWISE_NEXT_ROW(rows)                                                                                 \
    "ldr %[b], %[end]\n\tldr %[a], %[last]\n\tadd %[middle], %[middle], #2 * %c[row] - %c[walked]\n\t"                 \
    "add %[result], %[result], #" rows " * %c[below] - %c[written]\n\tcmp %[a], %[b]\n\t"                              \
    "add %[b], %[b], #2 * %c[row]\n\tstr %[b], %[end]\n\tbne 0b"

/* What the assembly reads from the stack: no register is left for it. */
typedef struct {
    int32_t bias;
    const uint32_t *end, *last; /* `middle` after the pairs of this row, of the last row */
    struct {
        int32_t multiplier, offset;
    } scaling;
} disco_depthwise_frame_t;

DISCO_VARIANT disco_depthwise_frame_t disco_depthwise_frame(const disco_depthwise_3x3_dsp_t *op,
                                                            const disco_output_t *out,
                                                            const disco_depthwise_channel_t *channel,
                                                            const uint32_t *middle, int32_t repeats) {
    const uint32_t *const end = middle + out->width / 2 * op->stride;
    const disco_depthwise_frame_t frame = {channel->bias,
                                           end,
                                           end + (size_t)(repeats - 1) * 2 * disco_depthwise_row(&op->lines),
                                           {channel->scaling.multiplier, channel->scaling.offset}};
    return frame;
}

#define DISCO_DEPTHWISE_INPUTS                                                                                         \
    [bias] "m"(frame.bias), [scaling] "m"(frame.scaling), [last] "m"(frame.last),                                      \
        [row] "i"(sizeof(uint32_t) * disco_depthwise_row(&op->lines)), [step] "i"(sizeof(uint32_t) * op->stride),      \
        [shift] "i"(op->output.common_shift), [right] "i"(out->stride), [below] "i"(out->width * out->stride),         \
        [odd] "i"(out->width % 2), [walked] "i"((out->width + 1) / 2 * op->stride * 4),                                \
        [written] "i"(out->width / 2 * 2 * out->stride)

/* clang-format off */
/* `repeats` times two rows with stride 1: outputs u0, u1 above l0, l1. */
DISCO_VARIANT void disco_depthwise_two_rows_fast(const disco_depthwise_3x3_dsp_t *op, const disco_output_t *out,
                                                 const disco_depthwise_channel_t *channel, const uint32_t *line,
                                                 int8_t *result, int32_t repeats) {
    const uint32_t *middle = line + disco_depthwise_row(&op->lines), *weights = &channel->weights[0][0];
    disco_depthwise_frame_t frame = disco_depthwise_frame(op, out, channel, middle, repeats);
    uint32_t a, b, w0, w1, w2, w3, w4;
    int32_t u0, u1, l0, l1;
    __asm__ volatile(
        DISCO_DEPTHWISE_WEIGHTS
        "0:\n\t"
        DISCO_DEPTHWISE_BIAS("l1")
        DISCO_DEPTHWISE_TOP DISCO_DEPTHWISE_START_TWO("u", "l1", "w0", "w1")
        DISCO_DEPTHWISE_MIDDLE DISCO_DEPTHWISE_ADD_TWO("u", "w2", "w3") DISCO_DEPTHWISE_START_TWO("l", "l1", "w0", "w1")
        DISCO_DEPTHWISE_BOTTOM DISCO_DEPTHWISE_ADD_TWO("u", "w4", "w5") DISCO_DEPTHWISE_ADD_TWO("l", "w2", "w3")
        DISCO_DEPTHWISE_BENEATH DISCO_DEPTHWISE_ADD_TWO("l", "w4", "w5")
        DISCO_DEPTHWISE_SCALINGS
        DISCO_DEPTHWISE_STORE("u0", "0") DISCO_DEPTHWISE_STORE("u1", "%c[right]")
        DISCO_DEPTHWISE_STORE("l0", "%c[below]") DISCO_DEPTHWISE_STORE("l1", "%c[below] + %c[right]")
        DISCO_DEPTHWISE_NEXT_PAIR
        ".if %c[odd]\n\t"
        DISCO_DEPTHWISE_BIAS("l0")
        DISCO_DEPTHWISE_TOP DISCO_DEPTHWISE_ADD("u0", "l0", "w0", "w1")
        DISCO_DEPTHWISE_MIDDLE DISCO_DEPTHWISE_ADD("u0", "u0", "w2", "w3") DISCO_DEPTHWISE_ADD("l0", "l0", "w0", "w1")
        DISCO_DEPTHWISE_BOTTOM DISCO_DEPTHWISE_ADD("u0", "u0", "w4", "w5") DISCO_DEPTHWISE_ADD("l0", "l0", "w2", "w3")
        DISCO_DEPTHWISE_BENEATH DISCO_DEPTHWISE_ADD("l0", "l0", "w4", "w5")
        DISCO_DEPTHWISE_SCALINGS DISCO_DEPTHWISE_STORE("u0", "0") DISCO_DEPTHWISE_STORE("l0", "%c[below]")
        ".endif\n\t"
        DISCO_DEPTHWISE_NEXT_ROW("2")
        : [end] "+m"(frame.end), [middle] "+&r"(middle), [result] "+&r"(result), [w5] "+&r"(weights), [w0] "=&r"(w0),
          [w1] "=&r"(w1), [w2] "=&r"(w2), [w3] "=&r"(w3), [w4] "=&r"(w4), [a] "=&r"(a), [b] "=&r"(b),
          [u0] "=&r"(u0), [u1] "=&r"(u1),
          [l0] "=&r"(l0), [l1] "=&r"(l1)
        : DISCO_DEPTHWISE_INPUTS
        : "cc", "memory");
}

/* One row with stride 1. */
DISCO_VARIANT void disco_depthwise_one_row_fast(const disco_depthwise_3x3_dsp_t *op, const disco_output_t *out,
                                                const disco_depthwise_channel_t *channel, const uint32_t *line,
                                                int8_t *result) {
    const uint32_t *middle = line + disco_depthwise_row(&op->lines), *weights = &channel->weights[0][0];
    disco_depthwise_frame_t frame = disco_depthwise_frame(op, out, channel, middle, 1);
    uint32_t a, b, w0, w1, w2, w3, w4;
    int32_t u0, u1, start;
    __asm__ volatile(
        DISCO_DEPTHWISE_WEIGHTS
        DISCO_DEPTHWISE_BIAS("start")
        "0:\n\t"
        DISCO_DEPTHWISE_TOP DISCO_DEPTHWISE_START_TWO("u", "start", "w0", "w1")
        DISCO_DEPTHWISE_MIDDLE DISCO_DEPTHWISE_ADD_TWO("u", "w2", "w3")
        DISCO_DEPTHWISE_BOTTOM DISCO_DEPTHWISE_ADD_TWO("u", "w4", "w5")
        DISCO_DEPTHWISE_SCALINGS DISCO_DEPTHWISE_STORE("u0", "0") DISCO_DEPTHWISE_STORE("u1", "%c[right]")
        DISCO_DEPTHWISE_NEXT_PAIR
        ".if %c[odd]\n\t"
        DISCO_DEPTHWISE_TOP DISCO_DEPTHWISE_ADD("u0", "start", "w0", "w1")
        DISCO_DEPTHWISE_MIDDLE DISCO_DEPTHWISE_ADD("u0", "u0", "w2", "w3")
        DISCO_DEPTHWISE_BOTTOM DISCO_DEPTHWISE_ADD("u0", "u0", "w4", "w5")
        DISCO_DEPTHWISE_SCALINGS DISCO_DEPTHWISE_STORE("u0", "0")
        ".endif"
        : [end] "+m"(frame.end), [middle] "+&r"(middle), [result] "+&r"(result), [w5] "+&r"(weights), [w0] "=&r"(w0),
          [w1] "=&r"(w1), [w2] "=&r"(w2), [w3] "=&r"(w3), [w4] "=&r"(w4), [a] "=&r"(a), [b] "=&r"(b),
          [u0] "=&r"(u0), [u1] "=&r"(u1),
          [start] "=&r"(start)
        : DISCO_DEPTHWISE_INPUTS
        : "cc", "memory");
}

/* `repeats` rows with stride 2. */
DISCO_VARIANT void disco_depthwise_strided_rows_fast(const disco_depthwise_3x3_dsp_t *op, const disco_output_t *out,
                                                    const disco_depthwise_channel_t *channel, const uint32_t *line,
                                                    int8_t *result, int32_t repeats) {
    const uint32_t *middle = line + disco_depthwise_row(&op->lines), *weights = &channel->weights[0][0];
    disco_depthwise_frame_t frame = disco_depthwise_frame(op, out, channel, middle, repeats);
    uint32_t a, b, c, unused, w0, w1, w2, w3, w4;
    int32_t u0, u1;
    __asm__ volatile(
        DISCO_DEPTHWISE_WEIGHTS
        "0:\n\t"
        DISCO_DEPTHWISE_BIAS("u1")
        DISCO_DEPTHWISE_TOP DISCO_DEPTHWISE_TOP_RIGHT DISCO_DEPTHWISE_ADD("u0", "u1", "w0", "w1")
        DISCO_DEPTHWISE_ADD_RIGHT("w0", "w1")
        "ldr %[c], [%[middle], #8]\n\t" DISCO_DEPTHWISE_MIDDLE DISCO_DEPTHWISE_ADD("u0", "u0", "w2", "w3")
        DISCO_DEPTHWISE_ADD_RIGHT("w2", "w3")
        DISCO_DEPTHWISE_BOTTOM "ldr %[c], [%[middle], #%c[row]]\n\t" DISCO_DEPTHWISE_ADD("u0", "u0", "w4", "w5")
        DISCO_DEPTHWISE_ADD_RIGHT("w4", "w5")
        DISCO_DEPTHWISE_SCALINGS DISCO_DEPTHWISE_STORE("u0", "0") DISCO_DEPTHWISE_STORE("u1", "%c[right]")
        DISCO_DEPTHWISE_NEXT_PAIR
        ".if %c[odd]\n\t"
        DISCO_DEPTHWISE_BIAS("u0")
        DISCO_DEPTHWISE_TOP DISCO_DEPTHWISE_ADD("u0", "u0", "w0", "w1")
        DISCO_DEPTHWISE_MIDDLE DISCO_DEPTHWISE_ADD("u0", "u0", "w2", "w3")
        DISCO_DEPTHWISE_BOTTOM DISCO_DEPTHWISE_ADD("u0", "u0", "w4", "w5")
        DISCO_DEPTHWISE_SCALINGS DISCO_DEPTHWISE_STORE("u0", "0")
        ".endif\n\t"
        DISCO_DEPTHWISE_NEXT_ROW("1")
        : [end] "+m"(frame.end), [middle] "+&r"(middle), [result] "+&r"(result), [w5] "+&r"(weights), [w0] "=&r"(w0),
          [w1] "=&r"(w1), [w2] "=&r"(w2), [w3] "=&r"(w3), [w4] "=&r"(w4), [a] "=&r"(a), [b] "=&r"(b), [c] "=&r"(c),
          [unused] "=&r"(unused), [u0] "=&r"(u0),
          [u1] "=&r"(u1)
        : DISCO_DEPTHWISE_INPUTS
        : "cc", "memory");
}
/* clang-format on */
#endif

/* All of one channel's outputs in a block. */
DISCO_VARIANT void disco_depthwise_channel(const disco_depthwise_3x3_dsp_t *op, const disco_output_t *out,
                                           const disco_depthwise_channel_t *channel, const uint32_t *line,
                                           int8_t *result, int32_t rows) {
    const size_t below = (size_t)out->width * out->stride;
#if DISCO_ASSEMBLY
    if (disco_depthwise_is_fast(op, out)) {
        if (op->stride == 2) {
            disco_depthwise_strided_rows_fast(op, out, channel, line, result, rows);
            return;
        }
        if (rows > 1) {
            disco_depthwise_two_rows_fast(op, out, channel, line, result, rows / 2);
        }
        if (rows % 2 != 0) {
            const size_t above = (size_t)rows - 1;
            disco_depthwise_one_row_fast(op, out, channel, line + above * disco_depthwise_row(&op->lines),
                                         result + above * below);
        }
        return;
    }
#endif
    for (; rows > 0; rows--, line += op->stride * disco_depthwise_row(&op->lines), result += below) {
        disco_depthwise_one_row(op, out, channel, line, result);
    }
}

/* At least 4 channels; row_begin a multiple of block_rows, row_end too or the last row. */
DISCO_VARIANT void disco_depthwise_3x3_dsp(const disco_depthwise_3x3_dsp_t *op, const disco_input_t *in,
                                           const disco_output_t *out, void *scratch, uint16_t row_begin,
                                           uint16_t row_end) {
    uint32_t *const lines = scratch;
    for (int32_t y = row_begin; y < row_end; y += op->block_rows) {
        const int32_t rows = row_end - y < op->block_rows ? row_end - y : op->block_rows;
        for (size_t next = 0; next < out->channels; next += DISCO_DEPTHWISE_GROUP) {
            /* The last group may overlap the one before: its channels are computed again, no byte beyond a pixel
             * read. */
            const size_t last = (size_t)out->channels - DISCO_DEPTHWISE_GROUP;
            const size_t first = next < last ? next : last;
            disco_depthwise_expand_block(&op->lines, in, first, y, rows, lines);
            DISCO_UNROLL(1)
            for (size_t k = 0; k < DISCO_DEPTHWISE_GROUP; k++) {
                int8_t *const result = disco_output_pixel(out, (size_t)y, 0) + first + k;
                disco_depthwise_channel(op, out, &op->channels[first + k], lines + k * disco_depthwise_line(&op->lines),
                                        result, rows);
            }
        }
    }
}

#endif
