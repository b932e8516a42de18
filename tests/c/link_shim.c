/* Links over memory for ctypes: the port's lines are buffers that the test fills and empties. */
#include <string.h>

#include "disco/cobs.h"
#include "disco/crc32.h"
#include "disco/link.h"
#include "disco/port.h"

enum { LINKS = 2, LINE_BYTES = 1 << 18, MESSAGES = DISCO_STREAM_LINES ? 64 : 4096 };

typedef struct {
    uint8_t opcode;
    uint16_t length;
    uint8_t payload[DISCO_LINK_MAX_PAYLOAD];
} message_t;

typedef struct {
    disco_link_t link;
    uint8_t in[LINE_BYTES];
    size_t in_length, in_offset;
    uint8_t out[LINE_BYTES];
    size_t out_length;
    size_t out_room; /* bytes that the line takes before it is full */
    message_t messages[MESSAGES];
    size_t message_count;
    disco_status_t answer; /* of the handler */
} end_t;

static end_t ends[LINKS];

/* Prototypes of what the test calls. */
void shim_init(int end, int self, int peer);
void shim_reset(int end, int session);
void shim_answer(int end, int status);
void shim_feed(int end, const uint8_t *bytes, size_t length);
size_t shim_take(int end, uint8_t *bytes, size_t room);
int shim_poll(int end, uint32_t now_ms);
int shim_send(int end, int opcode, const uint8_t *payload, int length);
int shim_send_control(int end, int opcode, const uint8_t *payload, int length);
void shim_resume(int end);
int shim_ready(int end);
int shim_idle(int end);
size_t shim_messages(int end);
int shim_message(int end, size_t index, uint8_t *payload);
const disco_link_stats_t *shim_stats(int end);
size_t shim_link_bytes(void);

size_t disco_port_read(uint8_t link, uint8_t *bytes, size_t capacity) {
    end_t *end = &ends[link];
    const size_t left = end->in_length - end->in_offset;
    const size_t count = left < capacity ? left : capacity;
    memcpy(bytes, end->in + end->in_offset, count);
    end->in_offset += count;
    return count;
}

size_t disco_port_write(uint8_t link, const uint8_t *bytes, size_t length) {
    end_t *end = &ends[link];
    const size_t room = end->out_room - end->out_length;
    const size_t count = length < room ? length : room;
    memcpy(end->out + end->out_length, bytes, count);
    end->out_length += count;
    return count;
}

static disco_status_t take(void *context, disco_link_t *link, uint8_t opcode, const uint8_t *payload, uint16_t length) {
    end_t *end = context;
    if (end->answer == DISCO_BUSY || end->message_count == MESSAGES) {
        return DISCO_BUSY;
    }
    message_t *message = &end->messages[end->message_count++];
    message->opcode = opcode;
    message->length = length;
    memcpy(message->payload, payload, length);
    if (opcode == DISCO_MSG_HELLO && length == 4) {
        disco_link_reset(link, payload[2]);
    }
    return end->answer;
}

void shim_init(int end, int self, int peer) {
    memset(&ends[end], 0, sizeof ends[end]);
    disco_link_init(&ends[end].link, (uint8_t)end, (uint8_t)self, (uint8_t)peer, take, &ends[end]);
}

void shim_reset(int end, int session) {
    disco_link_reset(&ends[end].link, (uint8_t)session);
}

void shim_answer(int end, int status) {
    ends[end].answer = (disco_status_t)status;
}

void shim_feed(int end, const uint8_t *bytes, size_t length) {
    end_t *to = &ends[end];
    memmove(to->in, to->in + to->in_offset, to->in_length - to->in_offset);
    to->in_length -= to->in_offset;
    to->in_offset = 0;
    memcpy(to->in + to->in_length, bytes, length);
    to->in_length += length;
}

/* Takes what was written, and lets the line take `room` bytes until the next call. */
size_t shim_take(int end, uint8_t *bytes, size_t room) {
    const size_t count = ends[end].out_length;
    memcpy(bytes, ends[end].out, count);
    ends[end].out_length = 0;
    ends[end].out_room = room;
    return count;
}

int shim_poll(int end, uint32_t now_ms) {
    return (int)disco_link_poll(&ends[end].link, now_ms);
}

int shim_send(int end, int opcode, const uint8_t *payload, int length) {
    return (int)disco_link_send(&ends[end].link, (uint8_t)opcode, payload, (uint16_t)length);
}

int shim_send_control(int end, int opcode, const uint8_t *payload, int length) {
    return (int)disco_link_send_control(&ends[end].link, (uint8_t)opcode, payload, (uint16_t)length);
}

void shim_resume(int end) {
    disco_link_resume(&ends[end].link);
}

int shim_ready(int end) {
    return disco_link_ready(&ends[end].link);
}

int shim_idle(int end) {
    return disco_link_idle(&ends[end].link);
}

size_t shim_messages(int end) {
    return ends[end].message_count;
}

/* Copies message `index`; returns opcode * 65536 + length. */
int shim_message(int end, size_t index, uint8_t *payload) {
    const message_t *message = &ends[end].messages[index];
    memcpy(payload, message->payload, message->length);
    return message->opcode * 65536 + message->length;
}

const disco_link_stats_t *shim_stats(int end) {
    return &ends[end].link.stats;
}

size_t shim_link_bytes(void) {
    return sizeof(disco_link_t);
}
