/* Copies of the op's constants: as far as the compiler knows, a store to the output may change what pointers lead to. */
#include "requantise.h"

#include "fixed_point.h"

void disco_requantise_channels(const disco_requantise_t *requantise, const int32_t *bias, size_t first, size_t count,
                               const uint32_t *sums, int8_t *out) {
    const int32_t *multiplier = requantise->multiplier + first;
    const int8_t *shift = requantise->shift + first;
    const int32_t zero_point = requantise->output_zero_point;
    const int32_t low = requantise->activation_min, high = requantise->activation_max;
    bias = bias ? bias + first : NULL;
    for (const int8_t *const end = out + count; out != end; out++) {
        const uint32_t accumulator = *sums++ + (bias ? (uint32_t)*bias++ : 0u);
        *out = disco_requantise((int32_t)accumulator, *multiplier++, *shift++, zero_point, low, high);
    }
}
