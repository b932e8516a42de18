/*
 * A word a step, from four tables of 1 KB (slicing by four: Kounavis and Berry, 2008). With DISCO_CRC32_SMALL, and on Armv6-M, whose chips have
 * little flash, a byte a step, from one of them.
 */
#include "disco/crc32.h"

#include "bytes.h"
#include "crc32_tables.h"

static inline uint32_t step(uint32_t crc, uint8_t byte) {
    return (crc >> 8) ^ disco_crc32_last[(crc ^ byte) & 0xFFu];
}

static inline uint32_t step_word(uint32_t crc, uint32_t word) {
    word ^= crc;
#if defined(DISCO_CRC32_SMALL) || (defined(__ARM_ARCH) && __ARM_ARCH < 7)
    return step(step(step(step(word, 0), 0), 0), 0);
#else
    return disco_crc32_before_3[word & 0xFFu] ^ disco_crc32_before_2[word >> 8 & 0xFFu] ^
           disco_crc32_before_1[word >> 16 & 0xFFu] ^ disco_crc32_last[word >> 24];
#endif
}

uint32_t disco_crc32(uint32_t crc, const uint8_t *bytes, size_t length) {
    crc = ~crc;
    /* Most cores take longer for words that are not aligned. */
    for (; length > 0 && (uintptr_t)bytes % 4u != 0; --length) {
        crc = step(crc, *bytes++);
    }
    for (; length >= 16; length -= 16) {
        crc = step_word(crc, disco_get_u32(bytes));
        crc = step_word(crc, disco_get_u32(bytes + 4));
        crc = step_word(crc, disco_get_u32(bytes + 8));
        crc = step_word(crc, disco_get_u32(bytes + 12));
        bytes += 16;
    }
    for (; length >= 4; length -= 4) {
        crc = step_word(crc, disco_get_u32(bytes));
        bytes += 4;
    }
    for (; length > 0; --length) {
        crc = step(crc, *bytes++);
    }
    return ~crc;
}
