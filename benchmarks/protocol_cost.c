/*
 * What the protocol costs a board: two nodes in one program stream channels of a tensor to each other over lines that are memory, so that a port's
 * reading and writing is a copy, as where DMA moves the bytes. Each case prints the counts of all looks at the links, how many looks those
 * were, and the channels' bytes that were sent and received in them. Built by protocol_cost.py with COUNTER (the address of a
 * 32-bit counter) and COUNTER_INVERTED (all ones where it counts down).
 */
#include <stdio.h>
#include <string.h>

#include "disco/executor.h"
#include "disco/port.h"
#include "exchange.h"

enum { NODES = 2, SIDE = 32, OWN = 8, STRIDE = 2 * OWN, STEP = 4, LINE_BYTES = 16384, CLOCK_HZ = 25000000 };

typedef struct {
    uint8_t bytes[LINE_BYTES];
    size_t begin, end;
} line_t;

typedef struct {
    int8_t arena[SIDE * SIDE * STRIDE];
    disco_tensor_t tensor;
    disco_send_t send;
    disco_receive_t receive;
    disco_send_state_t send_state;
    disco_receive_state_t receive_state;
    disco_model_t model;
    disco_executor_t executor;
    disco_link_t host, peer;
} node_t;

static node_t nodes[NODES];
static line_t lines[NODES]; /* by receiver */

/* Ports 0 and 1 lead to the peers of nodes 0 and 1, port 2 to a host that is silent. */
size_t disco_port_read(uint8_t link, uint8_t *bytes, size_t capacity) {
    if (link >= NODES) {
        return 0;
    }
    line_t *line = &lines[link];
    const size_t held = line->end - line->begin;
    const size_t count = held < capacity ? held : capacity;
    if (count > 0) {
        memcpy(bytes, line->bytes + line->begin, count);
        line->begin += count;
    }
    return count;
}

size_t disco_port_write(uint8_t link, const uint8_t *bytes, size_t length) {
    if (link >= NODES) {
        return length;
    }
    line_t *line = &lines[1 - link];
    memcpy(line->bytes + line->end, bytes, length);
    line->end += length;
    return length;
}

static uint32_t raw(void) {
    return *(const volatile uint32_t *)COUNTER ^ COUNTER_INVERTED;
}

/* The clocks of a port whose counter has 32 bits. */
uint32_t disco_port_milliseconds(void) {
    static uint32_t milliseconds, end_of_last;
    const uint32_t passed = raw() - end_of_last;
    if (passed >= CLOCK_HZ / 1000) {
        milliseconds += passed / (CLOCK_HZ / 1000);
        end_of_last += passed / (CLOCK_HZ / 1000) * (CLOCK_HZ / 1000);
    }
    return milliseconds;
}

uint64_t disco_port_ticks(void) {
    static uint64_t extended;
    extended += (uint32_t)(raw() - (uint32_t)extended);
    return extended;
}

uint64_t disco_port_task_ticks(void) {
    return disco_port_ticks();
}

const disco_port_info_t *disco_port_info(void) {
    static const disco_port_info_t info = {.board = "benchmark"};
    return &info;
}

void disco_port_wait(void) {}

/* What exchange.c asks of the executor besides. */
disco_status_t disco_executor_fail(disco_executor_t *executor, disco_status_t status, uint16_t exchange, uint8_t peer) {
    (void)executor;
    printf("failed: status %d, exchange %u, peer %u\n", (int)status, (unsigned)exchange, (unsigned)peer);
    return status;
}

static disco_status_t on_peer(void *context, disco_link_t *link, uint8_t opcode, const uint8_t *payload,
                              uint16_t length) {
    node_t *node = context;
    return disco_executor_receive(&node->executor, link->peer, opcode, payload, length);
}

