/* The state of a run, and everything that polls: one place where the links, the deadline and the port's sleep meet. */
#include "exchange.h"

#include <string.h>

#include "disco/port.h"
#include "stream.h"

/* ---- state of a run -------------------------------------------------------------------------------------------------------- */

void disco_exchange_begin(disco_executor_t *executor) {
    const disco_model_t *model = executor->model;
    for (uint16_t i = 0; i < model->send_count; ++i) {
        memset(&model->send_states[i], 0, sizeof model->send_states[i]);
    }
    for (uint16_t i = 0; i < model->receive_count; ++i) {
        memset(&model->receive_states[i], 0, sizeof model->receive_states[i]);
    }
    executor->opened = 0;
    executor->next_receive = 0;
    for (uint8_t node = 0; node <= DISCO_MAX_PEERS; ++node) {
        executor->peers[node].next_send = disco_exchange_next_send(model, node, 0);
        executor->peers[node].next_receive = disco_exchange_next_receive(model, node, 0);
        executor->peers[node].credit_pending = false;
    }
}

bool disco_exchange_open(disco_executor_t *executor, uint16_t op) {
    const disco_model_t *model = executor->model;
    const uint16_t first = executor->next_receive;
    uint16_t next = first;
    while (next < model->receive_count && model->receives[next].open_op <= op) {
        executor->peers[model->receives[next].peer].credit_pending = true;
        ++next;
    }
    executor->next_receive = next;
    executor->opened = next < model->receive_count ? model->receives[next].exchange : model->exchange_count;
    return next > first;
}

void disco_exchange_rows_final(disco_executor_t *executor, const disco_tensor_t *tensor, uint16_t rows) {
    const disco_model_t *model = executor->model;
    for (uint16_t i = tensor->first_send; i < tensor->first_send + tensor->send_count; ++i) {
        disco_send_state_t *state = &model->send_states[i];
        if (state->final_bytes == 0) {
            state->first_queued = disco_port_ticks();
        }
        state->final_bytes = (uint32_t)rows * tensor->width * model->sends[i].channel_count;
    }
}

/* ---- polling --------------------------------------------------------------------------------------------------------------- */

/* After a computation the retransmission timers start anew. The time is read only where there is something to transmit: it takes a port longer
 * than a look at a line on which nothing came. */
static void transmit(disco_link_t *link, bool resumes) {
    if (disco_link_resting(link)) {
        return;
    }
    if (resumes) {
        disco_link_resume(link);
    }
    disco_link_transmit(link, disco_port_milliseconds());
}

static disco_status_t serve_host(disco_executor_t *executor, bool resumes) {
    const disco_status_t status = disco_link_receive(executor->host);
    transmit(executor->host, resumes);
    return status == DISCO_OK ? DISCO_OK : disco_executor_fail(executor, status, DISCO_NONE, DISCO_NO_NODE);
}

/* What is offered between receiving and transmitting acknowledges what was received. */
static disco_status_t serve_peer(disco_executor_t *executor, uint8_t node, bool resumes, bool offers) {
    disco_link_t *link = executor->links[node];
    const disco_status_t status = disco_link_receive(link);
    if (status == DISCO_OK && offers && disco_exchange_has_more(executor, node)) {
        disco_exchange_offer(executor, node, link);
    }
    transmit(link, resumes);
    return status == DISCO_OK ? DISCO_OK : disco_executor_fail(executor, status, DISCO_NONE, node);
}

static disco_status_t serve_all(disco_executor_t *executor, bool resumes, bool offers) {
    const uint8_t nodes = executor->model->node_count;
    disco_status_t status = executor->host != NULL ? serve_host(executor, resumes) : DISCO_OK;
    for (uint8_t node = 0; node < nodes && status == DISCO_OK; ++node) {
        if (executor->links[node] != NULL) {
            status = serve_peer(executor, node, resumes, offers);
        }
    }
    return status;
}

disco_status_t disco_exchange_poll(disco_executor_t *executor) {
    return serve_all(executor, false, false);
}

disco_status_t disco_exchange_pump(disco_executor_t *executor) {
    return serve_all(executor, false, true);
}

