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
static inline int32_t disco_multiply_high_wide(int32_t a, int32_t b) {
    return (int32_t)(((int64_t)a * b + (INT64_C(1) << 30)) >> 31);
}

/* The same of 16-bit halves, for cores whose products have no upper word: a call of the compiler's 64-bit multiplication takes three times as long. */
static inline int32_t disco_multiply_high_halves(int32_t a, int32_t b) {
    const int32_t a_low = a & 0xFFFF, a_high = a >> 16, b_low = b & 0xFFFF, b_high = b >> 16;
    const int32_t middle = a_high * b_low + (int32_t)(((uint32_t)a_low * (uint32_t)b_low) >> 16);
    const int32_t rest = a_low * b_high + (middle & 0xFFFF); /* of 2^16; what lies below is less than half of 2^31 */
    const int32_t high = a_high * b_high + (middle >> 16) + (rest >> 16);
    const int32_t quarters = (rest >> 14) & 3; /* of 2^32 */
    return (int32_t)((uint32_t)high << 1) + ((quarters + 1) >> 1);
}

static inline int32_t disco_multiply_high(int32_t a, int32_t b) {
#ifdef __ARM_ARCH_6M__
    return disco_multiply_high_halves(a, b);
#else
    return disco_multiply_high_wide(a, b);
#endif
}

/* round(x / 2^exponent), halves away from zero; exponent 0..31, not for x = INT32_MIN. gemmlowp: RoundingDivideByPOT. */
static inline int32_t disco_rounding_shift_right(int32_t x, int32_t exponent) {
    if (exponent == 0) {
        return x;
    }
    const int32_t halves = (x + (x >> 31)) >> (exponent - 1); /* of a negative number's tie the one below */
    return (halves >> 1) + (halves & 1);
}

/* x times the real number multiplier * 2^(shift - 31); shift -31..31. TFLite: MultiplyByQuantizedMultiplier. */
static inline int32_t disco_multiply_by_quantised(int32_t x, int32_t multiplier, int32_t shift) {
    return shift > 0 ? disco_multiply_high(disco_wrap_shift_left(x, shift), multiplier)
                     : disco_rounding_shift_right(disco_multiply_high(x, multiplier), -shift);
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
