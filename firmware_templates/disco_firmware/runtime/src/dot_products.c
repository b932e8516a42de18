/* The inner loop of the kernels that mix channels. A file of its own: compiled into a kernel it gets too few registers. */
#include "dot_products.h"

void disco_dot_products(const disco_runs_t *runs, int32_t zero_point, const int8_t *weights, size_t filter_size,
                        size_t first, size_t channels, uint32_t sums[DISCO_DOT_CHANNELS]) {
    const size_t last = channels - 1 - first;
    const int8_t *const filter0 = weights + first * filter_size;
    const int8_t *const filter1 = filter0 + (last < 1 ? 0 : filter_size);
    const int8_t *const filter2 = filter1 + (last < 2 ? 0 : filter_size);
    const int8_t *const filter3 = filter2 + (last < 3 ? 0 : filter_size);
    uint32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    size_t row = 0, weight = runs->first_weight;
    for (int32_t y = runs->rows; y > 0; y--, row += runs->row_step, weight += runs->weight_row_step) {
        const int8_t *w0 = filter0 + weight, *w1 = filter1 + weight, *w2 = filter2 + weight, *w3 = filter3 + weight;
        size_t run = row;
        for (int32_t x = runs->runs; x > 0; x--, run += runs->run_step) {
            const int8_t *in = runs->values + run;
            for (const int8_t *const end = in + runs->length; in != end; in++) {
                const int32_t value = *in - zero_point;
                s0 += (uint32_t)(value * *w0++);
                s1 += (uint32_t)(value * *w1++);
                s2 += (uint32_t)(value * *w2++);
                s3 += (uint32_t)(value * *w3++);
            }
        }
    }
    sums[0] = s0;
    sums[1] = s1;
    sums[2] = s2;
    sums[3] = s3;
}
