/* The main loop: sessions, commands, failures. Nothing blocks here but the commands themselves, and those poll all links. */
#include "disco/node.h"

#include <string.h>

#include "disco/port.h"
#include "exchange.h"
#include "node_internal.h"

/* Peers in rising order, without the node itself, are the port's links 1, 2, ...; link 0 leads to the host. */
static void init_links(disco_node_t *node) {
    const disco_model_t *model = node->model;
    disco_link_init(&node->host, 0, model->node, DISCO_ADDRESS_HOST, disco_node_on_host, node);
    for (uint8_t i = 0; i + 1 < model->node_count; ++i) {
        const uint8_t peer = i < model->node ? i : (uint8_t)(i + 1);
        disco_link_init(&model->peer_links[i], (uint8_t)(i + 1), model->node, peer, disco_node_on_peer, node);
    }
}

static void bind_executor(disco_node_t *node) {
    const disco_model_t *model = node->model;
    disco_executor_init(&node->executor, model);
    node->executor.host = &node->host;
    for (uint8_t i = 0; i + 1 < model->node_count; ++i) {
        node->executor.links[model->peer_links[i].peer] = &model->peer_links[i];
    }
}

static void reset_session(disco_node_t *node) {
    disco_link_reset(&node->host, node->hello_session);
    for (uint8_t i = 0; i + 1 < node->model->node_count; ++i) {
        disco_link_reset(&node->model->peer_links[i], node->hello_session);
    }
    bind_executor(node);
    node->phase = DISCO_NODE_GREETED;
    node->error_pending = false;
    node->command = 0;
    memset(node->greeted, 0, sizeof node->greeted);
    node->input_bytes = 0;
}

static disco_status_t answer_hello(disco_node_t *node) {
    node->hello = false;
    reset_session(node);
    return disco_node_welcome(node);
}

static void enter_failed(disco_node_t *node, disco_status_t status) {
    if (node->executor.failure.status == DISCO_OK) {
        node->executor.failure.status = status;
    }
    node->phase = DISCO_NODE_FAILED;
    node->command = 0;
    node->error_pending = true;
}

static disco_status_t run(disco_node_t *node) {
    disco_executor_t *executor = &node->executor;
    const uint32_t missing = disco_node_total_input_bytes(node->model) - node->input_bytes;
    if (missing > 0) {
        executor->failure.missing_bytes = missing;
        return disco_executor_fail(executor, DISCO_ERR_PROTOCOL, DISCO_NONE, DISCO_NO_NODE);
    }
    node->input_bytes = 0; /* the run may write over the inputs */
    const disco_status_t status = disco_executor_run(executor, node->inference, node->deadline_ms, node->flags);
    return status == DISCO_OK ? disco_node_report(node) : status;
}

static disco_status_t carry_out(disco_node_t *node) {
    const disco_status_t status = node->command == DISCO_MSG_RUN ? run(node) : disco_node_connect(node);
    node->command = 0;
    return status;
}

/* One turn; false when nothing is left to do but to wait for bytes. */
static bool turn(disco_node_t *node) {
    disco_status_t status = disco_exchange_poll(&node->executor);
    bool busy = false;
    if (status == DISCO_OK && !node->hello && node->command != 0) {
        status = carry_out(node);
        busy = true;
    }
    if (node->hello) { /* comes before any failure: it ended what ran */
        status = answer_hello(node);
        busy = true;
    }
    if (status != DISCO_OK && node->phase != DISCO_NODE_FAILED) {
        enter_failed(node, status);
    }
    if (node->error_pending && disco_node_send_error(node)) {
        node->error_pending = false;
        busy = true;
    }
    return busy;
}

disco_status_t disco_node_serve(const disco_model_t *model) {
    static disco_node_t node;
    memset(&node, 0, sizeof node);
    node.model = model;
    uint16_t op = DISCO_NONE;
    const disco_status_t sound = disco_model_check(model, &op);
    if (sound != DISCO_OK) {
        return sound;
    }
    init_links(&node);
    bind_executor(&node);
    for (;;) {
        if (!turn(&node)) {
            disco_port_wait();
        }
    }
}
