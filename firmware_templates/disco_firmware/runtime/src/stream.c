/*
 * Gather and scatter between dense messages and strided activation buffers: column by column, for pixels have few channels that travel.
 * Channels that lie next to each other make one column.
 */
#include "stream.h"

#include <stddef.h>
#include <string.h>

uint32_t disco_stream_bytes(const disco_tensor_t *tensor, uint16_t count) {
    return (uint32_t)tensor->height * tensor->width * count;
}

/* A part of a stream: the last channels of a pixel, whole pixels, and the first channels of another one. */
typedef struct {
    uint8_t *pixel;   /* the first one */
    uint32_t skipped; /* of its channels */
    uint32_t head;    /* bytes of it */
    uint32_t pixels;  /* whole ones */
    uint32_t tail;    /* bytes of the last one */
} part_t;

static part_t split(const disco_model_t *model, const disco_tensor_t *tensor, uint16_t count, uint32_t offset,
                    uint32_t length) {
    const uint32_t pixel = offset / count, skipped = offset % count;
    part_t part = {.skipped = skipped};
    part.pixel = (uint8_t *)model->arena + tensor->arena_offset + (size_t)pixel * tensor->stride;
    if (skipped > 0) {
        part.head = length < count - skipped ? length : count - skipped;
    }
    part.pixels = (length - part.head) / count;
    part.tail = length - part.head - part.pixels * count;
    return part;
}

/* Loads stand together: cores pipeline them. */
static inline void copy_four(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step, size_t width) {
    uint8_t a[4], b[4], c[4], d[4];
    memcpy(a, from, width);
    memcpy(b, from + from_step, width);
    memcpy(c, from + 2 * from_step, width);
    memcpy(d, from + 3 * from_step, width);
    memcpy(to, a, width);
    memcpy(to + to_step, b, width);
    memcpy(to + 2 * to_step, c, width);
    memcpy(to + 3 * to_step, d, width);
}

/* Copies `width` (at most 4) bytes of each of `pixels` pixels, which lie so far apart on either side. */
static inline void copy_column(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step, size_t width,
                               uint32_t pixels) {
    for (uint32_t i = pixels % 4; i > 0; --i) {
        memcpy(to, from, width);
        to += to_step;
        from += from_step;
    }
    for (uint32_t fours = pixels / 4; fours > 0; --fours) {
        copy_four(to, to_step, from, from_step, width);
        to += 4 * to_step;
        from += 4 * from_step;
    }
}

/* The same of one byte each. */
static inline void copy_bytes(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step, uint32_t pixels) {
    for (uint32_t eights = pixels / 8; eights > 0; --eights) {
        copy_four(to, to_step, from, from_step, 1);
        copy_four(to + 4 * to_step, to_step, from + 4 * from_step, from_step, 1);
        to += 8 * to_step;
        from += 8 * from_step;
    }
    copy_column(to, to_step, from, from_step, 1, pixels % 8);
}

typedef void (*copy_t)(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step, uint32_t pixels);

static void copy_1(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step, uint32_t pixels) {
    copy_column(to, to_step, from, from_step, 1, pixels);
}

static void copy_2(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step, uint32_t pixels) {
    copy_column(to, to_step, from, from_step, 2, pixels);
}

static void copy_4(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step, uint32_t pixels) {
    copy_column(to, to_step, from, from_step, 4, pixels);
}

/* The only channel of a stream. */
static void gather_1(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step, uint32_t pixels) {
    (void)to_step;
    copy_bytes(to, 1, from, from_step, pixels);
}

static void scatter_1(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step, uint32_t pixels) {
    (void)from_step;
    copy_bytes(to, to_step, from, 1, pixels);
}

/* By how many channels lie next to each other, 1 to WIDEST. Of three, two go first. */
static const struct {
    copy_t copy;
    uint32_t width;
} columns[] = {{copy_1, 1}, {copy_1, 1}, {copy_2, 2}, {copy_2, 2}, {copy_4, 4}};

#define WIDEST 4u

static uint32_t position(const uint16_t *channels, uint32_t i) {
    return channels != NULL ? channels[i] : i;
}

/* How many channels from the i-th on lie next to each other, WIDEST at most. */
static uint32_t count_adjacent(const uint16_t *channels, uint32_t i, uint32_t count) {
    const uint32_t most = count - i < WIDEST ? count - i : WIDEST;
    uint32_t adjacent = 1;
    while (adjacent < most && position(channels, i + adjacent) == position(channels, i) + adjacent) {
        ++adjacent;
    }
    return adjacent;
}

/* Of one pixel, `count` channels from the `first` of the stream's on. */
DISCO_APART static void gather_pixel(uint8_t *bytes, const uint8_t *pixel, const uint16_t *channels, uint32_t first,
                                     uint32_t count) {
    for (uint32_t i = first; i < first + count; ++i) {
        *bytes++ = pixel[position(channels, i)];
    }
}

void disco_stream_gather(const disco_model_t *model, const disco_tensor_t *tensor, const uint16_t *channels,
                         uint16_t count, uint32_t offset, uint32_t length, uint8_t *bytes) {
    const part_t part = split(model, tensor, count, offset, length);
    const uint8_t *pixel = part.pixel;
    if (part.head > 0) {
        gather_pixel(bytes, pixel, channels, part.skipped, part.head);
        bytes += part.head;
        pixel += tensor->stride;
    }
    for (uint32_t i = 0; i < count && part.pixels > 0;) {
        const uint32_t adjacent = count_adjacent(channels, i, count);
        const copy_t copy = count == 1 ? gather_1 : columns[adjacent].copy;
        copy(bytes + i, count, pixel + position(channels, i), tensor->stride, part.pixels);
        i += columns[adjacent].width;
    }
    if (part.tail > 0) {
        gather_pixel(bytes + part.pixels * count, pixel + (size_t)part.pixels * tensor->stride, channels, 0, part.tail);
    }
}

void disco_stream_scatter(const disco_model_t *model, const disco_tensor_t *tensor, uint16_t first, uint16_t count,
                          uint32_t offset, uint32_t length, const uint8_t *bytes) {
    const part_t part = split(model, tensor, count, offset, length);
    uint8_t *pixel = part.pixel + first;
    if (part.head > 0) {
        memcpy(pixel + part.skipped, bytes, part.head);
        bytes += part.head;
        pixel += tensor->stride;
    }
    for (uint32_t i = 0; i < count && part.pixels > 0;) {
        const uint32_t adjacent = count_adjacent(NULL, i, count);
        const copy_t copy = count == 1 ? scatter_1 : columns[adjacent].copy;
        copy(pixel + i, tensor->stride, bytes + i, count, part.pixels);
        i += columns[adjacent].width;
    }
    if (part.tail > 0) {
        memcpy(pixel + (size_t)part.pixels * tensor->stride, bytes + part.pixels * count, part.tail);
    }
}
