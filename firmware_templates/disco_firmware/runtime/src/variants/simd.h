/*
 * The instructions of the DSP extension (Armv7E-M, Armv8-M), and what they compute in C where there are none, so that the
 * same kernels run, with sanitizers, on a PC. Names and meaning are those of the Arm C Language Extensions.
 */
#ifndef DISCO_VARIANTS_SIMD_H
#define DISCO_VARIANTS_SIMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Variants are inlined into the generated code, whose constant arguments specialise them. */
#define DISCO_VARIANT static inline __attribute__((always_inline))

/* How often GCC may repeat the body of the loop that follows; by itself it repeats too much, or too little. 1 where the body
 * needs all registers. */
#if defined(__clang__)
#define DISCO_UNROLL(times)
#else
#define DISCO_PRAGMA(text)  _Pragma(#text)
#define DISCO_UNROLL(times) DISCO_PRAGMA(GCC unroll times)
#endif

/* Whether there may be assembly that takes all registers, or constants that the compiler has to propagate: without
 * optimisation GCC keeps r7 for frames and propagates nothing. Elsewhere the same is computed in C. */
#if defined(__ARM_FEATURE_DSP) && defined(__OPTIMIZE__) && !defined(__clang__)
#define DISCO_ASSEMBLY 1
#else
#define DISCO_ASSEMBLY 0
#endif

/* Makes the compiler forget where a value comes from. */
#define DISCO_HIDE(value) __asm__("" : "+r"(value))

/* Four bytes, two int16 or one int32 from any address: LDR on cores that load unaligned words. */
DISCO_VARIANT uint32_t disco_load_word(const void *source) {
    uint32_t word;
    memcpy(&word, source, sizeof word);
    return word;
}

DISCO_VARIANT void disco_store_word(void *target, uint32_t word) {
    memcpy(target, &word, sizeof word);
}

#if defined(__ARM_FEATURE_DSP)
#include <arm_acle.h>

#define disco_smlad(x, y, sum)  __smlad((int16x2_t)(x), (int16x2_t)(y), (sum))
#define disco_smlabt(x, y, sum) __smlabt((int32_t)(x), (int32_t)(y), (sum))
#define disco_smlatb(x, y, sum) __smlatb((int32_t)(x), (int32_t)(y), (sum))
#define disco_smlawb(x, y, sum) __smlawb((x), (int32_t)(y), (sum))
#define disco_smlawt(x, y, sum) __smlawt((x), (int32_t)(y), (sum))

/* Bytes 0 and 2 of x, as two int16. */
DISCO_VARIANT uint32_t disco_sxtb16(uint32_t x) {
    return (uint32_t)__sxtb16((int8x4_t)x);
}

/* Bytes 1 and 3 of x, as two int16. */
DISCO_VARIANT uint32_t disco_sxtb16_high(uint32_t x) {
    uint32_t result;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(result) : "r"(x));
    return result;
}

/* Bytes 0 and 2 of x, as two int16, added to those of `sum`. */
DISCO_VARIANT uint32_t disco_sxtab16(uint32_t sum, uint32_t x) {
    return (uint32_t)__sxtab16((int16x2_t)sum, (int8x4_t)x);
}

/* The same with bytes 1 and 3. */
DISCO_VARIANT uint32_t disco_sxtab16_high(uint32_t sum, uint32_t x) {
    uint32_t result;
    __asm__("sxtab16 %0, %1, %2, ror #8" : "=r"(result) : "r"(sum), "r"(x));
    return result;
}

/* Two words: of each bytes 0 and 2, then 1 and 3, as two int16. Both pointers advance. */
DISCO_VARIANT void disco_sxtb16_two(uint32_t **target, const uint32_t **source) {
    uint32_t first, second, even, odd;
    __asm__ volatile("ldrd %0, %1, [%4], #8\n\t"
                     "sxtb16 %2, %0\n\t"
                     "sxtb16 %3, %0, ror #8\n\t"
                     "strd %2, %3, [%5], #8\n\t"
                     "sxtb16 %2, %1\n\t"
                     "sxtb16 %3, %1, ror #8\n\t"
                     "strd %2, %3, [%5], #8"
                     : "=&r"(first), "=&r"(second), "=&r"(even), "=&r"(odd), "+r"(*source), "+r"(*target)
                     :
                     : "memory");
}

/* Two sums of int16, wrapping. */
DISCO_VARIANT uint32_t disco_sadd16(uint32_t x, uint32_t y) {
    uint32_t result; /* the intrinsic sets the GE flags, which keeps the compiler from moving it */
    __asm__("sadd16 %0, %1, %2" : "=r"(result) : "r"(x), "r"(y));
    return result;
}

/* Two differences of int16, wrapping. */
DISCO_VARIANT uint32_t disco_ssub16(uint32_t x, uint32_t y) {
    uint32_t result;
    __asm__("ssub16 %0, %1, %2" : "=r"(result) : "r"(x), "r"(y));
    return result;
}

