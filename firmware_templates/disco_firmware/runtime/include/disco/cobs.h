/* Consistent Overhead Byte Stuffing (Cheshire and Baker, 1999) of frames of at most 253 bytes, in place: their bytes stand behind a byte that
 * is left free for the first code. */
#ifndef DISCO_COBS_H
#define DISCO_COBS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DISCO_COBS_MAX_BYTES 253u /* fewer than a block of 254, which would end without a zero */

/* Encodes the `length` bytes at block + 1. Returns the encoded bytes at `block` (no delimiter): length + 1, or 0 when there are too many. */
size_t disco_cobs_encode(uint8_t *block, size_t length);

/* Decodes `length` encoded bytes (none of them zero): what was encoded then stands at block + 1. Returns how many bytes that are and one, or
 * 0 when they cannot be an encoded frame. Never reads or writes beyond block + length, whatever is in it. */
size_t disco_cobs_decode(uint8_t *block, size_t length);

#ifdef __cplusplus
}
#endif

#endif
