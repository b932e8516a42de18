/* Gather and scatter between dense messages and strided activation buffers: channel by channel, for pixels have few that travel. */
#include "stream.h"

#include <stddef.h>

uint32_t disco_stream_bytes(const disco_tensor_t *tensor, uint16_t count) {
    return (uint32_t)tensor->height * tensor->width * count;
}

/* Copies `count` bytes that lie so far apart on either side. */
static inline void copy_column(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step, uint32_t count) {
    size_t in = 0, out = 0;
    for (; count >= 4; count -= 4) {
        to[out] = from[in];
        to[out + to_step] = from[in + from_step];
        to[out + 2 * to_step] = from[in + 2 * from_step];
        to[out + 3 * to_step] = from[in + 3 * from_step];
        out += 4 * to_step;
        in += 4 * from_step;
    }
    for (; count > 0; --count) {
        to[out] = from[in];
        out += to_step;
        in += from_step;
    }
}

/* Where the pixel stands in the arena that holds the byte at `offset` of a stream of `count` channels. */
static size_t pixel_at(const disco_tensor_t *tensor, uint16_t count, uint32_t offset) {
    return tensor->arena_offset + (size_t)(offset / count) * tensor->stride;
}

/* Of `length` bytes of a stream that take turns between `count` channels, how many are of the i-th channel from the first on. */
static uint32_t bytes_of(uint32_t length, uint16_t count, uint16_t i) {
    return length / count + (i < length % count ? 1u : 0u);
}

void disco_stream_gather(const disco_model_t *model, const disco_tensor_t *tensor, const uint16_t *channels,
                         uint16_t count, uint32_t offset, uint32_t length, uint8_t *bytes) {
    const uint8_t *pixel = (const uint8_t *)model->arena + pixel_at(tensor, count, offset);
    uint32_t channel = offset % count;
    for (uint16_t i = 0; i < count && i < length; ++i) {
        const uint8_t *from = pixel + (channels != NULL ? channels[channel] : channel);
        copy_column(bytes + i, count, from, tensor->stride, bytes_of(length, count, i));
        if (++channel == count) {
            channel = 0;
            pixel += tensor->stride;
        }
    }
}

void disco_stream_scatter(const disco_model_t *model, const disco_tensor_t *tensor, uint16_t first, uint16_t count,
                          uint32_t offset, uint32_t length, const uint8_t *bytes) {
    uint8_t *pixel = (uint8_t *)model->arena + pixel_at(tensor, count, offset);
    uint32_t channel = offset % count;
    for (uint16_t i = 0; i < count && i < length; ++i) {
        copy_column(pixel + first + channel, tensor->stride, bytes + i, count, bytes_of(length, count, i));
        if (++channel == count) {
            channel = 0;
            pixel += tensor->stride;
        }
    }
}
