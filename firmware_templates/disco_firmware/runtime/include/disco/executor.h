/*
 * Runs a node's model once: op by op, row by row where rows are exchanged. Rows of a tensor that is sent leave as soon as they are
 * final; an op waits only for the halo rows that its next output row needs.
 *
 * Flow control: a node tells each peer by CREDIT which exchanges of which inference may be sent to it; a peer never sends earlier. So a
 * fast node cannot overwrite a buffer that a slow one still uses.
 */
#ifndef DISCO_EXECUTOR_H
#define DISCO_EXECUTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "disco/link.h"
#include "disco/model.h"
#include "disco/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DISCO_MAX_PEERS
#define DISCO_MAX_PEERS 7 /* a build for more nodes says how many */
#endif
#define DISCO_NO_NODE 0xFFu /* of disco_failure_t.peer */

typedef struct {
    uint32_t credit_inference; /* what this peer last allowed us */
    uint16_t credit_opened;
    uint16_t
        next_send; /* index of the first send to this peer that is not packed whole; send_count when there is none */
    uint16_t next_receive; /* and of the first receive from it that has not come whole; receive_count */
    bool credit_pending;   /* a CREDIT of ours waits for room in the window */
} disco_peer_state_t;

/* Where and why a run failed; goes into the ERROR message. */
typedef struct {
    disco_status_t status;
    uint16_t op;            /* index, DISCO_NONE when outside of ops */
    uint16_t exchange;      /* DISCO_NONE when none */
    uint8_t peer;           /* node, 0xFF when none */
    uint32_t missing_bytes; /* of the route that was awaited */
    uint32_t waited_ms;
} disco_failure_t;

typedef struct {
    const disco_model_t *model;
    disco_link_t *links[DISCO_MAX_PEERS + 1]; /* by node index; NULL for the own node and for nodes never talked to */
    disco_link_t *host;                       /* polled while waiting, so that the host's line never stalls */
    disco_peer_state_t peers[DISCO_MAX_PEERS + 1];
    uint32_t inference;    /* number of the current run, from the host; 0 before the first */
    uint16_t op;           /* being run; DISCO_NONE outside of ops */
    uint16_t step;         /* of all ops, the next to be recorded */
    uint16_t opened;       /* exchanges 0..opened-1 of this run may come in */
    uint16_t next_receive; /* index of the first receive that is not opened */
    bool moved;            /* a message to or from a peer was packed or taken since it was last cleared */
    uint32_t deadline_ms;  /* of each wait */
    uint32_t flags;        /* DISCO_RUN_* */
    uint64_t start, end;   /* port ticks of the last run */
    disco_failure_t failure;
} disco_executor_t;

/* Binds a model that passed disco_model_check; forgets all runs and links (the caller sets `links` and `host` afterwards). */
void disco_executor_init(disco_executor_t *executor, const disco_model_t *model);

/* Runs the model on the inputs in the arena. `inference` must rise from run to run. On failure `failure` tells where. Returns when all
 * halo bytes have come and all bytes to send are in the links' windows: the caller goes on polling. */
DISCO_MUST_CHECK disco_status_t disco_executor_run(disco_executor_t *executor, uint32_t inference, uint32_t deadline_ms,
                                                   uint32_t flags);

/* Takes a CREDIT or CHANNELS message from peer `node` (link handlers call it; any bytes are safe to pass). */
DISCO_MUST_CHECK disco_status_t disco_executor_receive(disco_executor_t *executor, uint8_t node, uint8_t opcode,
                                                       const uint8_t *payload, uint16_t length);

/* Notes a failure (the first one counts) at the current op and returns `status`. */
DISCO_MUST_CHECK disco_status_t disco_executor_fail(disco_executor_t *executor, disco_status_t status,
                                                    uint16_t exchange, uint8_t peer);

/* The last input row (0-based, clipped to the tensor) that output row `row` of op `op` needs. */
uint16_t disco_executor_last_input_row(const disco_model_t *model, const disco_op_t *op, uint16_t row);

#ifdef __cplusplus
}
#endif

#endif
