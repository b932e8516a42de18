/* Little-endian numbers in messages, whatever the alignment and the core. */
#ifndef DISCO_BYTES_H
#define DISCO_BYTES_H

#include <stdint.h>

static inline void disco_put_u16(uint8_t *at, uint16_t value) {
    at[0] = (uint8_t)(value & 0xFFu);
    at[1] = (uint8_t)(value >> 8);
}

static inline void disco_put_u32(uint8_t *at, uint32_t value) {
    disco_put_u16(at, (uint16_t)(value & 0xFFFFu));
    disco_put_u16(at + 2, (uint16_t)(value >> 16));
}

static inline void disco_put_u64(uint8_t *at, uint64_t value) {
    disco_put_u32(at, (uint32_t)(value & 0xFFFFFFFFu));
    disco_put_u32(at + 4, (uint32_t)(value >> 32));
}

static inline uint16_t disco_get_u16(const uint8_t *at) {
    return (uint16_t)(at[0] | (unsigned)at[1] << 8);
}

static inline uint32_t disco_get_u32(const uint8_t *at) {
    return disco_get_u16(at) | (uint32_t)disco_get_u16(at + 2) << 16;
}

#endif
