/* Go-back-N over COBS frames. Sequence numbers are modulo 256 and compared by their distance. */
#include "disco/link.h"

#include <string.h>

#include "bytes.h"
#include "disco/cobs.h"
#include "disco/crc32.h"
#include "disco/port.h"

#define DELIMITER 0u
/* From so many bytes on a poll reads no more, so that a line full of garbage cannot hold the caller: twice what a window takes. */
#define POLL_BYTES (2u * DISCO_LINK_WINDOW * DISCO_WIRE_MAX_BYTES)

enum {
    AT_OPCODE,
    AT_SOURCE,
    AT_DESTINATION,
    AT_SESSION,
    AT_SEQUENCE,
    AT_EXPECTED,
    AT_LENGTH,
    AT_PAYLOAD = DISCO_FRAME_HEADER_BYTES
};

typedef char frame_fits_one_cobs_block[DISCO_MAX_PAYLOAD + DISCO_FRAME_OVERHEAD_BYTES <= DISCO_COBS_MAX_BYTES ? 1 : -1];
typedef char longest_frame_fits[DISCO_LINK_RECEIVE_BYTES >= DISCO_WIRE_MAX_BYTES ? 1 : -1];
typedef char received_begins_at_word[offsetof(disco_link_t, received) % 4 == 0 ? 1 : -1];
typedef char wire_begins_at_word[offsetof(disco_link_slot_t, wire) % 4 == 0 ? 1 : -1];
typedef char window_divides_sequence_space[256 % DISCO_LINK_WINDOW == 0 ? 1 : -1];

static uint8_t distance(uint8_t from, uint8_t to) {
    return (uint8_t)(to - from);
}

static bool behind_base(const disco_link_t *link, uint8_t sequence) {
    return distance(link->send_base, sequence) > distance(link->send_base, link->send_next);
}

static disco_link_slot_t *slot_of(disco_link_t *link, uint8_t sequence) {
    return &link->slots[sequence % DISCO_LINK_WINDOW];
}

/* ---- frames ---------------------------------------------------------------------------------------------------------------- */

/* The header of the frame whose payload stands at wire + 1 + header. */
static void put_header(const disco_link_t *link, uint8_t *wire, uint8_t opcode, uint8_t sequence, uint16_t length) {
    uint8_t *frame = wire + 1;
    frame[AT_OPCODE] = opcode;
    frame[AT_SOURCE] = link->self;
    frame[AT_DESTINATION] = opcode == DISCO_MSG_HELLO ? (uint8_t)DISCO_ADDRESS_ANY : link->peer;
    frame[AT_SESSION] = link->session;
    frame[AT_SEQUENCE] = sequence;
    frame[AT_LENGTH] = (uint8_t)length;
}

/* The CRC that a zero byte makes that of nothing. */
#define CRC_BEFORE_ZERO 0x0F6A7026u

/* The CRC of the `length` bytes behind the first one of the block, which is zero: taken as well, for it begins at a whole word. */
static uint32_t frame_crc(const uint8_t *block, size_t length) {
    return disco_crc32(CRC_BEFORE_ZERO, block, 1 + length);
}

/* Completes the frame by what is known when it leaves, encodes it in place and ends it. Returns the bytes on the wire. */
static uint16_t seal(const disco_link_t *link, uint8_t *wire) {
    uint8_t *frame = wire + 1;
    frame[AT_EXPECTED] = link->receive_next;
    const size_t covered = (size_t)AT_PAYLOAD + frame[AT_LENGTH];
    wire[0] = 0;
    disco_put_u32(frame + covered, frame_crc(wire, covered));
    const size_t encoded = disco_cobs_encode(wire, covered + DISCO_FRAME_CRC_BYTES);
    wire[encoded] = DELIMITER;
    return (uint16_t)(encoded + 1);
}

/* Decodes the received frame in place, behind the first byte of its block; NULL when it is damaged. */
static const uint8_t *decode_frame(uint8_t *block, size_t length) {
    if (disco_cobs_decode(block, length) == 0 || length - 1 < DISCO_FRAME_OVERHEAD_BYTES) {
        return NULL;
    }
    const uint8_t *frame = block + 1;
    const size_t covered = length - 1 - DISCO_FRAME_CRC_BYTES;
    const bool whole = frame[AT_LENGTH] == covered - AT_PAYLOAD && frame[AT_LENGTH] <= DISCO_MAX_PAYLOAD &&
                       disco_get_u32(frame + covered) == frame_crc(block, covered);
    return whole ? frame : NULL;
}

