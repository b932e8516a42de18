/* From the accumulator of an output channel to its int8 value. */
#ifndef DISCO_REQUANTISE_H
#define DISCO_REQUANTISE_H

#include <stddef.h>
#include <stdint.h>

#include "disco/kernels.h"

#include "fixed_point.h"

/* `sum` holds the products, without the bias; `bias` may be NULL. */
static inline int8_t disco_requantise_channel(const disco_requantise_t *requantise, const int32_t *bias, size_t channel,
                                              uint32_t sum) {
    const int32_t accumulator = (int32_t)(sum + (bias ? (uint32_t)bias[channel] : 0u));
    return disco_requantise(accumulator, requantise->multiplier[channel], requantise->shift[channel],
                            requantise->output_zero_point, requantise->activation_min, requantise->activation_max);
}

#endif
