/* Addresses of pixels in the views of disco/kernels.h. */
#ifndef DISCO_TENSOR_VIEW_H
#define DISCO_TENSOR_VIEW_H

#include <stddef.h>
#include <stdint.h>

#include "disco/kernels.h"

static inline const int8_t *disco_input_pixel(const disco_input_t *in, size_t y, size_t x) {
    return in->data + (y * in->width + x) * in->stride;
}

static inline int8_t *disco_output_pixel(const disco_output_t *out, size_t y, size_t x) {
    return out->data + (y * out->width + x) * out->stride;
}

#endif
