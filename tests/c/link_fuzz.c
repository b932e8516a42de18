/*
 * Feeds a link with damaged frames and plain garbage, and lets it write into a line that is mostly full. Meant for sanitizers.
 * Usage: fuzz SEED TURNS. Prints the messages delivered.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disco/link.h"
#include "disco/port.h"

enum { SELF = 1, PEER = 0, LINE_BYTES = 4096 };

static uint32_t state;
static uint8_t line[LINE_BYTES];
static size_t line_length;
static disco_link_t links[2]; /* the one under test, and one that makes frames */
static unsigned delivered;

static uint32_t draw(uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

/* The link under test (0) reads the line; the maker (1) writes it and hears nothing. */
size_t disco_port_read(uint8_t link, uint8_t *bytes, size_t capacity) {
    if (link != 0) {
        return 0;
    }
    const size_t count = line_length < capacity ? line_length : capacity;
    memcpy(bytes, line, count);
    memmove(line, line + count, line_length - count);
    line_length -= count;
    return count;
}

static void put(uint8_t byte) {
    if (line_length < LINE_BYTES) {
        line[line_length++] = byte;
    }
}

size_t disco_port_write(uint8_t link, const uint8_t *bytes, size_t length) {
    if (link == 0) {
        return draw(4) == 0 ? draw((uint32_t)length + 1) : 0;
    }
    for (size_t i = 0; i < length; ++i) {
        put(draw(600) == 0 ? (uint8_t)draw(256) : bytes[i]);
    }
    return length;
}

static disco_status_t take(void *context, disco_link_t *link, uint8_t opcode, const uint8_t *payload, uint16_t length) {
    (void)context;
    volatile uint8_t sum = opcode;
    for (uint16_t i = 0; i < length; ++i) {
        sum = (uint8_t)(sum + payload[i]);
    }
    ++delivered;
    switch (draw(12)) {
    case 0:
        return DISCO_BUSY;
    case 1:
        return DISCO_ERR_PROTOCOL;
    case 2:
        return disco_link_send(link, DISCO_MSG_CHANNELS, payload, length);
    default:
        return DISCO_OK;
    }
}

/* Mostly the frame that is expected, with acknowledgements and requests at random, as nobody in his right mind would send them. */
static void make_frames(void) {
    uint8_t payload[DISCO_MAX_PAYLOAD] = {0};
    for (uint32_t i = draw(4); i > 0; --i) {
        disco_link_t *maker = &links[1];
        disco_link_reset(maker, 5);
        const uint8_t sequence = (uint8_t)(links[0].receive_next + (draw(4) == 0 ? draw(6) : 0));
        maker->send_base = maker->send_next = maker->send_cursor = maker->send_highest = sequence;
        maker->receive_next = (uint8_t)(links[0].send_base + draw(6));
        maker->ack_due = draw(2) == 0;
        maker->nak_due = draw(4) == 0;
        const uint16_t length = (uint16_t)draw(DISCO_MAX_PAYLOAD + 1);
        if (disco_link_send(maker, (uint8_t)draw(256), payload, length) != DISCO_OK ||
            disco_link_poll(maker, 0) != DISCO_OK) {
            exit(EXIT_FAILURE);
        }
    }
}

int main(int argc, char **argv) {
    state = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    const unsigned long turns = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
    disco_link_init(&links[0], 0, SELF, PEER, take, NULL);
    disco_link_init(&links[1], 1, PEER, SELF, take, NULL);
    disco_link_reset(&links[0], 5);
    disco_link_reset(&links[1], 5);
    for (unsigned long turn = 0; turn < turns; ++turn) {
        make_frames();
        for (uint32_t i = draw(8) == 0 ? draw(700) : 0; i > 0; --i) {
            put((uint8_t)draw(256));
        }
        const disco_status_t status = disco_link_poll(&links[0], (uint32_t)turn * 7);
        if (status > DISCO_ERR_PROTOCOL) {
            return EXIT_FAILURE;
        }
        if (draw(3) == 0 && disco_link_ready(&links[0])) {
            const uint8_t byte = 1;
            if (disco_link_send(&links[0], DISCO_MSG_CREDIT, &byte, 1) != DISCO_OK) {
                return EXIT_FAILURE;
            }
        }
    }
    printf("%u messages\n", delivered);
    return EXIT_SUCCESS;
}
