/*
 * The messages between host and nodes and between nodes. Mirrored in disco_firmware/protocol.py; a test compares the two.
 *
 * Frame, before COBS; little-endian; a zero byte ends it on the wire:
 *   u8 opcode | u8 source | u8 destination | u8 session | u8 sequence | u8 expected | u8 length | payload | u32 CRC-32 (IEEE 802.3) of all before
 * Addresses: node index, or DISCO_ADDRESS_HOST. Session: drawn by the host in HELLO, never 0; frames of another session are dropped.
 * `expected` is the next sequence number that the sender of the frame expects: every frame acknowledges all before it, ACK does nothing else.
 * HELLO and WELCOME (HELLO is sent again by the host until answered), ACK and NAK have no sequence number (0); every other message is sequenced,
 * acknowledged and retransmitted (go-back-N, window DISCO_LINK_WINDOW).
 *
 * Frame on lines that lose nothing (TCP between Linux nodes, built with DISCO_STREAM_LINES):
 *   u32 payload bytes | u8 opcode | u8 source | u8 destination | u8 session | payload
 */
#ifndef DISCO_PROTOCOL_H
#define DISCO_PROTOCOL_H

#define DISCO_PROTOCOL_VERSION   4
#define DISCO_ADDRESS_HOST       0xFE
#define DISCO_ADDRESS_ANY        0xFF /* destination of HELLO: whichever node sits on the line answers with its own address */
#define DISCO_FRAME_HEADER_BYTES 7
#define DISCO_FRAME_CRC_BYTES    4
#define DISCO_MAX_PAYLOAD        240 /* so that a whole frame is one COBS block: 7 + 240 + 4 < 254 */
#define DISCO_LINK_WINDOW        4   /* frames under way; sequence numbers are modulo 256 */
#define DISCO_LINK_EAGER         2   /* with fewer under way a frame of CHANNELS leaves that is not full */
#define DISCO_BUNDLE_ID_BYTES    16
#define DISCO_STREAM_MAX_PAYLOAD 0xFFFF /* what WELCOME can state */

typedef enum {
    DISCO_MSG_ACK = 0x01,
    DISCO_MSG_NAK = 0x02, /* a gap or a damaged frame was seen: send again from `expected` */
    /* host -> node */
    DISCO_MSG_HELLO =
        0x10, /* u16 protocol version, u8 session, u8 0: the node forgets everything and answers WELCOME */
    DISCO_MSG_CONNECT = 0x12, /* u32 deadline in ms: the node greets its peers, then answers CONNECTED or ERROR */
    DISCO_MSG_INPUT = 0x20,   /* u16 input, u16 0, u32 offset, int8 data: part of an input tensor [h][w][c] */
    DISCO_MSG_RUN = 0x21,     /* u32 inference, u32 deadline in ms of each wait, u32 flags (DISCO_RUN_*) */
    /* node -> host */
    DISCO_MSG_WELCOME = 0x11,   /* see node_greeting.c: versions, node, board, clock, bundle id, limits */
    DISCO_MSG_CONNECTED = 0x13, /* no payload */
    DISCO_MSG_OUTPUT =
        0x30,             /* u16 output, u16 0, u32 offset, int8 data: part of this node's own channels [h][w][own] */
    DISCO_MSG_OPS = 0x31, /* u32 inference, u16 first op, u16 count, then count records of DISCO_OP_RECORD_BYTES */
    DISCO_MSG_ROUTES =
        0x32, /* u32 inference, u16 first route, u16 count, then count records of DISCO_ROUTE_RECORD_BYTES */
    DISCO_MSG_STAGES =
        0x34, /* Linux nodes only: u32 inference, u16 first stage, u16 count, then count records (StageRecord in protocol.py) */
    DISCO_MSG_STEPS =
        0x35, /* where they are recorded: u32 inference, u16 first step, u16 count, then count times u32 ticks */
    DISCO_MSG_DONE =
        0x33, /* u32 inference, u32 most bytes of stack in use so far (0: unknown), u64 ticks at start, u64 ticks at end: sent last */
    DISCO_MSG_ERROR =
        0x3F, /* u16 status, u16 op, u16 exchange, u8 peer, u8 0, u32 missing bytes, u32 waited ms (0xFFFF, 0xFF: none) */
    /* node -> node */
    DISCO_MSG_PEER_HELLO = 0x40, /* u8 bundle id[16], u8 node, u8 node count, u16 protocol version */
    DISCO_MSG_CREDIT =
        0x41, /* u32 inference, u16 opened: the exchanges 0 .. opened-1 of that inference may be sent to me */
    DISCO_MSG_CHANNELS =
        0x42 /* u8 inference, u8 exchange, u16 offset, int8 data: the next bytes of the route's stream [h][w][channels]. Of each
              * number the lowest bits, as a check: what comes next is known, exchanges follow each other in rising order */
} disco_opcode_t;

#define DISCO_RUN_CHECKSUMS 1u /* put the CRC-32 of the output channels that each op computes into its record */

/* OPS record: u64 start, u64 end, u64 compute, u64 wait, u64 send (all in port ticks), u32 checksum, u32 0. */
#define DISCO_OP_RECORD_BYTES 48
/* ROUTES record, one per send of the node's model: u64 first tick queued, u64 last tick packed, u32 payload bytes, u32 frames,
 * u32 retransmitted frames on that link so far (cumulative over the session), u32 0. */
#define DISCO_ROUTE_RECORD_BYTES 32

#endif
