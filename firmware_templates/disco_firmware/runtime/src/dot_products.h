/* The inner loop of the kernels that mix channels. */
#ifndef DISCO_DOT_PRODUCTS_H
#define DISCO_DOT_PRODUCTS_H

#include <stddef.h>
#include <stdint.h>

/* Output channels that are computed together, so that each input value is loaded once for all of them. */
#define DISCO_DOT_CHANNELS 4

/* The filters of the output channels first .. first + DISCO_DOT_CHANNELS - 1. Beyond the last channel there is none: it
 * repeats the last one, and what comes out of it is not used. */
typedef struct {
    const int8_t *weights[DISCO_DOT_CHANNELS];
} disco_filters_t;

static inline disco_filters_t disco_select_filters(const int8_t *weights, size_t filter_size, size_t first,
                                                   size_t channels) {
    const size_t last = channels - 1 - first;
    const int8_t *const filter = weights + first * filter_size;
    const disco_filters_t filters = {{
        filter,
        filter + (last < 1 ? last : 1) * filter_size,
        filter + (last < 2 ? last : 2) * filter_size,
        filter + (last < 3 ? last : 3) * filter_size,
    }};
    return filters;
}

/* For each filter k: sums[k] += (values[i] - zero_point) * weights[k][offset + i] over i < count. The sums wrap. */
static inline void disco_add_dot_products(const int8_t *values, int32_t zero_point, const disco_filters_t *filters,
                                          size_t offset, size_t count, uint32_t sums[DISCO_DOT_CHANNELS]) {
    const int8_t *w0 = filters->weights[0] + offset, *w1 = filters->weights[1] + offset;
    const int8_t *w2 = filters->weights[2] + offset, *w3 = filters->weights[3] + offset;
    uint32_t s0 = sums[0], s1 = sums[1], s2 = sums[2], s3 = sums[3];
    for (const int8_t *const end = values + count; values != end; values++) {
        const int32_t value = *values - zero_point;
        s0 += (uint32_t)(value * *w0++);
        s1 += (uint32_t)(value * *w1++);
        s2 += (uint32_t)(value * *w2++);
        s3 += (uint32_t)(value * *w3++);
    }
    sums[0] = s0;
    sums[1] = s1;
    sums[2] = s2;
    sums[3] = s3;
}

#endif
