/* The part of a convolution or pooling window that lies inside the input. */
#ifndef DISCO_WINDOW_H
#define DISCO_WINDOW_H

#include <stdint.h>

/* Along one axis: kernel positions begin .. end-1 (none when begin = end) read the inputs first, first + dilation, ...
 * `first` is 0 when there are none, so that an address made of it stays inside the tensor. */
typedef struct {
    int32_t begin, end;
    int32_t first;
} disco_span_t;

/* Clips the window of output coordinate `position` to an axis of `size` inputs. No division: small cores have none. */
static inline disco_span_t disco_clip_window(int32_t position, int32_t stride, int32_t pad, int32_t kernel,
                                             int32_t dilation, int32_t size) {
    const int32_t origin = position * stride - pad;
    disco_span_t span = {0, kernel, 0};
    while (span.begin < span.end && origin + span.begin * dilation < 0) {
        span.begin++;
    }
    while (span.end > span.begin && origin + (span.end - 1) * dilation >= size) {
        span.end--;
    }
    span.first = span.begin < span.end ? origin + span.begin * dilation : 0;
    return span;
}

#endif
