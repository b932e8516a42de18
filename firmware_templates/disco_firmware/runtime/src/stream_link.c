/* Frames with their length in front, over a line that loses nothing. Mirrors stream_link.py. */
#include "disco/link.h"

#include <string.h>

#include "bytes.h"
#include "disco/port.h"

enum { AT_LENGTH = 0, AT_OPCODE = 4, AT_SOURCE, AT_DESTINATION, AT_SESSION };

static uint32_t room(const disco_link_t *link) {
    return (uint32_t)sizeof link->out - (link->out_end - link->out_begin);
}

/* Where the next frame begins: behind what is not written yet, which moves to the front. */
static uint8_t *next_frame(disco_link_t *link) {
    if (link->out_begin > 0) {
        memmove(link->out, link->out + link->out_begin, link->out_end - link->out_begin);
        link->out_end -= link->out_begin;
        link->out_begin = 0;
    }
    return link->out + link->out_end;
}

/* The frame whose payload stands behind all others. */
static void put_frame(disco_link_t *link, uint8_t opcode, uint16_t length) {
    uint8_t *frame = link->out + link->out_end;
    disco_put_u32(frame + AT_LENGTH, length);
    frame[AT_OPCODE] = opcode;
    frame[AT_SOURCE] = link->self;
    frame[AT_DESTINATION] = opcode == DISCO_MSG_HELLO ? (uint8_t)DISCO_ADDRESS_ANY : link->peer;
    frame[AT_SESSION] = link->session;
    link->out_end += (uint32_t)DISCO_STREAM_HEADER_BYTES + length;
}

/* ---- receiving ------------------------------------------------------------------------------------------------------------- */

/* A greeting is taken from whoever sits on the line, so that a wrong connection is reported by the name of the node found there. */
static bool address_fits(const disco_link_t *link, const uint8_t *frame) {
    const uint8_t source = frame[AT_SOURCE];
    const uint8_t destination = frame[AT_DESTINATION];
    switch (frame[AT_OPCODE]) {
    case DISCO_MSG_HELLO:
        return link->peer == DISCO_ADDRESS_HOST && source == DISCO_ADDRESS_HOST &&
               (destination == link->self || destination == DISCO_ADDRESS_ANY);
    case DISCO_MSG_PEER_HELLO:
        return true;
    default:
        return source == link->peer && destination == link->self;
    }
}

static disco_status_t take_frame(disco_link_t *link, const uint8_t *frame, uint16_t length) {
    const uint8_t opcode = frame[AT_OPCODE];
    const bool hello = opcode == DISCO_MSG_HELLO;
    if (!hello && (link->session == 0 || frame[AT_SESSION] != link->session)) {
        return DISCO_OK; /* left over from another session */
    }
    const disco_status_t status = link->handler(link->context, link, opcode, frame + DISCO_STREAM_HEADER_BYTES, length);
    if (status != DISCO_BUSY && !hello) {
        ++link->stats.frames_received;
    }
    return status;
}

static disco_status_t take_frames(disco_link_t *link) {
    while (link->in_end - link->in_begin >= DISCO_STREAM_HEADER_BYTES) {
        const uint8_t *frame = link->in + link->in_begin;
        const uint32_t length = disco_get_u32(frame + AT_LENGTH);
        if (length > DISCO_STREAM_MAX_PAYLOAD || !address_fits(link, frame)) {
            link->broken = true;
            return DISCO_ERR_PROTOCOL;
        }
        if (link->in_end - link->in_begin - DISCO_STREAM_HEADER_BYTES < length) {
            return DISCO_OK;
        }
        const disco_status_t status = take_frame(link, frame, (uint16_t)length);
        if (status == DISCO_BUSY) {
            return DISCO_OK;
        }
        link->in_begin += DISCO_STREAM_HEADER_BYTES + length;
        if (status != DISCO_OK) {
            return status;
        }
    }
    return DISCO_OK;
}

/* Reads once, so that a sender that never ends cannot hold the caller; the rest of a frame always fits. */
static void read_more(disco_link_t *link) {
    link->in_end -= link->in_begin;
    memmove(link->in, link->in + link->in_begin, link->in_end);
    link->in_begin = 0;
    link->in_end += (uint32_t)disco_port_read(link->port_link, link->in + link->in_end, sizeof link->in - link->in_end);
}

disco_status_t disco_link_receive(disco_link_t *link) {
    if (link->broken) {
        return DISCO_ERR_PROTOCOL;
    }
    read_more(link);
    return take_frames(link);
}

/* ---- interface ------------------------------------------------------------------------------------------------------------- */

void disco_link_init(disco_link_t *link, uint8_t port_link, uint8_t self, uint8_t peer, disco_link_handler_t handler,
                     void *context) {
    memset(link, 0, sizeof *link);
    link->port_link = port_link;
    link->self = self;
    link->peer = peer;
    link->handler = handler;
    link->context = context;
}

void disco_link_reset(disco_link_t *link, uint8_t session) {
    link->session = session;
    memset(&link->stats, 0, sizeof link->stats);
}

bool disco_link_ready(const disco_link_t *link) {
    return link->session != 0 &&
           room(link) >= DISCO_STREAM_FRAME_BYTES + DISCO_STREAM_HEADER_BYTES + DISCO_CONTROL_MAX_PAYLOAD;
}

uint8_t *disco_link_reserve(disco_link_t *link) {
    return next_frame(link) + DISCO_STREAM_HEADER_BYTES;
}

disco_status_t disco_link_commit(disco_link_t *link, uint8_t opcode, uint16_t length) {
    if (!disco_link_ready(link)) {
        return DISCO_BUSY;
    }
    put_frame(link, opcode, length);
    ++link->stats.frames_sent;
    link->stats.bytes_sent += length;
    return DISCO_OK;
}

disco_status_t disco_link_send(disco_link_t *link, uint8_t opcode, const uint8_t *payload, uint16_t length) {
    if (!disco_link_ready(link)) {
        return DISCO_BUSY;
    }
    if (length > 0) {
        memcpy(disco_link_reserve(link), payload, length);
    }
    return disco_link_commit(link, opcode, length);
}

disco_status_t disco_link_send_control(disco_link_t *link, uint8_t opcode, const uint8_t *payload, uint16_t length) {
    if (length > DISCO_CONTROL_MAX_PAYLOAD) {
        return DISCO_ERR_ARGUMENT;
    }
    uint8_t *frame = next_frame(link);
    if (room(link) < (uint32_t)DISCO_STREAM_HEADER_BYTES + length) {
        return DISCO_BUSY;
    }
    if (length > 0) {
        memcpy(frame + DISCO_STREAM_HEADER_BYTES, payload, length);
    }
    put_frame(link, opcode, length);
    return DISCO_OK;
}

void disco_link_transmit(disco_link_t *link, uint32_t now_ms) {
    (void)now_ms;
    if (link->out_begin < link->out_end) {
        link->out_begin += (uint32_t)disco_port_write(link->port_link, link->out + link->out_begin,
                                                      (size_t)(link->out_end - link->out_begin));
    }
}

disco_status_t disco_link_poll(disco_link_t *link, uint32_t now_ms) {
    const disco_status_t status = disco_link_receive(link);
    disco_link_transmit(link, now_ms);
    return status;
}

bool disco_link_idle(const disco_link_t *link) {
    return link->out_begin == link->out_end;
}

bool disco_link_eager(const disco_link_t *link) {
    return disco_link_idle(link);
}

void disco_link_resume(disco_link_t *link) {
    (void)link;
}
