/* What goes over the links during a run: credit, channels, and the waits for them. Internal to the executor and the node. */
#ifndef DISCO_EXCHANGE_H
#define DISCO_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "disco/executor.h"

#define DISCO_CREDIT_BYTES          6u
#define DISCO_CHANNELS_HEADER_BYTES 4u

/* Clears the state of sends and receives for a new run. */
void disco_exchange_begin(disco_executor_t *executor);

/* Opens the exchanges whose buffers are free from op `op` on (op_count: all of them), and notes which peers to tell; false when there were
 * none to open. */
bool disco_exchange_open(disco_executor_t *executor, uint16_t op);

/* Rows [0, rows) of the tensor are final: their bytes may leave. */
void disco_exchange_rows_final(disco_executor_t *executor, const disco_tensor_t *tensor, uint16_t rows);

/* Index of the first send to `node` at or after `from`; send_count when there is none. */
uint16_t disco_exchange_next_send(const disco_model_t *model, uint8_t node, uint16_t from);

/* Index of the first receive from `node` at or after `from`; receive_count when there is none. */
uint16_t disco_exchange_next_receive(const disco_model_t *model, uint8_t node, uint16_t from);

/* Whether anything is left to be packed for the peer, whatever else that waits for: most looks at a link find nothing. */
static inline bool disco_exchange_has_more(const disco_executor_t *executor, uint8_t node) {
    const disco_model_t *model = executor->model;
    const disco_peer_state_t *peer = &executor->peers[node];
    if (peer->credit_pending || peer->next_send >= model->send_count) {
        return peer->credit_pending;
    }
    const disco_send_state_t *state = &model->send_states[peer->next_send];
    return state->packed_bytes < state->final_bytes;
}

/* Fills the window of the peer's link. */
void disco_exchange_offer(disco_executor_t *executor, uint8_t node, disco_link_t *link);

/* Polls the host and all peers once. */
DISCO_MUST_CHECK disco_status_t disco_exchange_poll(disco_executor_t *executor);

/* Reads, gives the links what they have room for (credits first, then channels), and writes. Never waits. */
DISCO_MUST_CHECK disco_status_t disco_exchange_pump(disco_executor_t *executor);

/* Restarts the retransmission timers after a computation. */
void disco_exchange_resume(disco_executor_t *executor);

/* As disco_exchange_pump, and resumes: a look at the links after a computation. */
DISCO_MUST_CHECK disco_status_t disco_exchange_serve(disco_executor_t *executor);

/* Whether nothing will ever come over a link again, as far as its port can tell. */
bool disco_exchange_is_lost(const disco_link_t *link);

/* Pumps until rows [0, rows) of the tensor's halo have come. */
DISCO_MUST_CHECK disco_status_t disco_exchange_await_rows(disco_executor_t *executor, const disco_tensor_t *tensor,
                                                          uint16_t rows);

/* Pumps until all bytes of the sends that op `op` must not outlast are in the links' windows. */
DISCO_MUST_CHECK disco_status_t disco_exchange_await_packed(disco_executor_t *executor, uint16_t op);

#endif