static void start(uint8_t number, uint16_t count, const uint16_t *channels) {
    node_t *node = &nodes[number];
    const uint8_t peer = (uint8_t)(1 - number);
    memset(node, 0, sizeof *node);
    for (size_t i = 0; i < sizeof node->arena; ++i) {
        node->arena[i] = (int8_t)(i * 37u % 251u + number);
    }
    node->tensor = (disco_tensor_t){0, SIDE, SIDE, OWN, STRIDE, 0, 1, 0, 1};
    node->send = (disco_send_t){0, 0, 0, peer, count, channels};
    node->receive = (disco_receive_t){0, 0, 0, peer, count, OWN};
    disco_model_t model = {.node = number,
                           .node_count = NODES,
                           .tensors = &node->tensor,
                           .sends = &node->send,
                           .receives = &node->receive,
                           .send_count = count > 0,
                           .receive_count = count > 0,
                           .exchange_count = 1,
                           .arena = node->arena,
                           .send_states = &node->send_state,
                           .receive_states = &node->receive_state};
    node->model = model;
    node->tensor.send_count = node->tensor.receive_count = model.send_count;
    node->executor.model = &node->model;
    node->executor.host = &node->host;
    node->executor.links[peer] = &node->peer;
    disco_link_init(&node->host, NODES, number, DISCO_ADDRESS_HOST, on_peer, node);
    disco_link_init(&node->peer, number, number, peer, on_peer, node);
    disco_link_reset(&node->peer, 1);
    disco_link_reset(&node->host, 1);
    lines[number].begin = lines[number].end = 0;
    node->executor.inference = 1;
    disco_exchange_begin(&node->executor);
    (void)disco_exchange_open(&node->executor, 0);
}

static int is_right(uint16_t count, const uint16_t *channels) {
    for (size_t pixel = 0; pixel < SIDE * SIDE; ++pixel) {
        for (int number = 0; number < NODES; ++number) {
            const int8_t *got = &nodes[number].arena[pixel * STRIDE + OWN];
            const int8_t *sent = &nodes[1 - number].arena[pixel * STRIDE];
            for (uint16_t i = 0; i < count; ++i) {
                if (got[i] != sent[channels[i]]) {
                    return 0;
                }
            }
        }
    }
    return 1;
}

/* A look as executor.c has it, with its stamps. */
static disco_status_t look(disco_executor_t *executor, uint64_t *spent) {
    const uint64_t before = disco_port_task_ticks();
    const disco_status_t status = disco_exchange_serve(executor);
    *spent += disco_port_task_ticks() - before;
    return status;
}

static int run(const char *name, uint16_t count, const uint16_t *channels) {
    uint64_t spent = 0;
    uint32_t total = 0, looks = 0;
    for (uint8_t number = 0; number < NODES; ++number) {
        start(number, count, channels);
    }
    /* Behind the last row there are as many looks again, so that all frames and acknowledgements arrive. */
    for (uint16_t row = STEP; row <= 2 * SIDE; row = (uint16_t)(row + STEP)) {
        for (int number = 0; number < NODES; ++number) {
            disco_executor_t *executor = &nodes[number].executor;
            if (row <= SIDE) {
                disco_exchange_rows_final(executor, &nodes[number].tensor, row);
            }
            const uint32_t before = raw();
            const disco_status_t status = look(executor, &spent);
            total += raw() - before;
            ++looks;
            if (status != DISCO_OK) {
                return 1;
            }
        }
    }
    if (!is_right(count, channels)) {
        printf("%s: wrong\n", name);
        return 1;
    }
    printf("%s %lu %lu %lu\n", name, (unsigned long)total, (unsigned long)looks,
           (unsigned long)(2u * NODES * SIDE * SIDE * count));
    return 0;
}

int main(void) {
    static const uint16_t adjacent[OWN] = {0, 1, 2, 3, 4, 5, 6, 7}, apart[2] = {1, 5};
    volatile uint32_t *const timer = (volatile uint32_t *)TIMER; /* the board's clock, which counts down */
    timer[0] = 0;
    timer[1] = timer[2] = UINT32_MAX;
    timer[0] = 1;
    return run("none", 0, adjacent) + run("one", 1, apart) + run("two", 2, apart) + run("all", OWN, adjacent);
}