/* A greeting is taken from whoever sits on the line, so that a wrong cable is reported by the name of the node found there. */
static bool address_fits(const disco_link_t *link, const uint8_t *frame) {
    if (frame[AT_OPCODE] == DISCO_MSG_PEER_HELLO) {
        return true;
    }
    if (frame[AT_OPCODE] == DISCO_MSG_WELCOME) {
        return link->self == DISCO_ADDRESS_HOST && frame[AT_DESTINATION] == link->self;
    }
    return frame[AT_SOURCE] == link->peer && frame[AT_DESTINATION] == link->self;
}

static bool is_hello(const disco_link_t *link, const uint8_t *frame) {
    return frame[AT_OPCODE] == DISCO_MSG_HELLO && link->peer == DISCO_ADDRESS_HOST &&
           frame[AT_SOURCE] == DISCO_ADDRESS_HOST &&
           (frame[AT_DESTINATION] == link->self || frame[AT_DESTINATION] == DISCO_ADDRESS_ANY);
}

/* ---- receiving ------------------------------------------------------------------------------------------------------------- */

static void take_damaged(disco_link_t *link) {
    if (link->session == 0) {
        return; /* before a session there is nothing to ask for, and the line may carry a boot loader's chatter */
    }
    ++link->stats.frames_damaged;
    if (link->damage_reported || link->refused) {
        return;
    }
    link->damage_reported = true;
    link->gap_open = true;
    link->gap_highest = link->receive_next;
    link->nak_due = true;
}

static void take_beyond_gap(disco_link_t *link, uint8_t sequence) {
    const bool started_over =
        link->gap_open && distance(link->receive_next, sequence) <= distance(link->receive_next, link->gap_highest);
    if (!link->refused && (!link->gap_open || started_over)) {
        link->nak_due = true;
        link->gap_open = true;
    }
    link->gap_highest = sequence;
}

static void take_acknowledgement(disco_link_t *link, uint8_t expected, bool again) {
    const uint8_t progress = distance(link->send_base, expected);
    if (progress > distance(link->send_base, link->send_highest)) {
        return; /* older than what we know, or nonsense */
    }
    if (progress > 0) {
        link->send_base = expected;
        link->timeout_ms = DISCO_LINK_TIMEOUT_FIRST_MS;
        link->timer_running = false;
    }
    if (again) {
        link->rewind = true;
        link->ack_due = true; /* what came damaged may have been our ACK */
        link->timer_running = false;
    }
}

static disco_status_t deliver(disco_link_t *link, const uint8_t *frame) {
    return link->handler(link->context, link, frame[AT_OPCODE], frame + AT_PAYLOAD, frame[AT_LENGTH]);
}

static disco_status_t take_sequenced(disco_link_t *link, const uint8_t *frame) {
    const uint8_t sequence = frame[AT_SEQUENCE];
    const uint8_t ahead = distance(link->receive_next, sequence);
    if (ahead == 0) {
        ++link->receive_next; /* before the handler, which may reset the link */
        ++link->stats.frames_received;
        link->ack_due = true;
        link->gap_open = false;
        link->refused = false;
        const disco_status_t status = deliver(link, frame);
        if (status == DISCO_BUSY) {
            --link->receive_next;
            --link->stats.frames_received;
            link->refused = true;
            return DISCO_OK;
        }
        return status;
    }
    if (ahead < DISCO_LINK_WINDOW) {
        take_beyond_gap(link, sequence);
    } else if (distance(sequence, link->receive_next) <= DISCO_LINK_WINDOW) {
        link->ack_due = true; /* a repeated frame: our ACK was lost */
    }
    return DISCO_OK;
}