/* round(x * y / 2^32), halves up. */
DISCO_VARIANT int32_t disco_smmulr(int32_t x, int32_t y) {
    int32_t result;
    __asm__("smmulr %0, %1, %2" : "=r"(result) : "r"(x), "r"(y));
    return result;
}

/* Left alone, GCC gathers neighbouring bytes into words, which takes more instructions than it saves. */
DISCO_VARIANT void disco_store_byte(int8_t *target, int32_t value) {
    __asm__ volatile("strb %1, %0" : "=m"(*target) : "r"(value));
}

/* Two of an array of constants, and `source` beyond them: one LDRD, which GCC often misses. */
DISCO_VARIANT void disco_load_two(const int32_t **source, int32_t *first, int32_t *second) {
    __asm__("ldrd %0, %1, [%2], #8" : "=&r"(*first), "=&r"(*second), "+r"(*source));
}

/* floor(x * y / 2^32) + sum. */
DISCO_VARIANT int32_t disco_smmla(int32_t x, int32_t y, int32_t sum) {
    int32_t result;
    __asm__("smmla %0, %1, %2, %3" : "=r"(result) : "r"(x), "r"(y), "r"(sum));
    return result;
}

/* The same, and `jump` if x is negative. In one piece, as GCC would compute all sums of several such first. */
DISCO_VARIANT int32_t disco_smmla_jump(int32_t x, int32_t y, int32_t sum, int32_t jump) {
    int32_t result;
    __asm__("and %0, %4, %1, asr #31\n\t"
            "add %0, %0, %3\n\t"
            "smmla %0, %1, %2, %0"
            : "=&r"(result)
            : "r"(x), "r"(y), "r"(sum), "r"(jump));
    return result;
}

/* disco_smmulr(x, y) + sum. */
DISCO_VARIANT int32_t disco_smmlar(int32_t x, int32_t y, int32_t sum) {
    int32_t result;
    __asm__("smmlar %0, %1, %2, %3" : "=r"(result) : "r"(x), "r"(y), "r"(sum));
    return result;
}

/* The low halves of x and y, x below; the high halves of x and y, x below. */
DISCO_VARIANT uint32_t disco_low_halves(uint32_t x, uint32_t y) {
    uint32_t result;
    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(result) : "r"(x), "r"(y));
    return result;
}

DISCO_VARIANT uint32_t disco_high_halves(uint32_t x, uint32_t y) {
    uint32_t result;
    __asm__("pkhtb %0, %1, %2, asr #16" : "=r"(result) : "r"(y), "r"(x));
    return result;
}

/* Two neighbouring words at an address that is a multiple of 4. */
typedef uint64_t __attribute__((may_alias, aligned(4))) disco_pair_t;

DISCO_VARIANT void disco_store_pair(void *target, uint32_t first, uint32_t second) {
    __asm__("strd %1, %2, %0" : "=m"(*(disco_pair_t *)target) : "r"(first), "r"(second));
}

/* Two neighbouring words; `source` goes on by `step` words. */
DISCO_VARIANT void disco_load_pair(const uint32_t **source, size_t step, uint32_t *first, uint32_t *second) {
#if DISCO_ASSEMBLY
    if (__builtin_constant_p(step) && step < 256) {
        __asm__ volatile("ldrd %0, %1, [%2], %3"
                         : "=&r"(*first), "=&r"(*second), "+r"(*source)
                         : "i"(4 * step)
                         : "memory");
        return;
    }
#endif
    *first = (*source)[0];
    *second = (*source)[1];
    *source += step;
}

/* The larger of each of four int8. */
DISCO_VARIANT uint32_t disco_max_s8x4(uint32_t x, uint32_t y) {
    (void)__ssub8((int8x4_t)x, (int8x4_t)y);
    return (uint32_t)__sel((uint8x4_t)x, (uint8x4_t)y);
}

/* The smaller one. */
DISCO_VARIANT uint32_t disco_min_s8x4(uint32_t x, uint32_t y) {
    (void)__ssub8((int8x4_t)x, (int8x4_t)y);
    return (uint32_t)__sel((uint8x4_t)y, (uint8x4_t)x);
}

#define disco_ssat8(x) ((int8_t)__builtin_arm_ssat((x), 8)) /* GCC's __ssat warns of its own conversion */

/* x / 2^shift, rounded down, as the nearest int8: one instruction for a constant shift, 1..31. */
DISCO_VARIANT int32_t disco_ssat8_shifted(int32_t x, int32_t shift) {
    int32_t result;
    if (__builtin_constant_p(shift)) {
        __asm__("ssat %0, #8, %1, asr %2" : "=r"(result) : "r"(x), "i"(shift));
    } else {
        __asm__("ssat %0, #8, %1" : "=r"(result) : "r"(x >> shift));
    }
    return result;
}

#else

DISCO_VARIANT int32_t disco_smlad(uint32_t x, uint32_t y, int32_t sum) {
    const int32_t low = (int16_t)x * (int16_t)y;
    const int32_t high = (int16_t)(x >> 16) * (int16_t)(y >> 16);
    return (int32_t)((uint32_t)sum + (uint32_t)low + (uint32_t)high);
}

