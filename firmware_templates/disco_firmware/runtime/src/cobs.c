/* COBS for frames of one block: exactly one byte is added, and only the places of zeros change. */
#include "disco/cobs.h"

#include <string.h>

size_t disco_cobs_encode(uint8_t *block, size_t length) {
    if (length > DISCO_COBS_MAX_BYTES) {
        return 0;
    }
    uint8_t *const end = block + 1 + length;
    uint8_t *code = block; /* where the distance to the next zero belongs */
    uint8_t *zero = NULL;
    while (code + 1 < end && (zero = memchr(code + 1, 0, (size_t)(end - code - 1))) != NULL) {
        *code = (uint8_t)(zero - code);
        code = zero;
    }
    *code = (uint8_t)(end - code);
    return length + 1;
}

size_t disco_cobs_decode(uint8_t *block, size_t length) {
    if (length == 0 || length > DISCO_COBS_MAX_BYTES + 1) {
        return 0;
    }
    for (size_t at = 0; at < length;) {
        const size_t code = block[at];
        if (code == 0 || code > length - at) {
            return 0;
        }
        block[at] = 0;
        at += code;
    }
    return length;
}
