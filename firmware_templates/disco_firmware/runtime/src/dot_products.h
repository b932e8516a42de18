/* The inner loop of the kernels that mix channels. */
#ifndef DISCO_DOT_PRODUCTS_H
#define DISCO_DOT_PRODUCTS_H

#include <stddef.h>
#include <stdint.h>

/* Output channels that are computed together, so that each input value is loaded once for all of them. */
#define DISCO_DOT_CHANNELS 4

/* For each k: sums[k] += (values[i] - zero_point) * weights[k][i] over i < count. The sums wrap. */
static inline void disco_add_dot_products(const int8_t *values, int32_t zero_point,
                                          const int8_t *const weights[DISCO_DOT_CHANNELS], size_t count,
                                          uint32_t sums[DISCO_DOT_CHANNELS]) {
    const int8_t *w0 = weights[0], *w1 = weights[1], *w2 = weights[2], *w3 = weights[3];
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