DISCO_VARIANT int32_t disco_smlabt(uint32_t x, uint32_t y, int32_t sum) {
    return disco_smlad((uint16_t)x, y >> 16, sum);
}

DISCO_VARIANT int32_t disco_smlatb(uint32_t x, uint32_t y, int32_t sum) {
    return disco_smlad(x >> 16, (uint16_t)y, sum);
}

/* floor(x * the low half of y / 2^16) + sum. */
DISCO_VARIANT int32_t disco_smlawb(int32_t x, uint32_t y, int32_t sum) {
    return (int32_t)(((int64_t)x * (int16_t)y) >> 16) + sum;
}

/* The same with the high half. */
DISCO_VARIANT int32_t disco_smlawt(int32_t x, uint32_t y, int32_t sum) {
    return disco_smlawb(x, y >> 16, sum);
}

DISCO_VARIANT uint32_t disco_sxtb16(uint32_t x) {
    return (uint16_t)(int8_t)x | (uint32_t)(uint16_t)(int8_t)(x >> 16) << 16;
}

DISCO_VARIANT uint32_t disco_sxtb16_high(uint32_t x) {
    return disco_sxtb16(x >> 8);
}

DISCO_VARIANT void disco_sxtb16_two(uint32_t **target, const uint32_t **source) {
    for (int i = 0; i < 2; i++) {
        const uint32_t word = disco_load_word((*source)++);
        *(*target)++ = disco_sxtb16(word);
        *(*target)++ = disco_sxtb16_high(word);
    }
}

DISCO_VARIANT uint32_t disco_sadd16(uint32_t x, uint32_t y) {
    return (uint16_t)(x + y) | ((x & UINT32_C(0xffff0000)) + (y & UINT32_C(0xffff0000)));
}

DISCO_VARIANT uint32_t disco_ssub16(uint32_t x, uint32_t y) {
    return (uint16_t)(x - y) | ((x & UINT32_C(0xffff0000)) - (y & UINT32_C(0xffff0000)));
}

DISCO_VARIANT uint32_t disco_sxtab16(uint32_t sum, uint32_t x) {
    return disco_sadd16(sum, disco_sxtb16(x));
}

DISCO_VARIANT uint32_t disco_sxtab16_high(uint32_t sum, uint32_t x) {
    return disco_sadd16(sum, disco_sxtb16_high(x));
}

DISCO_VARIANT int32_t disco_smmulr(int32_t x, int32_t y) {
    return (int32_t)(((int64_t)x * y + INT64_C(0x80000000)) >> 32);
}

DISCO_VARIANT int32_t disco_smmla(int32_t x, int32_t y, int32_t sum) {
    return (int32_t)(((int64_t)x * y) >> 32) + sum;
}

DISCO_VARIANT int32_t disco_smmla_jump(int32_t x, int32_t y, int32_t sum, int32_t jump) {
    return disco_smmla(x, y, x < 0 ? sum + jump : sum);
}

DISCO_VARIANT int32_t disco_smmlar(int32_t x, int32_t y, int32_t sum) {
    return disco_smmulr(x, y) + sum;
}

DISCO_VARIANT uint32_t disco_low_halves(uint32_t x, uint32_t y) {
    return (uint16_t)x | y << 16;
}

DISCO_VARIANT uint32_t disco_high_halves(uint32_t x, uint32_t y) {
    return x >> 16 | (y & UINT32_C(0xFFFF0000));
}

DISCO_VARIANT void disco_store_pair(void *target, uint32_t first, uint32_t second) {
    disco_store_word(target, first);
    disco_store_word((uint8_t *)target + 4, second);
}

DISCO_VARIANT void disco_load_pair(const uint32_t **source, size_t step, uint32_t *first, uint32_t *second) {
    *first = (*source)[0];
    *second = (*source)[1];
    *source += step;
}

DISCO_VARIANT uint32_t disco_max_s8x4(uint32_t x, uint32_t y) {
    uint32_t result = 0;
    for (int shift = 0; shift < 32; shift += 8) {
        const int8_t a = (int8_t)(x >> shift), b = (int8_t)(y >> shift);
        result |= (uint32_t)(uint8_t)(a > b ? a : b) << shift;
    }
    return result;
}

DISCO_VARIANT uint32_t disco_min_s8x4(uint32_t x, uint32_t y) {
    return ~disco_max_s8x4(~x, ~y);
}

DISCO_VARIANT int8_t disco_ssat8(int32_t x) {
    return (int8_t)(x < -128 ? -128 : x > 127 ? 127 : x);
}

DISCO_VARIANT void disco_store_byte(int8_t *target, int32_t value) {
    *target = (int8_t)value;
}

DISCO_VARIANT void disco_load_two(const int32_t **source, int32_t *first, int32_t *second) {
    *first = *(*source)++;
    *second = *(*source)++;
}

DISCO_VARIANT int32_t disco_ssat8_shifted(int32_t x, int32_t shift) {
    return disco_ssat8(x >> shift);
}

#endif

#endif