static disco_status_t take_frame(disco_link_t *link, uint8_t *block, size_t length) {
    if (length == 0 && !link->overlong) {
        return DISCO_OK; /* two delimiters in a row */
    }
    const bool overlong = link->overlong;
    link->overlong = false;
    const uint8_t *frame = overlong ? NULL : decode_frame(block, length);
    if (frame == NULL) {
        take_damaged(link);
        return DISCO_OK;
    }
    if (is_hello(link, frame)) {
        return deliver(link, frame);
    }
    if (link->session == 0 || frame[AT_SESSION] != link->session) {
        return DISCO_OK; /* left over from another session */
    }
    if (!address_fits(link, frame)) {
        ++link->stats.frames_damaged;
        return DISCO_OK;
    }
    link->damage_reported = false;
    switch (frame[AT_OPCODE]) {
    case DISCO_MSG_HELLO:
        return DISCO_OK; /* not from a host */
    case DISCO_MSG_WELCOME:
        return deliver(link, frame);
    case DISCO_MSG_ACK:
    case DISCO_MSG_NAK:
        take_acknowledgement(link, frame[AT_EXPECTED], frame[AT_OPCODE] == DISCO_MSG_NAK);
        return DISCO_OK;
    default:
        take_acknowledgement(link, frame[AT_EXPECTED], false);
        return take_sequenced(link, frame);
    }
}

/* Where the delimiter of the frame at `block` stands by the frame's length; 0 when it does not stand there, or not yet among the `held` bytes. A look at
 * a few bytes: whether the frame between is whole, its CRC tells. */
static size_t end_by_length(const uint8_t *block, size_t held) {
    const size_t shortest = 1 + DISCO_FRAME_OVERHEAD_BYTES;
    if (held <= shortest || block[0] == DELIMITER) {
        return 0;
    }
    /* A length of 0 was encoded; any other stands as it is. */
    const size_t end = block[shortest] == DELIMITER ? shortest : shortest + block[1 + AT_LENGTH];
    return end < held && block[end] == DELIMITER ? end : 0;
}

/* Finds the delimiter of the frame that comes in; NULL when it is not there yet. */
static const uint8_t *find_delimiter(const disco_link_t *link) {
    const uint8_t *const block = link->received + link->received_begin;
    const size_t end = end_by_length(block, (size_t)(link->received_end - link->received_begin));
    return end > 0 ? block + end
                   : memchr(link->received + link->received_seen, DELIMITER,
                            (size_t)(link->received_end - link->received_seen));
}

/* Takes all frames that have come in whole. A handler may reset the link: then nothing is left. */
static disco_status_t take_frames(disco_link_t *link) {
    while (link->received_begin < link->received_end) {
        uint8_t *const block = link->received + link->received_begin;
        const uint8_t *const delimiter = find_delimiter(link);
        if (delimiter == NULL) {
            link->received_seen = link->received_end;
            return DISCO_OK;
        }
        link->received_seen = link->received_begin = (uint16_t)(delimiter + 1 - link->received);
        link->resting = false; /* what came may ask for something */
        const disco_status_t status = take_frame(link, block, (size_t)(delimiter - block));
        if (status != DISCO_OK) {
            return status;
        }
    }
    return DISCO_OK;
}

/* Sees to it that the rest of the longest frame has room behind what has come of it. */
static void make_room(disco_link_t *link) {
    const uint16_t begin = link->received_begin;
    const uint16_t held = (uint16_t)(link->received_end - begin);
    if (held == 0 || held == DISCO_WIRE_MAX_BYTES) { /* so many, and no delimiter among them */
        link->overlong = link->overlong || held > 0;
        link->received_begin = link->received_seen = link->received_end = 0;
    } else if (begin > sizeof link->received - DISCO_WIRE_MAX_BYTES) {
        memmove(link->received, link->received + begin, held);
        link->received_seen = (uint16_t)(link->received_seen - begin);
        link->received_end = held;
        link->received_begin = 0;
    }
}

/* For the rest of the longest frame and no more: so frames that come one after another stay where they came in. */
static size_t room_of(const disco_link_t *link) {
    return (size_t)(link->received_begin + DISCO_WIRE_MAX_BYTES - link->received_end);
}

static size_t read_some(disco_link_t *link, size_t room) {
    return disco_port_read(link->port_link, link->received + link->received_end, room);
}

