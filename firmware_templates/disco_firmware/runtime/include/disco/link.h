/*
 * A reliable, ordered message line. Not reentrant: a handler may reserve, commit, send and reset, but must not poll the link that
 * called it. All memory is in disco_link_t. Nothing here waits: callers poll. Two implementations, of which a build has one:
 *
 * stream_link.c (DISCO_STREAM_LINES), over a byte line that loses nothing: frames with their length in front.
 *
 * link.c, over a byte line that may drop, damage, repeat or delay bytes: COBS frames, CRC-32, go-back-N.
 *
 * Receiving. Frames in order are delivered at once; the next frame that leaves acknowledges all of them, or an ACK when there is none.
 * A damaged frame or a gap is answered by one NAK; a second one follows only when the sender was seen to start over and the
 * expected frame is missing again.
 *
 * Sending. At most DISCO_LINK_WINDOW frames are under way. A NAK makes the sender go back at once; without any answer it goes back
 * after DISCO_LINK_TIMEOUT_FIRST_MS, doubled up to DISCO_LINK_TIMEOUT_LAST_MS until something is acknowledged. That timer runs only
 * while everything is written and the caller polls without computing in between (disco_link_resume restarts it), so that neither a
 * full line nor a long computation is taken for a lost frame.
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

#ifndef DISCO_STREAM_LINES
#define DISCO_STREAM_LINES 0
#endif

#define DISCO_LINK_MAX_PAYLOAD    (DISCO_STREAM_LINES ? DISCO_STREAM_MAX_PAYLOAD : DISCO_MAX_PAYLOAD)
#define DISCO_CONTROL_MAX_PAYLOAD 96 /* of an unsequenced message: WELCOME is the longest */

typedef struct disco_link disco_link_t;

/*
 * One received message, in order, exactly once. `payload` is valid during the call only.
 * Returns OK: taken. BUSY: not now; the frame is not acknowledged, no NAK is sent for it or for what follows it, and the sender's
 * timer brings it back (on a stream, the next disco_link_receive). Anything else: taken, and disco_link_poll ends with that status.
 */
typedef disco_status_t (*disco_link_handler_t)(void *context, disco_link_t *link, uint8_t opcode,
                                               const uint8_t *payload, uint16_t length);

typedef struct {
    uint32_t frames_sent;     /* sequenced frames, first transmissions only */
    uint32_t bytes_sent;      /* payload bytes of those frames */
    uint32_t retransmissions; /* sequenced frames sent again */
    uint32_t frames_received; /* sequenced frames accepted in order */
    uint32_t frames_damaged;  /* frames dropped for COBS, CRC, length or address */
} disco_link_stats_t;

#if DISCO_STREAM_LINES

#define DISCO_STREAM_HEADER_BYTES 8
#define DISCO_STREAM_FRAME_BYTES  (DISCO_STREAM_HEADER_BYTES + DISCO_STREAM_MAX_PAYLOAD)

struct disco_link {
    uint8_t port_link; /* which link of the port */
    uint8_t self;      /* own address */
    uint8_t peer;      /* address at the other end */
    uint8_t session;   /* frames of other sessions are dropped; 0: only HELLO is taken */
    bool broken;       /* what came is no frame: nothing after it can be understood */
    disco_link_handler_t handler;
    void *context;
    disco_link_stats_t stats;

    uint32_t out_begin; /* of `out`: the first byte that is not written yet */
    uint32_t out_end;
    uint32_t in_begin; /* of `in`: the first byte that is not delivered yet */
    uint32_t in_end;
    uint8_t out[2 * DISCO_STREAM_FRAME_BYTES + DISCO_STREAM_HEADER_BYTES + DISCO_CONTROL_MAX_PAYLOAD];
    uint8_t in[DISCO_STREAM_FRAME_BYTES];
};

#else

#define DISCO_FRAME_OVERHEAD_BYTES  (DISCO_FRAME_HEADER_BYTES + DISCO_FRAME_CRC_BYTES)
#define DISCO_WIRE_OVERHEAD_BYTES   (DISCO_FRAME_OVERHEAD_BYTES + 2) /* COBS code byte and delimiter */
#define DISCO_WIRE_MAX_BYTES        (DISCO_MAX_PAYLOAD + DISCO_WIRE_OVERHEAD_BYTES)
#define DISCO_LINK_RECEIVE_BYTES    (DISCO_WIRE_MAX_BYTES + 51) /* the longest frame, short ones before it; whole words */
#define DISCO_LINK_TIMEOUT_FIRST_MS 200u
#define DISCO_LINK_TIMEOUT_LAST_MS  2000u

/* A frame is encoded in place when its turn to be written comes. It begins at a whole word, and so do channels in it. */
typedef struct {
    uint32_t wire_length; /* 0 until it is encoded */
    uint8_t wire[DISCO_WIRE_MAX_BYTES];
    uint8_t expected; /* what it acknowledges, once encoded */
} disco_link_slot_t;

struct disco_link {
    uint8_t port_link; /* which link of the port */
    uint8_t self;      /* own address */
    uint8_t peer;      /* address at the other end */
    uint8_t session;   /* frames of other sessions are dropped; 0: only HELLO is taken */
    disco_link_handler_t handler;
    void *context;

