/* PAD of height and width. */
#include "disco/kernels.h"

#include <stdbool.h>
#include <string.h>

#include "tensor_view.h"

void disco_pad_s8(const disco_pad_t *op, const disco_input_t *in, const disco_output_t *out, uint16_t row_begin,
                  uint16_t row_end) {
    for (int32_t y = row_begin; y < row_end; y++) {
        const int32_t in_y = y - op->pad_top;
        const bool row_inside = in_y >= 0 && in_y < in->height;
        for (int32_t x = 0; x < out->width; x++) {
            const int32_t in_x = x - op->pad_left;
            int8_t *const result = disco_output_pixel(out, (size_t)y, (size_t)x);
            if (row_inside && in_x >= 0 && in_x < in->width) {
                memcpy(result, disco_input_pixel(in, (size_t)in_y, (size_t)in_x), out->channels);
            } else {
                memset(result, op->value, out->channels);
            }
        }
    }
}
