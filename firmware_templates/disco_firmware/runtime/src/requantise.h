/* From the accumulators of output channels to their int8 values. */
#ifndef DISCO_REQUANTISE_H
#define DISCO_REQUANTISE_H

#include <stddef.h>
#include <stdint.h>

#include "disco/kernels.h"

/* out[k] from sums[k], which holds the products without the bias, for the output channels first + k, k < count. `bias` may be NULL. */
void disco_requantise_channels(const disco_requantise_t *requantise, const int32_t *bias, size_t first, size_t count,
                               const uint32_t *sums, int8_t *out);

#endif
