/*
 * The arithmetic of SOFTMAX in fixed point. A value written Qm.n has m integer and n fraction bits beside its sign: Q0.31
 * holds [-1, 1).
 *
 * The series, the constants and the order of the roundings are those of gemmlowp's fixed-point functions, which
 * TFLite's reference kernel uses; any other order would differ in the last bit.
 */
#ifndef DISCO_SOFTMAX_ARITHMETIC_H
#define DISCO_SOFTMAX_ARITHMETIC_H

#include "disco/kernels.h"
#include "fixed_point.h"

#define DISCO_SOFTMAX_SUM_BITS 12        /* sums of exponentials are Q12.19 */
#define DISCO_SOFTMAX_ONE      INT32_MAX /* 1, saturated */

/* x * 2^exponent, saturated. */
static inline int32_t disco_saturating_shift_left(int32_t x, int32_t exponent) {
    const int32_t limit = (int32_t)((UINT32_C(1) << (31 - exponent)) - 1u);
    return x > limit ? INT32_MAX : x < -limit ? INT32_MIN : disco_wrap_shift_left(x, exponent);
}

/* 31 for 0, so that shifting by it is defined. */
static inline int32_t disco_leading_zeros(uint32_t x) {
    int32_t count = 0;
    for (; count < 31 && (x & UINT32_C(0x80000000)) == 0; x <<= 1) {
        count++;
    }
    return count;
}

/* exp(x) for -1/4 <= x < 0, both Q0.31: the Taylor series to the fourth power around -1/8. */
static inline int32_t disco_exp_near_zero(int32_t x) {
    const int32_t exp_minus_eighth = 1895147668, third = 715827883;
    const int32_t t = x + (1 << 28); /* x + 1/8 */
    const int32_t t2 = disco_multiply_high(t, t);
    const int32_t t3 = disco_multiply_high(t2, t);
    const int32_t t4 = disco_multiply_high(t2, t2);
    const int32_t higher = disco_multiply_high(disco_rounding_shift_right(t4, 2) + t3, third) + t2;
    return exp_minus_eighth + disco_multiply_high(exp_minus_eighth, t + disco_rounding_shift_right(higher, 1));
}

/* exp(x) as Q0.31 for x <= 0 in Q5.26: the series for the part below 1/4, then a factor for each further bit of -x. */
static inline int32_t disco_exp_of_negative(int32_t x) {
    static const int32_t exp_minus_power_of_two[] = {1672461947, /* exp(-1/4) */
                                                     1302514674, 790015084, 290630308,
                                                     39332535,   720401,    242 /* exp(-16) */};
    const int32_t quarter = 1 << 24;
    const int32_t low_part = (x & (quarter - 1)) - quarter; /* -1/4 <= low_part < 0 */
    const int32_t rest = low_part - x;                      /* a multiple of 1/4 */
    int32_t result = disco_exp_near_zero(disco_saturating_shift_left(low_part, 5));
    if (x == 0) {
        return DISCO_SOFTMAX_ONE;
    }
    for (int32_t i = 0; i < 7; i++) {
        if (rest & (1 << (24 + i))) {
            result = disco_multiply_high(result, exp_minus_power_of_two[i]);
        }
    }
    return result;
}

/* 1 / (1 + x) for 0 <= x < 1, both Q0.31: three steps of Newton and Raphson from 48/17 - 32/17 d, d = (1 + x) / 2. */
static inline int32_t disco_reciprocal_of_one_plus(int32_t x) {
    const int32_t one_q2 = 1 << 29, start_q2 = 1515870810, slope_q2 = -1010580540;
    const int32_t half = (int32_t)(((int64_t)x + DISCO_SOFTMAX_ONE + 1) / 2);
    int32_t y = start_q2 + disco_multiply_high(half, slope_q2); /* Q2.29 */
    for (int step = 0; step < 3; step++) {
        const int32_t error = one_q2 - disco_multiply_high(half, y);
        y = disco_wrap_add(y, disco_saturating_shift_left(disco_multiply_high(y, error), 2));
    }
    return disco_saturating_shift_left(y, 1); /* y / 2 as Q0.31 */
}

/* exp of a difference to the largest value, Q0.31. */
static inline int32_t disco_softmax_exp(const disco_softmax_t *op, int32_t difference) {
    return disco_exp_of_negative(disco_multiply_high(disco_wrap_shift_left(difference, op->shift), op->multiplier));
}

/* What the sum of a pixel's exponentials, Q12.19, says of all its shares. */
typedef struct {
    int32_t reciprocal, exponent;
} disco_softmax_total_t;

static inline disco_softmax_total_t disco_softmax_total(int32_t sum) {
    /* sum = (1 + fraction) * 2^(DISCO_SOFTMAX_SUM_BITS - zeros) */
    const int32_t zeros = disco_leading_zeros((uint32_t)sum);
    const int32_t fraction = (int32_t)(((uint32_t)sum << zeros) - UINT32_C(0x80000000));
    const disco_softmax_total_t total = {disco_reciprocal_of_one_plus(fraction),
                                         DISCO_SOFTMAX_SUM_BITS - zeros + 31 - 8};
    return total;
}

/* An exponential as it goes into the sum. */
static inline int32_t disco_softmax_add(int32_t sum, int32_t exponential) {
    return disco_wrap_add(sum, disco_rounding_shift_right(exponential, DISCO_SOFTMAX_SUM_BITS));
}

/* An exponential's share of the sum as int8. */
static inline int8_t disco_softmax_share(disco_softmax_total_t total, int32_t exponential) {
    const int32_t share =
        total.exponent <= 31
            ? disco_rounding_shift_right(disco_multiply_high(total.reciprocal, exponential), total.exponent)
            : 0;
    return (int8_t)disco_clamp(share + INT8_MIN, INT8_MIN, INT8_MAX);
}

#endif
