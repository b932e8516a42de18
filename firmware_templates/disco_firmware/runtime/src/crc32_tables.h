/* The CRC-32 of every byte, alone and with 1, 2 or 3 zero bytes behind it. Tables of a file of their own have addresses of their own for the
 * compiler, in registers of their own: an instruction less for each byte on Cortex-M. */
#ifndef DISCO_CRC32_TABLES_H
#define DISCO_CRC32_TABLES_H

#include <stdint.h>

extern const uint32_t disco_crc32_last[256], disco_crc32_before_1[256], disco_crc32_before_2[256],
    disco_crc32_before_3[256];

#endif
