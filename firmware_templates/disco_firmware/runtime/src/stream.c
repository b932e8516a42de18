/* Gather and scatter between dense messages and strided activation buffers. */
#include "stream.h"

#include <stdbool.h>
#include <string.h>

#define LONG_RUN 8u /* so many adjacent channels are copied pixel by pixel, fewer channel by channel */

/* A part of a stream: it begins at channel `channel` of the stream's pixel at `pixel`. */
typedef struct {
    size_t pixel; /* in the arena */
    uint32_t channel;
} place_t;

uint32_t disco_stream_bytes(const disco_tensor_t *tensor, uint16_t count) {
    return (uint32_t)tensor->height * tensor->width * count;
}

static place_t place_of(const disco_tensor_t *tensor, uint16_t count, uint32_t offset) {
    const place_t place = {tensor->arena_offset + (size_t)(offset / count) * tensor->stride, offset % count};
    return place;
}

/* Copies `count` bytes that lie so far apart on either side. */
static inline void copy_column(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step, uint32_t count) {
    for (; count >= 4; count -= 4) {
        to[0] = from[0];
        to[to_step] = from[from_step];
        to[2 * to_step] = from[2 * from_step];
        to[3 * to_step] = from[3 * from_step];
        to += 4 * to_step;
        from += 4 * from_step;
    }
    for (; count > 0; --count) {
        *to = *from;
        to += to_step;
        from += from_step;
    }
}

/* Whether the channels lie next to each other in the pixel; NULL: the leading ones. */
static bool are_adjacent(const uint16_t *channels, uint32_t count) {
    uint32_t i = channels != NULL ? 1 : count;
    while (i < count && channels[i] == channels[0] + i) {
        ++i;
    }
    return i == count;
}

/* The bytes of a pixel that come next, when `channel` of its `count` have been copied and `left` are to be. */
static uint32_t run_length(uint32_t count, uint32_t channel, uint32_t left) {
    return count - channel < left ? count - channel : left;
}

static void gather_runs(const uint8_t *pixel, size_t stride, uint32_t count, uint32_t channel, uint32_t length,
                        uint8_t *bytes) {
    while (length > 0) {
        const uint32_t run = run_length(count, channel, length);
        memcpy(bytes, pixel + channel, run);
        bytes += run;
        length -= run;
        pixel += stride;
        channel = 0;
    }
}

static void gather_columns(const uint8_t *pixel, size_t stride, const uint16_t *channels, uint32_t count,
                           uint32_t channel, uint32_t length, uint8_t *bytes) {
    const uint32_t whole = length / count, rest = length % count;
    for (uint32_t i = 0; i < count; ++i) {
        const uint8_t *from = pixel + (channels != NULL ? channels[channel] : channel);
        copy_column(bytes + i, count, from, stride, whole + (i < rest ? 1u : 0u));
        if (++channel == count) {
            channel = 0;
            pixel += stride;
        }
    }
}

void disco_stream_gather(const disco_model_t *model, const disco_tensor_t *tensor, const uint16_t *channels,
                         uint16_t count, uint32_t offset, uint32_t length, uint8_t *bytes) {
    const place_t place = place_of(tensor, count, offset);
    const uint8_t *pixel = (const uint8_t *)model->arena + place.pixel;
    if (count >= LONG_RUN && are_adjacent(channels, count)) {
        const uint32_t first = channels != NULL ? channels[0] : 0;
        gather_runs(pixel + first, tensor->stride, count, place.channel, length, bytes);
    } else {
        gather_columns(pixel, tensor->stride, channels, count, place.channel, length, bytes);
    }
}

static void scatter_runs(uint8_t *pixel, size_t stride, uint32_t count, uint32_t channel, uint32_t length,
                         const uint8_t *bytes) {
    while (length > 0) {
        const uint32_t run = run_length(count, channel, length);
        memcpy(pixel + channel, bytes, run);
        bytes += run;
        length -= run;
        pixel += stride;
        channel = 0;
    }
}

static void scatter_columns(uint8_t *pixel, size_t stride, uint32_t count, uint32_t channel, uint32_t length,
                            const uint8_t *bytes) {
    const uint32_t whole = length / count, rest = length % count;
    for (uint32_t i = 0; i < count; ++i) {
        copy_column(pixel + channel, stride, bytes + i, count, whole + (i < rest ? 1u : 0u));
        if (++channel == count) {
            channel = 0;
            pixel += stride;
        }
    }
}

void disco_stream_scatter(const disco_model_t *model, const disco_tensor_t *tensor, uint16_t first, uint16_t count,
                          uint32_t offset, uint32_t length, const uint8_t *bytes) {
    const place_t place = place_of(tensor, count, offset);
    uint8_t *pixel = (uint8_t *)model->arena + place.pixel + first;
    if (count >= LONG_RUN) {
        scatter_runs(pixel, tensor->stride, count, place.channel, length, bytes);
    } else {
        scatter_columns(pixel, tensor->stride, count, place.channel, length, bytes);
    }
}
