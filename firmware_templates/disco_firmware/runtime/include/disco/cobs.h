/* Consistent Overhead Byte Stuffing (Cheshire and Baker, 1999) of frames of at most 254 bytes. */
#ifndef DISCO_COBS_H
#define DISCO_COBS_H

#include <stddef.h>
#include <stdint.h>

#include "disco/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Encodes `length` <= 254 bytes into `encoded` (length + 1 bytes, no delimiter). Returns the encoded length, 0 when length is too large.
 * `raw` may be `encoded + 1`. */
size_t disco_cobs_encode(const uint8_t *raw, size_t length, uint8_t *encoded);

/* Decodes `length` encoded bytes (no delimiter) into `raw` (capacity bytes; may be `encoded` itself). ERR_PROTOCOL on malformed input. */
DISCO_MUST_CHECK disco_status_t disco_cobs_decode(const uint8_t *encoded, size_t length, uint8_t *raw, size_t capacity,
                                                  size_t *raw_length);

#ifdef __cplusplus
}
#endif

#endif
