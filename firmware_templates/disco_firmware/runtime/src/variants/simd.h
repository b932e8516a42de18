/*
 * The instructions of the DSP extension (Armv7E-M, Armv8-M), and what they compute in C where there are none, so that the
 * same kernels run, with sanitizers, on a PC. Names and meaning are those of the Arm C Language Extensions.
 */
#ifndef DISCO_VARIANTS_SIMD_H
#define DISCO_VARIANTS_SIMD_H

#include <stdint.h>
#include <string.h>

/* Variants are inlined into the generated code, whose constant arguments specialise them. */
#define DISCO_VARIANT static inline __attribute__((always_inline))

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

#define disco_smlad(x, y, sum) __smlad((int16x2_t)(x), (int16x2_t)(y), (sum))

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

/* The halves of x plus bytes 0 and 2 (high: 1 and 3) of y, each as int16. */
DISCO_VARIANT uint32_t disco_sxtab16(uint32_t x, uint32_t y) {
    return (uint32_t)__sxtab16((int16x2_t)x, (int8x4_t)y);
}

DISCO_VARIANT uint32_t disco_sxtab16_high(uint32_t x, uint32_t y) {
    uint32_t result;
    __asm__("sxtab16 %0, %1, %2, ror #8" : "=r"(result) : "r"(x), "r"(y));
    return result;
}

/* Sums and differences of the halves, without a carry from one to the other. */
DISCO_VARIANT uint32_t disco_sadd16(uint32_t x, uint32_t y) {
    uint32_t result; /* The intrinsic sets the GE flags, which keeps the compiler from moving it. */
    __asm__("sadd16 %0, %1, %2" : "=r"(result) : "r"(x), "r"(y));
    return result;
}

DISCO_VARIANT uint32_t disco_ssub16(uint32_t x, uint32_t y) {
    uint32_t result;
    __asm__("ssub16 %0, %1, %2" : "=r"(result) : "r"(x), "r"(y));
    return result;
}

/* sum + floor(x * y / 2^32). */
DISCO_VARIANT int32_t disco_smmla(int32_t x, int32_t y, int32_t sum) {
    int32_t result;
    __asm__("smmla %0, %1, %2, %3" : "=r"(result) : "r"(x), "r"(y), "r"(sum));
    return result;
}

/* round(x * y / 2^32), halves up. */
DISCO_VARIANT int32_t disco_smmulr(int32_t x, int32_t y) {
    int32_t result;
    __asm__("smmulr %0, %1, %2" : "=r"(result) : "r"(x), "r"(y));
    return result;
}

DISCO_VARIANT int8_t disco_ssat8(int32_t x) {
    int32_t result;
    __asm__("ssat %0, #8, %1" : "=r"(result) : "r"(x));
    return (int8_t)result;
}

#else

DISCO_VARIANT int32_t disco_smlad(uint32_t x, uint32_t y, int32_t sum) {
    const int32_t low = (int16_t)x * (int16_t)y;
    const int32_t high = (int16_t)(x >> 16) * (int16_t)(y >> 16);
    return (int32_t)((uint32_t)sum + (uint32_t)low + (uint32_t)high);
}

DISCO_VARIANT uint32_t disco_sxtb16(uint32_t x) {
    return (uint16_t)(int8_t)x | (uint32_t)(uint16_t)(int8_t)(x >> 16) << 16;
}

DISCO_VARIANT uint32_t disco_sxtb16_high(uint32_t x) {
    return disco_sxtb16(x >> 8);
}

DISCO_VARIANT uint32_t disco_sadd16(uint32_t x, uint32_t y) {
    return ((x + y) & 0xFFFFu) | ((x & 0xFFFF0000u) + (y & 0xFFFF0000u));
}

DISCO_VARIANT uint32_t disco_ssub16(uint32_t x, uint32_t y) {
    return ((x - y) & 0xFFFFu) | ((x & 0xFFFF0000u) - (y & 0xFFFF0000u));
}

DISCO_VARIANT uint32_t disco_sxtab16(uint32_t x, uint32_t y) {
    return disco_sadd16(x, disco_sxtb16(y));
}

DISCO_VARIANT uint32_t disco_sxtab16_high(uint32_t x, uint32_t y) {
    return disco_sadd16(x, disco_sxtb16_high(y));
}

DISCO_VARIANT int32_t disco_smmla(int32_t x, int32_t y, int32_t sum) {
    return (int32_t)((uint32_t)sum + (uint32_t)(((int64_t)x * y) >> 32));
}

DISCO_VARIANT int32_t disco_smmulr(int32_t x, int32_t y) {
    return (int32_t)(((int64_t)x * y + INT64_C(0x80000000)) >> 32);
}

DISCO_VARIANT int8_t disco_ssat8(int32_t x) {
    return (int8_t)(x < -128 ? -128 : x > 127 ? 127 : x);
}

#endif

#endif
