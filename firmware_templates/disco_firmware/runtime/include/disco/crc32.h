/* CRC-32 (IEEE 802.3, reflected, polynomial 0xEDB88320), as zlib.crc32. */
#ifndef DISCO_CRC32_H
#define DISCO_CRC32_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* CRC of `bytes`, continued from `crc` (0 to start): disco_crc32(disco_crc32(0, a), b) is the CRC of a followed by b. */
uint32_t disco_crc32(uint32_t crc, const uint8_t *bytes, size_t length);

#ifdef __cplusplus
}
#endif

#endif
