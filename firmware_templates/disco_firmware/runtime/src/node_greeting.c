/* The handshakes: WELCOME to the host, PEER_HELLO with the peers. */
#include <string.h>

#include "bytes.h"
#include "disco/port.h"
#include "exchange.h"
#include "node_internal.h"

enum { WELCOME_BYTES = 96, BOARD_BYTES = 32, CORE_BYTES = 16, PEER_HELLO_BYTES = DISCO_BUNDLE_ID_BYTES + 4 };

typedef char welcome_fits[WELCOME_BYTES <= DISCO_CONTROL_MAX_PAYLOAD ? 1 : -1];

static void put_name(uint8_t *at, const char *name, size_t size) {
    for (size_t i = 0; i + 1 < size && name[i] != '\0'; ++i) {
        at[i] = (uint8_t)name[i];
    }
}

/* u16 protocol version, u16 model ABI, u8 node, u8 node count, u8 unit, u8 endianness (1: little), u32 ticks per second, u32 clock in Hz,
 * u32 resolution in ticks, u32 free RAM in bytes, u32 room for the stack in bytes, u16 largest payload, u8 links, u8 0, u8 bundle id[16], char board[32],
 * char core[16]. */
disco_status_t disco_node_welcome(disco_node_t *node) {
    const disco_model_t *model = node->model;
    const disco_port_info_t *info = disco_port_info();
    const uint16_t one = 1;
    uint8_t payload[WELCOME_BYTES] = {0};
    disco_put_u16(payload, DISCO_PROTOCOL_VERSION);
    disco_put_u16(payload + 2, model->abi);
    payload[4] = model->node;
    payload[5] = model->node_count;
    payload[6] = (uint8_t)info->unit;
    payload[7] = *(const uint8_t *)&one;
    disco_put_u32(payload + 8, info->ticks_per_second);
    disco_put_u32(payload + 12, info->clock_hz);
    disco_put_u32(payload + 16, info->resolution_ticks);
    disco_put_u32(payload + 20, info->free_ram_bytes);
    disco_put_u32(payload + 24, info->stack_bytes);
    disco_put_u16(payload + 28, DISCO_LINK_MAX_PAYLOAD);
    payload[30] = info->link_count;
    memcpy(payload + 32, model->bundle_id, DISCO_BUNDLE_ID_BYTES);
    put_name(payload + 48, info->board, BOARD_BYTES);
    put_name(payload + 80, info->core, CORE_BYTES);
    return disco_link_send_control(&node->host, DISCO_MSG_WELCOME, payload, WELCOME_BYTES);
}

static disco_status_t greet_peers(disco_node_t *node) {
    const disco_model_t *model = node->model;
    for (uint8_t i = 0; i + 1 < model->node_count; ++i) {
        disco_link_t *link = &model->peer_links[i];
        if (link->port_link >= disco_port_info()->link_count) {
            return disco_executor_fail(&node->executor, DISCO_ERR_PORT, DISCO_NONE, link->peer);
        }
        uint8_t payload[PEER_HELLO_BYTES] = {0};
        memcpy(payload, model->bundle_id, DISCO_BUNDLE_ID_BYTES);
        payload[DISCO_BUNDLE_ID_BYTES] = model->node;
        payload[DISCO_BUNDLE_ID_BYTES + 1] = model->node_count;
        disco_put_u16(payload + DISCO_BUNDLE_ID_BYTES + 2, DISCO_PROTOCOL_VERSION);
        const disco_status_t status = disco_link_send(link, DISCO_MSG_PEER_HELLO, payload, PEER_HELLO_BYTES);
        if (status != DISCO_OK) {
            return disco_executor_fail(&node->executor, status, DISCO_NONE, link->peer);
        }
    }
    return DISCO_OK;
}

static disco_status_t judge_greeting(const disco_model_t *model, uint8_t peer, const uint8_t *payload) {
    if (disco_get_u16(payload + DISCO_BUNDLE_ID_BYTES + 2) != DISCO_PROTOCOL_VERSION) {
        return DISCO_ERR_VERSION;
    }
    if (memcmp(payload, model->bundle_id, DISCO_BUNDLE_ID_BYTES) != 0) {
        return DISCO_ERR_BUNDLE;
    }
    if (payload[DISCO_BUNDLE_ID_BYTES] != peer || payload[DISCO_BUNDLE_ID_BYTES + 1] != model->node_count) {
        return DISCO_ERR_PEER;
    }
    return DISCO_OK;
}

disco_status_t disco_node_take_greeting(disco_node_t *node, uint8_t peer, const uint8_t *payload, uint16_t length) {
    if (length != PEER_HELLO_BYTES || node->greeted[peer]) {
        return disco_executor_fail(&node->executor, DISCO_ERR_PROTOCOL, DISCO_NONE, peer);
    }
    const disco_status_t status = judge_greeting(node->model, peer, payload);
    if (status != DISCO_OK) {
        return disco_executor_fail(&node->executor, status, DISCO_NONE, peer);
    }
    node->greeted[peer] = true;
    return DISCO_OK;
}

/* The first peer that has not greeted; DISCO_NO_NODE when all have. */
static uint8_t first_silent_peer(const disco_node_t *node) {
    for (uint8_t i = 0; i + 1 < node->model->node_count; ++i) {
        const uint8_t peer = node->model->peer_links[i].peer;
        if (!node->greeted[peer]) {
            return peer;
        }
    }
    return DISCO_NO_NODE;
}

static disco_status_t await_greetings(disco_node_t *node) {
    disco_executor_t *executor = &node->executor;
    const uint32_t start_ms = disco_port_milliseconds();
    for (;;) {
        const disco_status_t status = disco_exchange_poll(executor);
        const uint8_t silent = first_silent_peer(node);
        if (status != DISCO_OK || silent == DISCO_NO_NODE) {
            return status;
        }
        const uint32_t waited_ms = disco_port_milliseconds() - start_ms;
        if (waited_ms >= node->deadline_ms) {
            executor->failure.waited_ms = waited_ms;
            return disco_executor_fail(executor, DISCO_ERR_TIMEOUT, DISCO_NONE, silent);
        }
        if (disco_exchange_is_lost(executor->links[silent])) {
            return disco_executor_fail(executor, DISCO_ERR_LINE, DISCO_NONE, silent);
        }
        disco_port_wait();
    }
}

disco_status_t disco_node_connect(disco_node_t *node) {
    disco_status_t status = greet_peers(node);
    if (status == DISCO_OK) {
        status = await_greetings(node);
    }
    uint8_t *payload;
    if (status == DISCO_OK) {
        status = disco_node_reserve(node, &payload);
    }
    if (status == DISCO_OK) {
        status = disco_link_commit(&node->host, DISCO_MSG_CONNECTED, 0);
    }
    if (status == DISCO_OK) {
        node->phase = DISCO_NODE_CONNECTED;
    }
    return status;
}
