/*
 * Sending. The final bytes of all sends to one peer leave in exchange order, once the peer's credit covers them. A frame goes out when it
 * is full, when it ends its stream, or when the link is eager: when hardly anything is on its way to that peer (after Nagle's rule, RFC 896). So a
 * waiting peer gets the first bytes at once, and while the line is busy with them, rows of few channels gather into full frames.
 */
#include "bytes.h"
#include "disco/port.h"
#include "exchange.h"
#include "stream.h"

#define CHUNK_BYTES (DISCO_LINK_MAX_PAYLOAD - DISCO_CHANNELS_HEADER_BYTES)

uint16_t disco_exchange_next_send(const disco_model_t *model, uint8_t node, uint16_t from) {
    uint16_t index = from;
    while (index < model->send_count && model->sends[index].peer != node) {
        ++index;
    }
    return index;
}

static bool send_credit(disco_executor_t *executor, uint8_t node, disco_link_t *link) {
    uint8_t *payload = disco_link_reserve(link);
    disco_put_u32(payload, executor->inference);
    disco_put_u16(payload + 4, executor->opened);
    if (disco_link_commit(link, DISCO_MSG_CREDIT, DISCO_CREDIT_BYTES) != DISCO_OK) {
        return false;
    }
    executor->peers[node].credit_pending = false;
    executor->moved = true;
    return true;
}

static bool has_credit(const disco_executor_t *executor, uint8_t node, uint16_t exchange) {
    const disco_peer_state_t *peer = &executor->peers[node];
    return peer->credit_inference == executor->inference && exchange < peer->credit_opened;
}

/* Bytes that the next frame of a send may take now; 0 when it should wait. */
static uint32_t frame_bytes(const disco_send_state_t *state, uint32_t total, const disco_link_t *link) {
    const uint32_t waiting = state->final_bytes - state->packed_bytes;
    if (waiting >= CHUNK_BYTES) {
        return CHUNK_BYTES;
    }
    return state->final_bytes == total || disco_link_eager(link) ? waiting : 0;
}

static void fill_frame(const disco_executor_t *executor, const disco_send_t *send, uint32_t offset, uint32_t length,
                       uint8_t *payload) {
    const disco_model_t *model = executor->model;
    payload[0] = (uint8_t)executor->inference;
    payload[1] = (uint8_t)send->exchange;
    disco_put_u16(payload + 2, (uint16_t)offset);
    disco_stream_gather(model, &model->tensors[send->tensor], send->channels, send->channel_count, offset, length,
                        payload + DISCO_CHANNELS_HEADER_BYTES);
}

/* Packs one frame of the peer's next send, of which there is more; false when it should wait. */
static bool send_channels(disco_executor_t *executor, uint8_t node, disco_link_t *link) {
    const disco_model_t *model = executor->model;
    disco_peer_state_t *peer = &executor->peers[node];
    const disco_send_t *send = &model->sends[peer->next_send];
    disco_send_state_t *state = &model->send_states[peer->next_send];
    const uint32_t total = disco_stream_bytes(&model->tensors[send->tensor], send->channel_count);
    const uint32_t length = frame_bytes(state, total, link);
    if (length == 0 || !has_credit(executor, node, send->exchange)) {
        return false;
    }
    fill_frame(executor, send, state->packed_bytes, length, disco_link_reserve(link));
    if (disco_link_commit(link, DISCO_MSG_CHANNELS, (uint16_t)(DISCO_CHANNELS_HEADER_BYTES + length)) != DISCO_OK) {
        return false;
    }
    executor->moved = true;
    state->packed_bytes += length;
    ++state->frames;
    state->last_packed = disco_port_ticks();
    if (state->packed_bytes == total) {
        peer->next_send = disco_exchange_next_send(model, node, (uint16_t)(peer->next_send + 1u));
    }
    return true;
}

void disco_exchange_offer(disco_executor_t *executor, uint8_t node, disco_link_t *link) {
    bool more = true;
    while (more && disco_exchange_has_more(executor, node) && disco_link_ready(link)) {
        more = executor->peers[node].credit_pending ? send_credit(executor, node, link)
                                                    : send_channels(executor, node, link);
    }
}
