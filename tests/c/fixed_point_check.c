/* The product of halves is the 64-bit product's upper part: at the ends of all ranges, and of random numbers of all sizes. */
#include <stdio.h>

#include "fixed_point.h"

static uint32_t state = 1;

static int32_t number(unsigned i) {
    static const int32_t ends[] = {INT32_MIN, INT32_MIN + 1, INT32_MAX, -0x10001, -0x10000, -0x8001, -0x8000, -1, 0,
                                   1,         0x7FFF,        0x8000,    0xFFFF,   0x10000,  1 << 30};
    const unsigned count = sizeof ends / sizeof *ends;
    if (i < count) {
        return ends[i];
    }
    state = state * 1664525u + 1013904223u;
    return (int32_t)state >> (i % 31u);
}

int main(void) {
    for (unsigned i = 0; i < 2000; i++) {
        for (unsigned j = i == 0 ? 1 : 0; j < 500; j++) { /* all but INT32_MIN times itself */
            const int32_t a = number(i), b = number(j);
            if (disco_multiply_high_halves(a, b) != disco_multiply_high_wide(a, b)) {
                printf("%ld times %ld: %ld, not %ld\n", (long)a, (long)b, (long)disco_multiply_high_halves(a, b),
                       (long)disco_multiply_high_wide(a, b));
                return 1;
            }
        }
    }
    return 0;
}
