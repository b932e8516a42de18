#include "crc32_tables.h"

/* The CRC of a byte is the sum of its bits' CRCs: those are the arguments, from the lowest bit on. */
#define BIT(byte, bit, crc) ((byte) >> (bit) & 1u ? (crc) : 0u)
#define ENTRY(byte, c0, c1, c2, c3, c4, c5, c6, c7)                                                                    \
    (BIT(byte, 0, c0) ^ BIT(byte, 1, c1) ^ BIT(byte, 2, c2) ^ BIT(byte, 3, c3) ^ BIT(byte, 4, c4) ^ BIT(byte, 5, c5) ^ \
     BIT(byte, 6, c6) ^ BIT(byte, 7, c7))
#define ENTRIES_4(first, ...)                                                                                          \
    ENTRY((first), __VA_ARGS__), ENTRY((first) + 1u, __VA_ARGS__), ENTRY((first) + 2u, __VA_ARGS__),                   \
        ENTRY((first) + 3u, __VA_ARGS__)
#define ENTRIES_16(first, ...)                                                                                         \
    ENTRIES_4((first), __VA_ARGS__), ENTRIES_4((first) + 4u, __VA_ARGS__), ENTRIES_4((first) + 8u, __VA_ARGS__),       \
        ENTRIES_4((first) + 12u, __VA_ARGS__)
#define ENTRIES_64(first, ...)                                                                                         \
    ENTRIES_16((first), __VA_ARGS__), ENTRIES_16((first) + 16u, __VA_ARGS__), ENTRIES_16((first) + 32u, __VA_ARGS__),  \
        ENTRIES_16((first) + 48u, __VA_ARGS__)
#define TABLE(...)                                                                                                     \
    {ENTRIES_64(0u, __VA_ARGS__), ENTRIES_64(64u, __VA_ARGS__), ENTRIES_64(128u, __VA_ARGS__),                         \
     ENTRIES_64(192u, __VA_ARGS__)}

const uint32_t disco_crc32_last[256] =
    TABLE(0x77073096u, 0xEE0E612Cu, 0x076DC419u, 0x0EDB8832u, 0x1DB71064u, 0x3B6E20C8u, 0x76DC4190u, 0xEDB88320u);
const uint32_t disco_crc32_before_1[256] =
    TABLE(0x191B3141u, 0x32366282u, 0x646CC504u, 0xC8D98A08u, 0x4AC21251u, 0x958424A2u, 0xF0794F05u, 0x3B83984Bu);
const uint32_t disco_crc32_before_2[256] =
    TABLE(0x01C26A37u, 0x0384D46Eu, 0x0709A8DCu, 0x0E1351B8u, 0x1C26A370u, 0x384D46E0u, 0x709A8DC0u, 0xE1351B80u);
const uint32_t disco_crc32_before_3[256] =
    TABLE(0xB8BC6765u, 0xAA09C88Bu, 0x8F629757u, 0xC5B428EFu, 0x5019579Fu, 0xA032AF3Eu, 0x9B14583Du, 0xED59B63Bu);