disco_status_t disco_exchange_serve(disco_executor_t *executor) {
    return serve_all(executor, true, true);
}

void disco_exchange_resume(disco_executor_t *executor) {
    if (executor->host != NULL) {
        disco_link_resume(executor->host);
    }
    for (uint8_t node = 0; node < executor->model->node_count; ++node) {
        if (executor->links[node] != NULL) {
            disco_link_resume(executor->links[node]);
        }
    }
}

/* ---- waiting --------------------------------------------------------------------------------------------------------------- */

/* Pumps while the node has nothing else to do. It is work where a frame was packed or taken; empty looks are part of the wait. */
static disco_status_t pump_waiting(disco_executor_t *executor, uint64_t *work) {
    executor->moved = false;
    const uint64_t before = disco_port_task_ticks();
    const disco_status_t status = disco_exchange_pump(executor);
    if (executor->moved) {
        *work += disco_port_task_ticks() - before;
    }
    return status;
}

static void count_wait(const disco_executor_t *executor, uint64_t since, uint64_t work) {
    if (executor->op != DISCO_NONE) {
        disco_op_record_t *record = &executor->model->op_records[executor->op];
        record->wait += disco_port_ticks() - since - work;
        record->send += work;
    }
}

static disco_status_t fail_wait(disco_executor_t *executor, disco_status_t why, uint16_t exchange, uint8_t peer,
                                uint32_t missing, uint32_t waited_ms) {
    const disco_status_t status = disco_executor_fail(executor, why, exchange, peer);
    executor->failure.missing_bytes = missing;
    executor->failure.waited_ms = waited_ms;
    return status;
}

bool disco_exchange_is_lost(const disco_link_t *link) {
    const disco_port_info_t *info = disco_port_info();
    return info->is_lost != NULL && info->is_lost(link->port_link);
}

/* Pumps until *progress, a count of bytes of a route to or from `peer`, reaches `target`. */
static disco_status_t await(disco_executor_t *executor, const uint32_t *progress, uint32_t target, uint16_t exchange,
                            uint8_t peer) {
    if (*progress >= target) {
        return DISCO_OK;
    }
    const uint64_t since = disco_port_ticks();
    const uint32_t start_ms = disco_port_milliseconds();
    uint64_t work = 0;
    for (;;) {
        const disco_status_t status = pump_waiting(executor, &work);
        if (status != DISCO_OK) {
            return status;
        }
        if (*progress >= target) {
            count_wait(executor, since, work);
            return DISCO_OK;
        }
        const uint32_t waited_ms = disco_port_milliseconds() - start_ms;
        if (waited_ms >= executor->deadline_ms) {
            return fail_wait(executor, DISCO_ERR_TIMEOUT, exchange, peer, target - *progress, waited_ms);
        }
        if (disco_exchange_is_lost(executor->links[peer])) {
            return fail_wait(executor, DISCO_ERR_LINE, exchange, peer, target - *progress, waited_ms);
        }
        disco_port_wait();
    }
}

disco_status_t disco_exchange_await_rows(disco_executor_t *executor, const disco_tensor_t *tensor, uint16_t rows) {
    const disco_model_t *model = executor->model;
    disco_status_t status = DISCO_OK;
    for (uint16_t i = tensor->first_receive; i < tensor->first_receive + tensor->receive_count && status == DISCO_OK;
         ++i) {
        const disco_receive_t *receive = &model->receives[i];
        const uint32_t target = (uint32_t)rows * tensor->width * receive->channel_count;
        status = await(executor, &model->receive_states[i].received_bytes, target, receive->exchange, receive->peer);
    }
    return status;
}

disco_status_t disco_exchange_await_packed(disco_executor_t *executor, uint16_t op) {
    const disco_model_t *model = executor->model;
    disco_status_t status = DISCO_OK;
    for (uint16_t i = 0; i < model->send_count && status == DISCO_OK; ++i) {
        const disco_send_t *send = &model->sends[i];
        if (send->last_op == op) {
            const uint32_t total = disco_stream_bytes(&model->tensors[send->tensor], send->channel_count);
            status = await(executor, &model->send_states[i].packed_bytes, total, send->exchange, send->peer);
        }
    }
    return status;
}
