/* Receiving. Whatever a peer may send is checked before a byte is written: nobody sends without our credit. */
#include "bytes.h"
#include "exchange.h"
#include "stream.h"

static disco_status_t take_credit(disco_executor_t *executor, uint8_t node, const uint8_t *payload, uint16_t length) {
    if (length != DISCO_CREDIT_BYTES) {
        return disco_executor_fail(executor, DISCO_ERR_PROTOCOL, DISCO_NONE, node);
    }
    disco_peer_state_t *peer = &executor->peers[node];
    const uint32_t inference = disco_get_u32(payload);
    const uint16_t opened = disco_get_u16(payload + 4);
    /* Credit grows: a later inference, or more of the same one. Of the past it would let us send what was sent already. */
    const bool grows =
        inference > peer->credit_inference || (inference == peer->credit_inference && opened >= peer->credit_opened);
    if (!grows || inference < executor->inference || opened > executor->model->exchange_count) {
        return disco_executor_fail(executor, DISCO_ERR_PROTOCOL, DISCO_NONE, node);
    }
    peer->credit_inference = inference;
    peer->credit_opened = opened;
    return DISCO_OK;
}

/* Index of the receive of `exchange` from `node`; receive_count when there is none. */
static uint16_t find_receive(const disco_model_t *model, uint16_t exchange, uint8_t node) {
    uint16_t i = 0;
    while (i < model->receive_count && (model->receives[i].exchange != exchange || model->receives[i].peer != node)) {
        ++i;
    }
    return i;
}

static disco_status_t take_channels(disco_executor_t *executor, uint8_t node, const uint8_t *payload, uint16_t length) {
    if (length <= DISCO_CHANNELS_HEADER_BYTES) {
        return disco_executor_fail(executor, DISCO_ERR_PROTOCOL, DISCO_NONE, node);
    }
    const disco_model_t *model = executor->model;
    const uint16_t exchange = disco_get_u16(payload + 4);
    const uint32_t offset = disco_get_u32(payload + 8);
    const uint32_t count = (uint32_t)length - DISCO_CHANNELS_HEADER_BYTES;
    const uint16_t index = find_receive(model, exchange, node);
    /* Nobody sends without credit, so that bytes of another run or of a buffer that is still in use are a fault of the sender. */
    if (disco_get_u32(payload) != executor->inference || exchange >= executor->opened ||
        index == model->receive_count) {
        return disco_executor_fail(executor, DISCO_ERR_PROTOCOL, exchange, node);
    }
    const disco_receive_t *receive = &model->receives[index];
    const disco_tensor_t *tensor = &model->tensors[receive->tensor];
    disco_receive_state_t *state = &model->receive_states[index];
    const uint32_t total = disco_stream_bytes(tensor, receive->channel_count);
    if (offset != state->received_bytes || count > total - offset) {
        return disco_executor_fail(executor, DISCO_ERR_PROTOCOL, exchange, node);
    }
    disco_stream_scatter(model, tensor, receive->first_channel, receive->channel_count, offset, count,
                         payload + DISCO_CHANNELS_HEADER_BYTES);
    state->received_bytes += count;
    return DISCO_OK;
}

disco_status_t disco_executor_receive(disco_executor_t *executor, uint8_t node, uint8_t opcode, const uint8_t *payload,
                                      uint16_t length) {
    if (node > DISCO_MAX_PEERS) {
        return disco_executor_fail(executor, DISCO_ERR_PEER, DISCO_NONE, node);
    }
    switch (opcode) {
    case DISCO_MSG_CREDIT:
        return take_credit(executor, node, payload, length);
    case DISCO_MSG_CHANNELS:
        return take_channels(executor, node, payload, length);
    default:
        return disco_executor_fail(executor, DISCO_ERR_PROTOCOL, DISCO_NONE, node);
    }
}