/* Takes what was read, `count` bytes where there was room for `room`, and what else there is to be read. */
DISCO_APART static disco_status_t take_all(disco_link_t *link, size_t count, size_t room) {
    size_t total = count;
    for (;;) {
        link->received_end = (uint16_t)(link->received_end + count);
        const disco_status_t status = take_frames(link);
        make_room(link);
        if (status != DISCO_OK || count < room || total >= POLL_BYTES) {
            return status;
        }
        room = room_of(link);
        count = read_some(link, room);
        total += count;
    }
}

disco_status_t disco_link_receive(disco_link_t *link) {
    const size_t room = room_of(link);
    const size_t count = read_some(link, room);
    const bool idle = count == 0 && link->received_seen == link->received_end;
    return idle ? DISCO_OK : take_all(link, count, room);
}

/* ---- sending --------------------------------------------------------------------------------------------------------------- */

static void run_timer(disco_link_t *link, uint32_t now_ms) {
    const bool all_written = link->send_cursor == link->send_next && link->cursor_offset == 0 && !link->rewind;
    if (link->send_base == link->send_next || !all_written || !link->timer_running) {
        link->timer_running = link->send_base != link->send_next;
        link->timer_ms = now_ms;
    } else if (now_ms - link->timer_ms >= link->timeout_ms) {
        const uint32_t doubled = 2 * link->timeout_ms;
        link->timeout_ms = doubled < DISCO_LINK_TIMEOUT_LAST_MS ? doubled : DISCO_LINK_TIMEOUT_LAST_MS;
        link->timer_ms = now_ms;
        link->rewind = true;
    }
}

/* Puts a control frame into its slot, behind a delimiter that ends whatever was cut off before it. */
static void put_control(disco_link_t *link, uint8_t opcode, uint16_t length) {
    link->control[0] = DELIMITER;
    put_header(link, link->control + 1, opcode, 0, length);
    link->control_length = (uint16_t)(1 + seal(link, link->control + 1));
    link->control_offset = 0;
    link->resting = false;
}

static void put_acknowledgement(disco_link_t *link) {
    put_control(link, link->nak_due ? DISCO_MSG_NAK : DISCO_MSG_ACK, 0);
    link->control_offset = 1; /* it stands between whole frames and needs no delimiter before it */
    link->ack_due = false;
    link->nak_due = false;
}

/* Writes bytes [*offset, length) as far as the port takes them; true when all are written. */
static bool write_bytes(const disco_link_t *link, const uint8_t *bytes, uint32_t length, uint16_t *offset) {
    while (*offset < length) {
        const size_t taken = disco_port_write(link->port_link, bytes + *offset, (size_t)(length - *offset));
        if (taken == 0) {
            return false;
        }
        *offset = (uint16_t)(*offset + taken);
    }
    return true;
}

/* Between two frames: takes the cursor back where a NAK, the timer or an overtaking ACK asks for it. */
static void settle_cursor(disco_link_t *link) {
    if (link->rewind || behind_base(link, link->send_cursor)) {
        link->send_cursor = link->send_base;
        link->rewind = false;
    }
}

static void count_written(disco_link_t *link, const disco_link_slot_t *slot) {
    if (link->send_cursor == link->send_highest) {
        ++link->send_highest;
        ++link->stats.frames_sent;
        link->stats.bytes_sent += slot->wire_length - DISCO_WIRE_OVERHEAD_BYTES;
    } else {
        ++link->stats.retransmissions;
    }
}

/* The frame at the cursor, none of which is written yet, gets its acknowledgement. One that is sent again gets a new one: an old
 * number would mean something else once numbers have gone round. */
static void seal_at_cursor(disco_link_t *link) {
    disco_link_slot_t *slot = slot_of(link, link->send_cursor);
    if (slot->wire_length == 0 || slot->expected != link->receive_next) {
        if (slot->wire_length > 0) {
            (void)disco_cobs_decode(slot->wire, (size_t)slot->wire_length - 1);
        }
        slot->wire_length = seal(link, slot->wire);
        slot->expected = link->receive_next;
    }
    link->ack_due = false;
}

/* Writes the rest of the frame at the cursor, or the next one; false when the line is full or there is nothing to write. */
static bool write_frame(disco_link_t *link) {
    if (link->send_cursor == link->send_next) {
        return false;
    }
    if (link->cursor_offset == 0) {
        seal_at_cursor(link);
    }
    const disco_link_slot_t *slot = slot_of(link, link->send_cursor);
    if (!write_bytes(link, slot->wire, slot->wire_length, &link->cursor_offset)) {
        return false;
    }
    count_written(link, slot);
    link->cursor_offset = 0;
    ++link->send_cursor;
    return true;
}

