/* What the kernels that mix channels share. */
#ifndef DISCO_DOT_PRODUCTS_H
#define DISCO_DOT_PRODUCTS_H

#include <stddef.h>
#include <stdint.h>

/* Output channels that are computed together, so that each input value is loaded once for all of them. */
#define DISCO_DOT_CHANNELS 4

/* The inputs of one output pixel: `rows` rows of `runs` runs of `length` values that neighbour each other. */
typedef struct {
    const int8_t *values;
    int32_t rows, runs;
    size_t length;
    size_t row_step, run_step;
    size_t first_weight; /* of a filter, the first row's; the weights of the runs of a row neighbour each other */
    size_t weight_row_step;
} disco_runs_t;

/* sums[k] = the sum of (value - zero_point) * weight with the weights of filter first + k, wrapping. Beyond the last channel there is no
 * filter: it repeats the last one, and what comes out of it is not used. */
void disco_dot_products(const disco_runs_t *runs, int32_t zero_point, const int8_t *weights, size_t filter_size,
                        size_t first, size_t channels, uint32_t sums[DISCO_DOT_CHANNELS]);

#endif
