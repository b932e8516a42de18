/*
 * A node without a model, for tests of links and ports. The host's commands:
 *   0x70: payload comes back (opcode 0x70)
 *   0x71: u32 frames: so many full CHANNELS frames go to the first peer; answer 0x71 with u32 milliseconds when all are acknowledged
 *   0x72: answer 0x72: u32 frames and u32 CRC-32 of the payloads that came from the first peer
 *   0x73: u32 rounds: a fixed computation; answer 0x73: u64 ticks and u64 task ticks that it took, u32 its result
 *   0x74: u32 bytes: uses so many of the stack; answer 0x74: u32 the most that was ever in use
 */
#include <string.h>

#include "disco/crc32.h"
#include "disco/link.h"
#include "disco/port.h"
#include "disco_board.h"

enum { ECHO = 0x70, BLAST = 0x71, COUNT = 0x72, COMPUTE = 0x73, STACK = 0x74 };

static disco_link_t host;
static disco_link_t peer;
static uint32_t blast_left;
static uint32_t blast_start;
static bool blasting;
static uint32_t compute_rounds;
static uint32_t peer_frames;
static uint32_t peer_crc;

static uint32_t get_u32(const uint8_t *bytes) {
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static void put(uint8_t *bytes, uint64_t value, size_t size) {
    for (size_t i = 0; i < size; ++i) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
}

static disco_status_t greet(disco_link_t *link, const uint8_t *payload) {
    disco_link_reset(link, payload[2]);
    disco_link_reset(&peer, payload[2]);
    peer_frames = 0;
    peer_crc = 0;
    return disco_link_send_control(link, DISCO_MSG_WELCOME, payload, 3);
}

static uint32_t use_stack(uint32_t bytes) {
    volatile uint32_t here[16] = {bytes};
    return bytes > sizeof here ? use_stack(bytes - (uint32_t)sizeof here) + here[1] : here[1];
}

static disco_status_t on_host(void *context, disco_link_t *link, uint8_t opcode, const uint8_t *payload,
                              uint16_t length) {
    (void)context;
    uint8_t answer[8];
    switch (opcode) {
    case DISCO_MSG_HELLO:
        return greet(link, payload);
    case ECHO:
        return disco_link_send(link, ECHO, payload, length);
    case BLAST:
        blast_left = get_u32(payload);
        blast_start = disco_port_milliseconds();
        blasting = true;
        return DISCO_OK;
    case COUNT:
        put(answer, peer_frames, 4);
        put(answer + 4, peer_crc, 4);
        return disco_link_send(link, COUNT, answer, 8);
    case COMPUTE:
        compute_rounds = get_u32(payload);
        return DISCO_OK;
    case STACK:
        put(answer, use_stack(get_u32(payload)), 4);
        put(answer, disco_port_stack_used(), 4);
        return disco_link_send(link, STACK, answer, 4);
    default:
        return DISCO_ERR_PROTOCOL;
    }
}

static disco_status_t on_peer(void *context, disco_link_t *link, uint8_t opcode, const uint8_t *payload,
                              uint16_t length) {
    (void)context;
    (void)link;
    (void)opcode;
    ++peer_frames;
    peer_crc = disco_crc32(peer_crc, payload, length);
    return DISCO_OK;
}

static void blast(void) {
    while (blast_left > 0 && disco_link_ready(&peer)) {
        uint8_t *payload = disco_link_reserve(&peer);
        for (uint32_t i = 0; i < DISCO_MAX_PAYLOAD; ++i) {
            payload[i] = (uint8_t)(blast_left * 31u + i);
        }
        if (disco_link_commit(&peer, DISCO_MSG_CHANNELS, DISCO_MAX_PAYLOAD) == DISCO_OK) {
            --blast_left;
        }
    }
    if (blast_left == 0 && disco_link_idle(&peer)) {
        uint8_t answer[4];
        put(answer, disco_port_milliseconds() - blast_start, 4);
        blasting = disco_link_send(&host, BLAST, answer, 4) != DISCO_OK;
    }
}

/* A fixed number of instructions, whatever happens on the lines meanwhile. */
static uint32_t churn(uint32_t rounds) {
    uint32_t state = 1;
    for (uint32_t i = 0; i < rounds; ++i) {
        state = state * 1664525u + 1013904223u;
    }
    return state;
}

static void compute(void) {
    const uint64_t start = disco_port_ticks();
    const uint64_t task_start = disco_port_task_ticks();
    const uint32_t result = churn(compute_rounds);
    const uint64_t task_end = disco_port_task_ticks();
    uint8_t answer[20];
    put(answer, disco_port_ticks() - start, 8);
    put(answer + 8, task_end - task_start, 8);
    put(answer + 16, result, 4);
    if (disco_link_send(&host, COMPUTE, answer, 20) == DISCO_OK) {
        compute_rounds = 0;
    }
    disco_link_resume(&host);
}

static disco_status_t serve(void) {
    disco_link_init(&host, 0, DISCO_BOARD_NODE, DISCO_ADDRESS_HOST, on_host, NULL);
    disco_link_init(&peer, 1, DISCO_BOARD_NODE, DISCO_BOARD_NODE == 0 ? 1 : 0, on_peer, NULL);
    for (;;) {
        disco_status_t status = disco_link_poll(&host, disco_port_milliseconds());
        if (status == DISCO_OK && DISCO_BOARD_LINKS > 1) {
            status = disco_link_poll(&peer, disco_port_milliseconds());
        }
        if (status != DISCO_OK) {
            return status;
        }
        if (compute_rounds != 0) {
            compute();
        } else if (blasting && disco_link_ready(&peer)) {
            blast();
        } else {
            disco_port_wait();
        }
    }
}

int main(int argc, char **argv) {
    disco_status_t status = disco_port_init(argc, argv);
    if (status == DISCO_OK) {
        status = serve();
    }
    disco_port_fatal(status);
    return 1;
}