/* A frame that is about to leave acknowledges too. */
static bool needs_acknowledgement(const disco_link_t *link) {
    return link->nak_due || (link->ack_due && link->send_cursor == link->send_next);
}

static bool has_to_write(const disco_link_t *link) {
    return link->send_cursor != link->send_next || link->control_length > 0 || link->ack_due || link->nak_due ||
           link->rewind;
}

/* Control frames and frames, as far as the line takes them. */
static void write_all(disco_link_t *link) {
    bool more = true;
    while (more && has_to_write(link)) {
        if (link->cursor_offset == 0) {
            settle_cursor(link);
            if (link->control_length == 0 && needs_acknowledgement(link)) {
                put_acknowledgement(link);
            }
            if (!write_bytes(link, link->control, link->control_length, &link->control_offset)) {
                return;
            }
            link->control_length = 0;
            link->control_offset = 0;
        }
        more = write_frame(link);
    }
}

void disco_link_transmit(disco_link_t *link, uint32_t now_ms) {
    if (link->resting) {
        return;
    }
    run_timer(link, now_ms);
    write_all(link);
    link->resting = link->send_base == link->send_next && !has_to_write(link);
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
    link->timeout_ms = DISCO_LINK_TIMEOUT_FIRST_MS;
    link->resting = true;
}

void disco_link_reset(disco_link_t *link, uint8_t session) {
    link->session = session;
    link->send_base = link->send_next = link->send_cursor = link->send_highest = 0;
    link->cursor_offset = 0;
    link->rewind = link->timer_running = false;
    link->resting = true;
    link->timeout_ms = DISCO_LINK_TIMEOUT_FIRST_MS;
    link->receive_next = link->gap_highest = 0;
    link->gap_open = link->damage_reported = link->refused = link->overlong = false;
    link->ack_due = link->nak_due = false;
    link->received_begin = link->received_seen = link->received_end = 0;
    link->control_length = link->control_offset = 0;
    memset(&link->stats, 0, sizeof link->stats);
}

bool disco_link_ready(const disco_link_t *link) {
    /* An acknowledged frame that is half written keeps its slot until its end is on the wire. */
    const bool held = link->cursor_offset > 0 && behind_base(link, link->send_cursor);
    const uint8_t oldest = held ? link->send_cursor : link->send_base;
    return link->session != 0 && distance(oldest, link->send_next) < DISCO_LINK_WINDOW;
}

uint8_t *disco_link_reserve(disco_link_t *link) {
    return slot_of(link, link->send_next)->wire + 1 + AT_PAYLOAD;
}

disco_status_t disco_link_commit(disco_link_t *link, uint8_t opcode, uint16_t length) {
    if (length > DISCO_MAX_PAYLOAD) {
        return DISCO_ERR_ARGUMENT;
    }
    if (!disco_link_ready(link)) {
        return DISCO_BUSY;
    }
    disco_link_slot_t *slot = slot_of(link, link->send_next);
    put_header(link, slot->wire, opcode, link->send_next, length);
    slot->wire_length = 0;
    ++link->send_next;
    link->resting = false;
    return DISCO_OK;
}

disco_status_t disco_link_send(disco_link_t *link, uint8_t opcode, const uint8_t *payload, uint16_t length) {
    if (length > DISCO_MAX_PAYLOAD) {
        return DISCO_ERR_ARGUMENT;
    }
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
    if (length > 0) {
        memcpy(link->control + 2 + AT_PAYLOAD, payload, length);
    }
    put_control(link, opcode, length);
    return DISCO_OK;
}

disco_status_t disco_link_poll(disco_link_t *link, uint32_t now_ms) {
    const disco_status_t status = disco_link_receive(link);
    disco_link_transmit(link, now_ms);
    return status;
}

bool disco_link_idle(const disco_link_t *link) {
    return link->send_base == link->send_next;
}

bool disco_link_eager(const disco_link_t *link) {
    return distance(link->send_base, link->send_next) < DISCO_LINK_EAGER;
}

void disco_link_resume(disco_link_t *link) {
    link->timer_running = false;
}
