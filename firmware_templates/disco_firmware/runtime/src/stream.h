/*
 * Streams of channels: the bytes [height][width][count] of some channels of a tensor, as they travel in messages. Each function moves
 * the part [offset, offset + length) of such a stream between a message and the activation buffer with its pixel stride.
 */
#ifndef DISCO_STREAM_H
#define DISCO_STREAM_H

#include <stdint.h>

#include "disco/model.h"

/* Bytes of a stream of `count` channels of the tensor. */
uint32_t disco_stream_bytes(const disco_tensor_t *tensor, uint16_t count);

/* Buffer to message: the channels at the positions `channels[0..count)` of each pixel; NULL: the leading ones. */
void disco_stream_gather(const disco_model_t *model, const disco_tensor_t *tensor, const uint16_t *channels,
                         uint16_t count, uint32_t offset, uint32_t length, uint8_t *bytes);

/* Message to buffer: `count` channels from position `first` on. */
void disco_stream_scatter(const disco_model_t *model, const disco_tensor_t *tensor, uint16_t first, uint16_t count,
                          uint32_t offset, uint32_t length, const uint8_t *bytes);

#endif
