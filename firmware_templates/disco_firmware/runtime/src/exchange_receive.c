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
    executor->moved = true;
    return DISCO_OK;
}

uint16_t disco_exchange_next_receive(const disco_model_t *model, uint8_t node, uint16_t from) {
    uint16_t index = from;
    while (index < model->receive_count && model->receives[index].peer != node) {
        ++index;
    }
    return index;
}

static disco_status_t take_channels(disco_executor_t *executor, uint8_t node, const uint8_t *payload, uint16_t length) {
    const disco_model_t *model = executor->model;
    disco_peer_state_t *peer = &executor->peers[node];
    const uint16_t index = peer->next_receive;
    if (length <= DISCO_CHANNELS_HEADER_BYTES || index >= model->receive_count) {
        return disco_executor_fail(executor, DISCO_ERR_PROTOCOL, DISCO_NONE, node);
    }
    const uint32_t count = (uint32_t)length - DISCO_CHANNELS_HEADER_BYTES;
    const disco_receive_t *receive = &model->receives[index];
    const disco_tensor_t *tensor = &model->tensors[receive->tensor];
    disco_receive_state_t *state = &model->receive_states[index];
    const uint32_t offset = state->received_bytes;
    const uint32_t missing = disco_stream_bytes(tensor, receive->channel_count) - offset;
    const bool expected = payload[0] == (uint8_t)executor->inference && payload[1] == (uint8_t)receive->exchange &&
                          disco_get_u16(payload + 2) == (uint16_t)offset;
    /* Nobody sends without credit, so that bytes of another run or for a buffer that is still in use are a fault of the sender. */
    if (!expected || receive->exchange >= executor->opened || receive->peer != node || count > missing) {
        return disco_executor_fail(executor, DISCO_ERR_PROTOCOL, receive->exchange, node);
    }
    disco_stream_scatter(model, tensor, receive->first_channel, receive->channel_count, offset, count,
                         payload + DISCO_CHANNELS_HEADER_BYTES);
    state->received_bytes += count;
    if (count == missing) {
        peer->next_receive = disco_exchange_next_receive(model, node, (uint16_t)(index + 1u));
    }
    executor->moved = true;
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
