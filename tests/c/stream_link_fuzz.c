/*
 * Feeds a link over a stream with frames cut anywhere, frames of others and plain garbage, and lets it write into a line that is mostly
 * full. Meant for sanitizers. Usage: fuzz SEED TURNS. Prints the messages delivered and how often the stream broke.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disco/link.h"
#include "disco/port.h"

enum { SELF = 1, PEER = 0, SESSION = 5, LINE_BYTES = 1 << 18, HEADER_BYTES = 8 };

static uint32_t state;
static uint8_t line[LINE_BYTES];
static size_t line_length;
static disco_link_t link_under_test;
static unsigned delivered, broken;

static uint32_t draw(uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

size_t disco_port_read(uint8_t link, uint8_t *bytes, size_t capacity) {
    (void)link;
    const size_t most = draw(3) == 0 ? draw(20) : line_length;
    const size_t there = most < line_length ? most : line_length;
    const size_t count = there < capacity ? there : capacity;
    memcpy(bytes, line, count);
    memmove(line, line + count, line_length - count);
    line_length -= count;
    return count;
}

/* Every byte is looked at, so that a sanitizer sees one that was never set. */
size_t disco_port_write(uint8_t link, const uint8_t *bytes, size_t length) {
    (void)link;
    volatile uint8_t sum = 0;
    const size_t count = draw(4) == 0 ? draw((uint32_t)length + 1) : 0;
    for (size_t i = 0; i < count; ++i) {
        sum = (uint8_t)(sum + bytes[i]);
    }
    return count;
}

static void put(uint8_t byte) {
    if (line_length < LINE_BYTES) {
        line[line_length++] = byte;
    }
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
        return DISCO_ERR_TIMEOUT;
    case 2:
        disco_link_reset(link, SESSION);
        return DISCO_OK;
    case 3: {
        const disco_status_t status = disco_link_send(link, DISCO_MSG_CHANNELS, payload, length);
        return status == DISCO_BUSY ? DISCO_OK : status;
    }
    default:
        return DISCO_OK;
    }
}

/* Mostly a frame as it should be; now and then one that is too long, of a stranger or of another session. */
static void make_frame(void) {
    const uint32_t length = draw(300) == 0 ? draw(1u << 17) : draw(8) == 0 ? draw(1u << 16) : draw(64);
    for (uint32_t i = 0; i < 4; ++i) {
        put((uint8_t)(length >> (8 * i)));
    }
    put((uint8_t)draw(256));
    put(draw(400) == 0 ? (uint8_t)draw(256) : (uint8_t)PEER);
    put(draw(400) == 0 ? (uint8_t)draw(256) : (uint8_t)SELF);
    put(draw(8) == 0 ? (uint8_t)draw(256) : (uint8_t)SESSION);
    for (uint32_t i = 0; i < length; ++i) {
        put((uint8_t)i);
    }
}

static void start(void) {
    disco_link_init(&link_under_test, 0, SELF, PEER, take, NULL);
    disco_link_reset(&link_under_test, SESSION);
    line_length = 0;
}

int main(int argc, char **argv) {
    state = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    const unsigned long turns = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
    start();
    for (unsigned long turn = 0; turn < turns; ++turn) {
        for (uint32_t i = draw(4); i > 0; --i) {
            make_frame();
        }
        for (uint32_t i = draw(200) == 0 ? draw(700) : 0; i > 0; --i) {
            put((uint8_t)draw(256));
        }
        const disco_status_t status = disco_link_poll(&link_under_test, (uint32_t)turn);
        if (status == DISCO_ERR_PROTOCOL) {
            ++broken;
            start();
        } else if (status != DISCO_OK && status != DISCO_ERR_TIMEOUT) {
            return EXIT_FAILURE;
        }
        if (draw(3) == 0 && disco_link_ready(&link_under_test)) {
            memset(disco_link_reserve(&link_under_test), 1, DISCO_LINK_MAX_PAYLOAD);
            if (disco_link_commit(&link_under_test, DISCO_MSG_CREDIT, (uint16_t)draw(DISCO_LINK_MAX_PAYLOAD + 1)) !=
                DISCO_OK) {
                return EXIT_FAILURE;
            }
        }
        if (draw(50) == 0) {
            const uint8_t byte = 1;
            const disco_status_t sent = disco_link_send_control(&link_under_test, DISCO_MSG_WELCOME, &byte, 1);
            if (sent != DISCO_OK && sent != DISCO_BUSY) {
                return EXIT_FAILURE;
            }
        }
    }
    printf("%u messages, %u broken streams\n", delivered, broken);
    return EXIT_SUCCESS;
}
