/* The part of one window that lies inside the input, as steps of a walk over it. */
#ifndef DISCO_PATCH_H
#define DISCO_PATCH_H

#include <stddef.h>
#include <stdint.h>

#include "disco/kernels.h"

#include "tensor_view.h"
#include "window.h"

typedef struct {
    const int8_t *values; /* its upper left pixel */
    size_t position;      /* of that pixel in the window, row by row */
    int32_t rows, columns;
    size_t row_step, column_step; /* bytes */
} disco_patch_t;

static inline disco_patch_t disco_patch(const disco_window_t *window, const disco_input_t *in, disco_span_t rows,
                                        disco_span_t columns) {
    const size_t row_step = (size_t)in->width * in->stride * window->dilation_h;
    const disco_patch_t patch = {disco_input_pixel(in, (size_t)rows.first, (size_t)columns.first),
                                 (size_t)rows.begin * window->kernel_w + (size_t)columns.begin,
                                 rows.end - rows.begin,
                                 columns.end - columns.begin,
                                 row_step,
                                 (size_t)in->stride * window->dilation_w};
    return patch;
}

#endif
