/* What the host and the peers may say, and when. */
#include <string.h>

#include "bytes.h"
#include "disco/executor.h"
#include "node_internal.h"
#include "stream.h"

#define INPUT_HEADER_BYTES 8u

static disco_status_t refuse(disco_node_t *node) {
    return disco_executor_fail(&node->executor, DISCO_ERR_PROTOCOL, DISCO_NONE, DISCO_NO_NODE);
}

/* The host repeats HELLO until WELCOME comes; a repeated one must not undo what the first one began. */
static bool is_repeated_hello(const disco_node_t *node, uint8_t session) {
    return node->phase == DISCO_NODE_GREETED && session == node->host.session && node->host.stats.frames_received == 0;
}

/* Any status but OK ends the poll and with it whatever runs; the main loop then begins the new session. */
static disco_status_t take_hello(disco_node_t *node, const uint8_t *payload, uint16_t length) {
    if (length < 4 || payload[2] == 0) {
        return DISCO_OK; /* no greeting at all; of other protocol versions only these bytes are known */
    }
    if (is_repeated_hello(node, payload[2])) {
        return disco_node_welcome(node);
    }
    node->hello = true;
    node->hello_session = payload[2];
    return DISCO_ERR_PROTOCOL;
}

static disco_status_t take_connect(disco_node_t *node, const uint8_t *payload, uint16_t length) {
    if (length != 4 || node->phase != DISCO_NODE_GREETED) {
        return refuse(node);
    }
    node->deadline_ms = disco_get_u32(payload);
    node->command = DISCO_MSG_CONNECT;
    return DISCO_OK;
}

static disco_status_t take_run(disco_node_t *node, const uint8_t *payload, uint16_t length) {
    if (length != 12 || node->phase != DISCO_NODE_CONNECTED) {
        return refuse(node);
    }
    node->inference = disco_get_u32(payload);
    node->deadline_ms = disco_get_u32(payload + 4);
    node->flags = disco_get_u32(payload + 8);
    node->command = DISCO_MSG_RUN;
    return DISCO_OK;
}

static uint32_t input_bytes(const disco_model_t *model, uint16_t input) {
    const disco_tensor_t *tensor = &model->tensors[model->inputs[input]];
    return disco_stream_bytes(tensor, tensor->channels);
}

uint32_t disco_node_total_input_bytes(const disco_model_t *model) {
    uint32_t total = 0;
    for (uint16_t i = 0; i < model->input_count; ++i) {
        total += input_bytes(model, i);
    }
    return total;
}

/* Inputs come whole and in order: input 0 from its first byte to its last, then input 1. */
static disco_status_t take_input(disco_node_t *node, const uint8_t *payload, uint16_t length) {
    const disco_model_t *model = node->model;
    if (length <= INPUT_HEADER_BYTES || node->phase != DISCO_NODE_CONNECTED) {
        return refuse(node);
    }
    const uint16_t input = disco_get_u16(payload);
    const uint32_t offset = disco_get_u32(payload + 4);
    const uint32_t count = (uint32_t)length - INPUT_HEADER_BYTES;
    if (input >= model->input_count) {
        return refuse(node);
    }
    uint32_t before = 0;
    for (uint16_t i = 0; i < input; ++i) {
        before += input_bytes(model, i);
    }
    const uint32_t total = input_bytes(model, input);
    if (offset > total || count > total - offset || node->input_bytes != before + offset) {
        return refuse(node);
    }
    const disco_tensor_t *tensor = &model->tensors[model->inputs[input]];
    disco_stream_scatter(model, tensor, 0, tensor->channels, offset, count, payload + INPUT_HEADER_BYTES);
    node->input_bytes += count;
    return DISCO_OK;
}

disco_status_t disco_node_on_host(void *context, disco_link_t *link, uint8_t opcode, const uint8_t *payload,
                                  uint16_t length) {
    disco_node_t *node = context;
    (void)link;
    if (opcode == DISCO_MSG_HELLO) {
        return take_hello(node, payload, length);
    }
    if (node->phase == DISCO_NODE_FAILED) {
        return DISCO_OK; /* the host will find the ERROR */
    }
    if (node->command != 0) {
        return refuse(node);
    }
    switch (opcode) {
    case DISCO_MSG_CONNECT:
        return take_connect(node, payload, length);
    case DISCO_MSG_INPUT:
        return take_input(node, payload, length);
    case DISCO_MSG_RUN:
        return take_run(node, payload, length);
    default:
        return refuse(node);
    }
}

disco_status_t disco_node_on_peer(void *context, disco_link_t *link, uint8_t opcode, const uint8_t *payload,
                                  uint16_t length) {
    disco_node_t *node = context;
    if (node->phase == DISCO_NODE_FAILED) {
        return DISCO_OK;
    }
    if (opcode == DISCO_MSG_PEER_HELLO) {
        return disco_node_take_greeting(node, link->peer, payload, length);
    }
    if (node->phase != DISCO_NODE_CONNECTED) {
        return disco_executor_fail(&node->executor, DISCO_ERR_PROTOCOL, DISCO_NONE, link->peer);
    }
    return disco_executor_receive(&node->executor, link->peer, opcode, payload, length);
}
