/* Gather and scatter on random tensors, channels and parts of streams, byte by byte. Meant for sanitizers: every buffer is a block of its own. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stream.h"

enum { CASES = 20000, MOST_CHANNELS = 12 };

static uint32_t state = 1;

/* From 1 to `most`. */
static uint16_t draw(uint32_t most) {
    state = state * 1664525u + 1013904223u;
    return (uint16_t)(1 + (state >> 8) % most);
}

static uint8_t *random_block(size_t bytes) {
    uint8_t *block = malloc(bytes);
    for (size_t i = 0; block != NULL && i < bytes; ++i) {
        block[i] = (uint8_t)draw(256);
    }
    return block;
}

/* Where in the arena the byte at `at` of a stream lies. */
static size_t place(const disco_tensor_t *tensor, const uint16_t *channels, uint16_t count, uint32_t at) {
    return (size_t)(at / count) * tensor->stride + channels[at % count];
}

static int check(void) {
    const uint16_t stride = draw(MOST_CHANNELS), own = draw(stride), count = draw(own);
    const disco_tensor_t tensor = {.height = draw(5), .width = draw(5), .channels = own, .stride = stride};
    const size_t size = (size_t)tensor.height * tensor.width * stride;
    uint16_t any[MOST_CHANNELS], run[MOST_CHANNELS];
    const uint16_t first = (uint16_t)(draw((uint32_t)stride - count + 1u) - 1u);
    const int leading = draw(3) == 1;
    for (uint16_t i = 0; i < count; ++i) {
        const bool adjacent = i > 0 && any[i - 1] + 1 < own && draw(3) > 1;
        any[i] = leading ? i : adjacent ? (uint16_t)(any[i - 1] + 1u) : (uint16_t)(draw(own) - 1u);
        run[i] = (uint16_t)(first + i);
    }
    const uint32_t total = disco_stream_bytes(&tensor, count);
    const uint32_t offset = (uint32_t)draw(total) - 1u, length = draw(total - offset);
    uint8_t *arena = random_block(size), *wanted = random_block(size), *bytes = random_block(length);
    const disco_model_t model = {.arena = (int8_t *)arena};

    disco_stream_gather(&model, &tensor, leading ? NULL : any, count, offset, length, bytes);
    int right = 1;
    for (uint32_t i = 0; i < length; ++i) {
        right = right && bytes[i] == arena[place(&tensor, any, count, offset + i)];
        bytes[i] = (uint8_t)draw(256);
    }
    memcpy(wanted, arena, size);
    for (uint32_t i = 0; i < length; ++i) {
        wanted[place(&tensor, run, count, offset + i)] = bytes[i];
    }
    disco_stream_scatter(&model, &tensor, first, count, offset, length, bytes);
    right = right && memcmp(arena, wanted, size) == 0;
    free(arena);
    free(wanted);
    free(bytes);
    return right;
}

int main(void) {
    for (int i = 0; i < CASES; ++i) {
        if (!check()) {
            printf("case %d is wrong\n", i);
            return 1;
        }
    }
    return 0;
}
