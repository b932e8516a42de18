/* The state of the main loop and how its parts call each other. */
#ifndef DISCO_NODE_INTERNAL_H
#define DISCO_NODE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "disco/executor.h"

typedef enum {
    DISCO_NODE_SILENT = 0, /* no session yet */
    DISCO_NODE_GREETED,    /* the host said HELLO */
    DISCO_NODE_CONNECTED,  /* all peers were greeted and fit */
    DISCO_NODE_FAILED      /* an ERROR was or will be sent; only HELLO helps */
} disco_node_phase_t;

typedef struct {
    const disco_model_t *model;
    disco_executor_t executor;
    disco_link_t host;
    disco_node_phase_t phase;
    bool error_pending;                     /* ERROR waits for room in the host link's window */
    bool hello;                             /* a HELLO came and is not answered: whatever runs ends */
    uint8_t hello_session;                  /* of that HELLO */
    uint8_t command;                        /* CONNECT or RUN, taken and not yet carried out to the end; 0: none */
    bool greeted[DISCO_MAX_PEERS + 1];      /* by node index: its PEER_HELLO came */
    uint32_t inference, deadline_ms, flags; /* arguments of `command` */
    uint32_t input_bytes;                   /* received since the last run */
} disco_node_t;

/* Link handlers; the context is the node. Any bytes are safe. */
DISCO_MUST_CHECK disco_status_t disco_node_on_host(void *context, disco_link_t *link, uint8_t opcode,
                                                   const uint8_t *payload, uint16_t length);
DISCO_MUST_CHECK disco_status_t disco_node_on_peer(void *context, disco_link_t *link, uint8_t opcode,
                                                   const uint8_t *payload, uint16_t length);

/* Bytes of all inputs together. */
uint32_t disco_node_total_input_bytes(const disco_model_t *model);

/* CONNECT: greets all peers, waits for their greetings, answers CONNECTED. */
DISCO_MUST_CHECK disco_status_t disco_node_connect(disco_node_t *node);

/* Takes a peer's greeting. */
DISCO_MUST_CHECK disco_status_t disco_node_take_greeting(disco_node_t *node, uint8_t peer, const uint8_t *payload,
                                                         uint16_t length);

/* Polls until the host link has room, then gives the place of the next message's payload, to be sent with disco_link_commit. */
DISCO_MUST_CHECK disco_status_t disco_node_reserve(disco_node_t *node, uint8_t **payload);

/* Sends outputs, records of ops and routes, and DONE of the run that has just ended. */
DISCO_MUST_CHECK disco_status_t disco_node_report(disco_node_t *node);

/* Answers HELLO. */
DISCO_MUST_CHECK disco_status_t disco_node_welcome(disco_node_t *node);

/* Sends ERROR when the window has room; false when it has none yet. */
bool disco_node_send_error(disco_node_t *node);

#endif