    /* sending */
    uint8_t send_base;      /* oldest unacknowledged sequence */
    uint8_t send_next;      /* sequence of the next new frame */
    uint8_t send_cursor;    /* sequence being written, or next to be written */
    uint8_t send_highest;   /* sequences before it were on the wire at least once */
    uint16_t cursor_offset; /* bytes of the frame at the cursor already written */
    bool rewind;            /* go back to send_base when the frame at the cursor is written */
    bool timer_running;     /* else it starts anew at the next disco_link_transmit */
    bool resting;           /* nothing to write, to acknowledge or to be acknowledged */
    uint32_t timer_ms;      /* when the retransmission timer was last restarted */
    uint32_t timeout_ms;    /* current retransmission timeout */

    /* receiving */
    uint8_t receive_next;    /* sequence expected next */
    uint8_t gap_highest;     /* while gap_open: highest sequence seen beyond the gap */
    bool gap_open;           /* a NAK was sent for receive_next */
    bool damage_reported;    /* a NAK was sent for a damaged frame, and no valid frame came since */
    bool refused;            /* the handler said BUSY to receive_next */
    bool overlong;           /* the frame that comes in is longer than any: its bytes are dropped up to the delimiter */
    bool ack_due;            /* what came is not acknowledged yet */
    bool nak_due;            /* a NAK is to be sent when the line is free for it */
    uint16_t received_begin; /* of `received`: where the frame begins that is not taken yet */
    uint16_t received_seen;  /* so far no delimiter was found in it */
    uint16_t received_end;

    disco_link_stats_t stats;
    uint8_t received[DISCO_LINK_RECEIVE_BYTES]; /* as it came from the line; frames are taken where they stand */

    /* a control frame (ACK, NAK, HELLO or WELCOME) that waits or is being written, with a leading delimiter */
    uint16_t control_length;
    uint16_t control_offset;
    uint8_t control[DISCO_CONTROL_MAX_PAYLOAD + DISCO_WIRE_OVERHEAD_BYTES + 1];
    disco_link_slot_t slots[DISCO_LINK_WINDOW]; /* frame with sequence s is in slot s % DISCO_LINK_WINDOW */
};

#endif

/* A fresh link, session 0. `handler` gets every message with `context`. */
void disco_link_init(disco_link_t *link, uint8_t port_link, uint8_t self, uint8_t peer, disco_link_handler_t handler,
                     void *context);

/* Starts a session: all numbering, buffers, timers and statistics start anew. Bytes already read from the port are forgotten; on a
 * stream, where a frame must be read and written to its end, they are dropped as frames of another session. */
void disco_link_reset(disco_link_t *link, uint8_t session);

/* True when a new sequenced message can be taken. */
bool disco_link_ready(const disco_link_t *link);

/* Where to put the payload (DISCO_LINK_MAX_PAYLOAD bytes) of the next sequenced message; only when disco_link_ready. */
uint8_t *disco_link_reserve(disco_link_t *link);

/* Sends the reserved payload. BUSY when not ready; ERR_ARGUMENT when length > DISCO_LINK_MAX_PAYLOAD. */
DISCO_MUST_CHECK disco_status_t disco_link_commit(disco_link_t *link, uint8_t opcode, uint16_t length);

/* reserve, copy, commit. */
DISCO_MUST_CHECK disco_status_t disco_link_send(disco_link_t *link, uint8_t opcode, const uint8_t *payload,
                                                uint16_t length);

/* Sends an unsequenced message (HELLO, WELCOME) of at most DISCO_CONTROL_MAX_PAYLOAD bytes in place of any control frame that waits.
 * HELLO is addressed to DISCO_ADDRESS_ANY. */
DISCO_MUST_CHECK disco_status_t disco_link_send_control(disco_link_t *link, uint8_t opcode, const uint8_t *payload,
                                                        uint16_t length);

/* Reads and delivers; never waits. Returns OK, the status of a handler, or ERR_PROTOCOL when a stream is broken. */
DISCO_MUST_CHECK disco_status_t disco_link_receive(disco_link_t *link);

/* Retransmits, writes, acknowledges; never waits. What was committed since disco_link_receive acknowledges what that delivered. */
void disco_link_transmit(disco_link_t *link, uint32_t now_ms);

/* True when disco_link_transmit has nothing to do, nor its timer. */
static inline bool disco_link_resting(const disco_link_t *link) {
#if DISCO_STREAM_LINES
    return link->out_begin == link->out_end;
#else
    return link->resting;
#endif
}

/* Both. */
DISCO_MUST_CHECK disco_status_t disco_link_poll(disco_link_t *link, uint32_t now_ms);

/* True when every sequenced message was acknowledged; on a stream, when it was written. */
bool disco_link_idle(const disco_link_t *link);

/* True when so little is under way that a frame should not wait for more bytes to fill it: fewer than DISCO_LINK_EAGER frames; on a
 * stream, nothing. */
bool disco_link_eager(const disco_link_t *link);

/* Restarts the retransmission timer; called after a computation, before disco_link_transmit. */
void disco_link_resume(disco_link_t *link);

#ifdef __cplusplus
}
#endif

#endif
