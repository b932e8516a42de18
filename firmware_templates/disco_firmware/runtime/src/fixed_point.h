/*
 * The integer arithmetic of TFLite's reference kernels (double rounding), without undefined behaviour: where the
 * reference overflows in practice, these functions wrap.
 *
 * Two things are left to the implementation by C99 and are what every supported compiler does: a conversion to int32_t
 * wraps, and >> of a negative number shifts in ones.
 */
#ifndef DISCO_FIXED_POINT_H
#define DISCO_FIXED_POINT_H

#include <stdint.h>

static inline int32_t disco_wrap_add(int32_t a, int32_t b) {
    return (int32_t)((uint32_t)a + (uint32_t)b);
}

/* x * 2^exponent, wrapping; exponent 0..31. */
static inline int32_t disco_wrap_shift_left(int32_t x, int32_t exponent) {
    return (int32_t)((uint32_t)x << exponent);
}

/* round(a * b / 2^31), halves up; not for a = b = INT32_MIN. gemmlowp: SaturatingRoundingDoublingHighMul. */
static inline int32_t disco_multiply_high(int32_t a, int32_t b) {
    return (int32_t)(((int64_t)a * b + (INT64_C(1) << 30)) >> 31);
}

/* round(x / 2^exponent), halves away from zero; exponent 0..31. gemmlowp: RoundingDivideByPOT. */
static inline int32_t disco_rounding_shift_right(int32_t x, int32_t exponent) {
    const uint32_t mask = (UINT32_C(1) << exponent) - 1u;
    const uint32_t remainder = (uint32_t)x & mask;
    const uint32_t threshold = (mask >> 1) + (x < 0 ? 1u : 0u);
    return (x >> exponent) + (remainder > threshold ? 1 : 0);
}

/* x times the real number multiplier * 2^(shift - 31); shift -31..31. TFLite: MultiplyByQuantizedMultiplier. */
static inline int32_t disco_multiply_by_quantised(int32_t x, int32_t multiplier, int32_t shift) {
    const int32_t left = shift > 0 ? shift : 0;
    const int32_t right = shift > 0 ? 0 : -shift;
    return disco_rounding_shift_right(disco_multiply_high(disco_wrap_shift_left(x, left), multiplier), right);
}

static inline int32_t disco_clamp(int32_t x, int32_t low, int32_t high) {
    return x < low ? low : x > high ? high : x;
}

/* An accumulator as int8: scaled, moved to the zero point, clamped to a range within int8. */
static inline int8_t disco_requantise(int32_t accumulator, int32_t multiplier, int32_t shift, int32_t zero_point,
                                      int32_t low, int32_t high) {
    const int32_t scaled = disco_multiply_by_quantised(accumulator, multiplier, shift);
    return (int8_t)disco_clamp(disco_wrap_add(scaled, zero_point), low, high);
}

#endif
