/* COBS for frames of one block: exactly one byte is added, and only the places of zeros change. */
#include "disco/cobs.h"

#include "bytes.h"

/* Encoding: `code` is the place where the distance to the next zero belongs. Each returns that place behind the bytes at `at`. */
static inline uint8_t *encode_byte(uint8_t *code, uint8_t *at) {
    if (*at != 0) {
        return code;
    }
    *code = (uint8_t)(at - code);
    return at;
}

static inline uint8_t *encode_word(uint8_t *code, uint8_t *at) {
    return encode_byte(encode_byte(encode_byte(encode_byte(code, at), at + 1), at + 2), at + 3);
}

/* Bit 7 of a byte is set where the word's byte is zero, or stands above one that is. */
static inline uint32_t mark_zeros(const uint8_t *bytes) {
    const uint32_t word = disco_get_u32(bytes);
    return (word - 0x01010101u) & ~word & 0x80808080u;
}

static inline uint8_t *encode_16(uint8_t *code, uint8_t *at) {
    const uint32_t marks[4] = {mark_zeros(at), mark_zeros(at + 4), mark_zeros(at + 8), mark_zeros(at + 12)};
    if ((marks[0] | marks[1] | marks[2] | marks[3]) == 0) {
        return code;
    }
    for (size_t i = 0; i < 4; ++i) {
        code = marks[i] != 0 ? encode_word(code, at + 4 * i) : code;
    }
    return code;
}

size_t disco_cobs_encode(uint8_t *block, size_t length) {
    if (length > DISCO_COBS_MAX_BYTES) {
        return 0;
    }
    uint8_t *const end = block + 1 + length;
    uint8_t *code = block, *at = block + 1;
    for (; at < end && (uintptr_t)at % 4u != 0; ++at) {
        code = encode_byte(code, at);
    }
    for (; end - at >= 16; at += 16) {
        code = encode_16(code, at);
    }
    for (; end - at >= 4; at += 4) {
        code = mark_zeros(at) != 0 ? encode_word(code, at) : code;
    }
    for (; at < end; ++at) {
        code = encode_byte(code, at);
    }
    *code = (uint8_t)(end - code);
    return length + 1;
}

size_t disco_cobs_decode(uint8_t *block, size_t length) {
    if (length == 0 || length > DISCO_COBS_MAX_BYTES + 1) {
        return 0;
    }
    size_t at = 0;
    while (at < length && block[at] != 0) {
        const size_t code = block[at];
        block[at] = 0;
        at += code;
    }
    return at == length ? length : 0; /* else a code of 0, or one that leads beyond the end */
}
