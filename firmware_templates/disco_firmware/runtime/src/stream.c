/* Gather and scatter between dense messages and strided activation buffers. */
#include "stream.h"

uint32_t disco_stream_bytes(const disco_tensor_t *tensor, uint16_t count) {
    return (uint32_t)tensor->height * tensor->width * count;
}

void disco_stream_gather(const disco_model_t *model, const disco_tensor_t *tensor, const uint16_t *channels,
                         uint16_t count, uint32_t offset, uint32_t length, uint8_t *bytes) {
    const int8_t *data = model->arena + tensor->arena_offset;
    uint32_t pixel = offset / count * tensor->stride;
    uint32_t channel = offset % count;
    for (uint32_t i = 0; i < length; ++i) {
        bytes[i] = (uint8_t)data[pixel + (channels != NULL ? channels[channel] : channel)];
        if (++channel == count) {
            channel = 0;
            pixel += tensor->stride;
        }
    }
}

void disco_stream_scatter(const disco_model_t *model, const disco_tensor_t *tensor, uint16_t first, uint16_t count,
                          uint32_t offset, uint32_t length, const uint8_t *bytes) {
    int8_t *data = model->arena + tensor->arena_offset + first;
    uint32_t pixel = offset / count * tensor->stride;
    uint32_t channel = offset % count;
    for (uint32_t i = 0; i < length; ++i) {
        data[pixel + channel] = (int8_t)bytes[i];
        if (++channel == count) {
            channel = 0;
            pixel += tensor->stride;
        }
    }
}
