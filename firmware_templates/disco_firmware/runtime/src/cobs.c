/* COBS for frames that fit one block, so that at most one byte is added and both directions can work in place. */
#include "disco/cobs.h"

#include <stdbool.h>

#define MAX_RAW_BYTES 254u

size_t disco_cobs_encode(const uint8_t *raw, size_t length, uint8_t *encoded) {
    if (length > MAX_RAW_BYTES) {
        return 0;
    }
    size_t code_at = 0; /* where the distance to the next zero belongs */
    for (size_t i = 0; i < length; ++i) {
        const uint8_t byte = raw[i];
        encoded[i + 1] = byte;
        if (byte == 0) {
            encoded[code_at] = (uint8_t)(i + 1 - code_at);
            code_at = i + 1;
        }
    }
    encoded[code_at] = (uint8_t)(length + 1 - code_at);
    return length + 1;
}

disco_status_t disco_cobs_decode(const uint8_t *encoded, size_t length, uint8_t *raw, size_t capacity,
                                 size_t *raw_length) {
    size_t written = 0;
    size_t at = 0;
    while (at < length) {
        const size_t code = encoded[at];
        if (code == 0 || code > length - at) {
            return DISCO_ERR_PROTOCOL;
        }
        const size_t next = at + code;
        const bool zero_follows = code != 0xFF && next != length;
        if (code - 1 + (zero_follows ? 1u : 0u) > capacity - written) {
            return DISCO_ERR_PROTOCOL;
        }
        for (++at; at < next; ++at) {
            if (encoded[at] == 0) {
                return DISCO_ERR_PROTOCOL;
            }
            raw[written++] = encoded[at];
        }
        if (zero_follows) {
            raw[written++] = 0;
        }
    }
    if (length == 0) {
        return DISCO_ERR_PROTOCOL;
    }
    *raw_length = written;
    return DISCO_OK;
}
