/* Four bits a step: a table of 64 bytes, for boards with little flash. */
#include "disco/crc32.h"

/* Entry i is the CRC of the nibble i, for the reflected polynomial 0xEDB88320. */
static const uint32_t nibble_table[16] = {
    0x00000000u, 0x1DB71064u, 0x3B6E20C8u, 0x26D930ACu, 0x76DC4190u, 0x6B6B51F4u, 0x4DB26158u, 0x5005713Cu,
    0xEDB88320u, 0xF00F9344u, 0xD6D6A3E8u, 0xCB61B38Cu, 0x9B64C2B0u, 0x86D3D2D4u, 0xA00AE278u, 0xBDBDF21Cu,
};

uint32_t disco_crc32(uint32_t crc, const uint8_t *bytes, size_t length) {
    crc = ~crc;
    for (size_t i = 0; i < length; ++i) {
        crc ^= bytes[i];
        crc = (crc >> 4) ^ nibble_table[crc & 0xFu];
        crc = (crc >> 4) ^ nibble_table[crc & 0xFu];
    }
    return ~crc;
}
