/* What a node tells the host after a run. */
#include <string.h>

#include "bytes.h"
#include "disco/port.h"
#include "exchange.h"
#include "node_internal.h"
#include "stream.h"

#define OUTPUT_HEADER_BYTES  8u
#define OUTPUT_CHUNK_BYTES   (DISCO_LINK_MAX_PAYLOAD - OUTPUT_HEADER_BYTES)
#define RECORDS_HEADER_BYTES 8u
#define DONE_BYTES           24u
#define ERROR_BYTES          16u

typedef void (*put_record_t)(const disco_node_t *node, uint16_t index, uint8_t *at);

disco_status_t disco_node_reserve(disco_node_t *node, uint8_t **payload) {
    disco_executor_t *executor = &node->executor;
    const uint32_t start_ms = disco_port_milliseconds();
    while (!disco_link_ready(&node->host)) {
        const disco_status_t status = disco_exchange_poll(executor);
        if (status != DISCO_OK) {
            return status;
        }
        const uint32_t waited_ms = disco_port_milliseconds() - start_ms;
        if (disco_link_ready(&node->host)) {
            break;
        }
        if (waited_ms >= node->deadline_ms) {
            executor->failure.waited_ms = waited_ms;
            return disco_executor_fail(executor, DISCO_ERR_TIMEOUT, DISCO_NONE, DISCO_ADDRESS_HOST);
        }
        disco_port_wait();
    }
    *payload = disco_link_reserve(&node->host);
    return DISCO_OK;
}

static disco_status_t report_output(disco_node_t *node, uint16_t output) {
    const disco_model_t *model = node->model;
    const disco_tensor_t *tensor = &model->tensors[model->outputs[output]];
    const uint32_t total = disco_stream_bytes(tensor, tensor->channels);
    for (uint32_t offset = 0; offset < total; offset += OUTPUT_CHUNK_BYTES) {
        const uint32_t left = total - offset;
        const uint32_t length = left < OUTPUT_CHUNK_BYTES ? left : OUTPUT_CHUNK_BYTES;
        uint8_t *payload;
        disco_status_t status = disco_node_reserve(node, &payload);
        if (status == DISCO_OK) {
            disco_put_u16(payload, output);
            disco_put_u16(payload + 2, 0);
            disco_put_u32(payload + 4, offset);
            disco_stream_gather(model, tensor, NULL, tensor->channels, offset, length, payload + OUTPUT_HEADER_BYTES);
            status = disco_link_commit(&node->host, DISCO_MSG_OUTPUT, (uint16_t)(OUTPUT_HEADER_BYTES + length));
        }
        if (status != DISCO_OK) {
            return status;
        }
    }
    return DISCO_OK;
}

static void put_op_record(const disco_node_t *node, uint16_t index, uint8_t *at) {
    const disco_op_record_t *record = &node->model->op_records[index];
    disco_put_u64(at, record->start);
    disco_put_u64(at + 8, record->end);
    disco_put_u64(at + 16, record->compute);
    disco_put_u64(at + 24, record->wait);
    disco_put_u64(at + 32, record->send);
    disco_put_u32(at + 40, record->checksum);
    disco_put_u32(at + 44, 0);
}

static void put_route_record(const disco_node_t *node, uint16_t index, uint8_t *at) {
    const disco_send_state_t *state = &node->model->send_states[index];
    disco_put_u64(at, state->first_queued);
    disco_put_u64(at + 8, state->last_packed);
    disco_put_u32(at + 16, state->packed_bytes);
    disco_put_u32(at + 20, state->frames);
    disco_put_u32(at + 24, node->executor.links[node->model->sends[index].peer]->stats.retransmissions);
    disco_put_u32(at + 28, 0);
}

static void put_step(const disco_node_t *node, uint16_t index, uint8_t *at) {
    disco_put_u32(at, node->model->step_ticks[index]);
}

/* Sends `count` records of `size` bytes, as many in a message as fit. */
static disco_status_t report_records(disco_node_t *node, uint8_t opcode, uint16_t count, uint16_t size,
                                     put_record_t put) {
    const uint16_t fit = (uint16_t)((DISCO_LINK_MAX_PAYLOAD - RECORDS_HEADER_BYTES) / size);
    for (uint16_t first = 0; first < count; first = (uint16_t)(first + fit)) {
        const uint16_t left = (uint16_t)(count - first);
        const uint16_t here = left < fit ? left : fit;
        uint8_t *payload;
        disco_status_t status = disco_node_reserve(node, &payload);
        if (status == DISCO_OK) {
            disco_put_u32(payload, node->executor.inference);
            disco_put_u16(payload + 4, first);
            disco_put_u16(payload + 6, here);
            for (uint16_t i = 0; i < here; ++i) {
                put(node, (uint16_t)(first + i), payload + RECORDS_HEADER_BYTES + (size_t)i * size);
            }
            status = disco_link_commit(&node->host, opcode, (uint16_t)(RECORDS_HEADER_BYTES + here * size));
        }
        if (status != DISCO_OK) {
            return status;
        }
    }
    return DISCO_OK;
}

static disco_status_t report_done(disco_node_t *node) {
    uint8_t *payload;
    const disco_status_t status = disco_node_reserve(node, &payload);
    if (status != DISCO_OK) {
        return status;
    }
    disco_put_u32(payload, node->executor.inference);
    disco_put_u32(payload + 4, disco_port_stack_used());
    disco_put_u64(payload + 8, node->executor.start);
    disco_put_u64(payload + 16, node->executor.end);
    return disco_link_commit(&node->host, DISCO_MSG_DONE, DONE_BYTES);
}

disco_status_t disco_node_report(disco_node_t *node) {
    const disco_model_t *model = node->model;
    disco_status_t status = DISCO_OK;
    disco_exchange_resume(&node->executor);
    for (uint16_t i = 0; i < model->output_count && status == DISCO_OK; ++i) {
        status = model->outputs[i] != DISCO_NONE ? report_output(node, i) : DISCO_OK;
    }
    if (status == DISCO_OK) {
        status = report_records(node, DISCO_MSG_OPS, model->op_count, DISCO_OP_RECORD_BYTES, put_op_record);
    }
    if (status == DISCO_OK) {
        status = report_records(node, DISCO_MSG_ROUTES, model->send_count, DISCO_ROUTE_RECORD_BYTES, put_route_record);
    }
    if (status == DISCO_OK) {
        status = report_records(node, DISCO_MSG_STEPS, model->step_count, sizeof(uint32_t), put_step);
    }
    return status == DISCO_OK ? report_done(node) : status;
}

bool disco_node_send_error(disco_node_t *node) {
    const disco_failure_t *failure = &node->executor.failure;
    if (!disco_link_ready(&node->host)) {
        return false;
    }
    uint8_t *payload = disco_link_reserve(&node->host);
    disco_put_u16(payload, (uint16_t)failure->status);
    disco_put_u16(payload + 2, failure->op);
    disco_put_u16(payload + 4, failure->exchange);
    payload[6] = failure->peer;
    payload[7] = 0;
    disco_put_u32(payload + 8, failure->missing_bytes);
    disco_put_u32(payload + 12, failure->waited_ms);
    return disco_link_commit(&node->host, DISCO_MSG_ERROR, ERROR_BYTES) == DISCO_OK;
}
