/*
 * A reliable, ordered message line over a byte line that may drop, damage, repeat or delay bytes: COBS frames, CRC-32, go-back-N.
 * Not reentrant; all memory is in disco_link_t. Nothing here waits: callers poll.
 *
 * The retransmission timer runs only while the caller polls without computing in between (disco_link_resume restarts it), so that a
 * long computation on either side is not taken for a lost frame.
 */
#ifndef DISCO_LINK_H
#define DISCO_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "disco/protocol.h"
#include "disco/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DISCO_FRAME_MAX_BYTES (DISCO_FRAME_HEADER_BYTES + DISCO_MAX_PAYLOAD + DISCO_FRAME_CRC_BYTES)
#define DISCO_WIRE_MAX_BYTES (DISCO_FRAME_MAX_BYTES + 2) /* COBS code byte and delimiter */

/* One received message, in order, exactly once. `payload` is valid during the call only. A status other than OK ends the poll with it. */
typedef struct disco_link disco_link_t;
typedef disco_status_t (*disco_link_handler_t)(void *context, disco_link_t *link, uint8_t opcode, const uint8_t *payload,
                                               uint16_t length);

typedef struct {
    uint32_t frames_sent;     /* sequenced frames, first transmissions only */
    uint32_t bytes_sent;      /* payload bytes of those frames */
    uint32_t retransmissions; /* sequenced frames sent again */
    uint32_t frames_received; /* sequenced frames accepted in order */
    uint32_t frames_damaged;  /* frames dropped for COBS, CRC, length or address */
} disco_link_stats_t;

typedef struct {
    uint8_t wire[DISCO_WIRE_MAX_BYTES]; /* encoded, ready to write */
    uint16_t wire_length;
} disco_link_slot_t;

struct disco_link {
    uint8_t port_link;   /* which link of the port */
    uint8_t self;        /* own address */
    uint8_t peer;        /* address at the other end */
    uint8_t session;     /* frames of other sessions are dropped; 0: only HELLO is taken */
    disco_link_handler_t handler;
    void *context;
    /* sending */
    disco_link_slot_t slots[DISCO_LINK_WINDOW]; /* frame with sequence s is in slot s % DISCO_LINK_WINDOW */
    uint8_t send_base;      /* oldest unacknowledged sequence */
    uint8_t send_next;      /* sequence of the next new frame */
    uint8_t send_cursor;    /* next sequence to put on the wire (<= send_next; moves back to send_base to retransmit) */
    uint8_t send_highest;   /* sequences before it were on the wire at least once */
    uint16_t cursor_offset; /* bytes of the frame at the cursor already written */
    uint32_t timer_ms;      /* when the retransmission timer was last restarted */
    uint32_t timeout_ms;    /* current retransmission timeout, doubled up to a limit while nothing is acknowledged */
    uint8_t reserved[DISCO_FRAME_MAX_BYTES]; /* frame under construction */
    /* control frame waiting to be written (ACK, NAK, HELLO or WELCOME) */
    uint8_t control[DISCO_WIRE_MAX_BYTES];
    uint16_t control_length;
    uint16_t control_offset;
    bool ack_due; /* an ACK is to be sent when the control slot is free */
    bool nak_due; /* likewise a NAK */
    bool nak_sent; /* one NAK per gap */
    /* receiving */
    uint8_t receive_next; /* sequence expected next */
    uint8_t received[DISCO_WIRE_MAX_BYTES];
    uint16_t received_length;
    bool overflow; /* the current frame is too long: skip to the delimiter */
    disco_link_stats_t stats;
};

/* A fresh link, session 0. `handler` gets every message with `context`. */
void disco_link_init(disco_link_t *link, uint8_t port_link, uint8_t self, uint8_t peer, disco_link_handler_t handler, void *context);

/* Starts a session: all numbering, buffers, timers and statistics start anew. Bytes already read from the port are forgotten. */
void disco_link_reset(disco_link_t *link, uint8_t session, uint32_t now_ms);

/* True when a new sequenced message can be taken. */
bool disco_link_ready(const disco_link_t *link);

/* Where to put the payload (DISCO_MAX_PAYLOAD bytes) of the next sequenced message; only when disco_link_ready. */
uint8_t *disco_link_reserve(disco_link_t *link);

/* Sends the reserved payload. BUSY when not ready; ERR_ARGUMENT when length > DISCO_MAX_PAYLOAD. */
DISCO_MUST_CHECK disco_status_t disco_link_commit(disco_link_t *link, uint8_t opcode, uint16_t length);

/* reserve, copy, commit. */
DISCO_MUST_CHECK disco_status_t disco_link_send(disco_link_t *link, uint8_t opcode, const uint8_t *payload, uint16_t length);

/* Sends an unsequenced message (HELLO, WELCOME) in place of any control frame that waits. */
DISCO_MUST_CHECK disco_status_t disco_link_send_control(disco_link_t *link, uint8_t opcode, const uint8_t *payload, uint16_t length);

/* Reads, delivers, acknowledges, retransmits, writes; never waits. Returns OK, or the status of a handler. */
DISCO_MUST_CHECK disco_status_t disco_link_poll(disco_link_t *link, uint32_t now_ms);

/* True when every sequenced message was acknowledged. */
bool disco_link_idle(const disco_link_t *link);

/* Restarts the retransmission timer; called after a computation, before polling again. */
void disco_link_resume(disco_link_t *link, uint32_t now_ms);

#ifdef __cplusplus
}
#endif

#endif
