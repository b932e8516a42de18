/*
 * The description of one node's share of a model: constant data that the generated disco_model.c fills in and the executor reads.
 */
#ifndef DISCO_MODEL_H
#define DISCO_MODEL_H

#include <stdint.h>

#include "disco/kernels.h"
#include "disco/link.h"
#include "disco/protocol.h"
#include "disco/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Layout of the structures below. Generated code checks it at compile time. */
#define DISCO_MODEL_ABI 4

#define DISCO_NONE      0xFFFFu

/* An activation: [height][width] pixels of `stride` bytes: the channels that the node computes (all of them when replicated), then
 * halo channels, then room for those of a tensor that is computed over it. Tensors may lie over each other: the converter knows
 * which kernels allow it. */
typedef struct {
    uint32_t arena_offset; /* bytes from the start of the arena */
    uint16_t height, width;
    uint16_t channels;                     /* that the node computes: its own, and those that it recomputes */
    uint16_t stride;                       /* bytes from a pixel to the next */
    uint16_t first_send, send_count;       /* in disco_model_t.sends: to whom rows go as they become final */
    uint16_t first_receive, receive_count; /* in disco_model_t.receives: from whom halo channels come */
} disco_tensor_t;

typedef enum {
    DISCO_OP_CONV_2D = 0,       /* disco_conv2d_t */
    DISCO_OP_DEPTHWISE_CONV_2D, /* disco_depthwise_conv2d_t */
    DISCO_OP_FULLY_CONNECTED,   /* disco_fully_connected_t */
    DISCO_OP_ADD,               /* disco_add_t */
    DISCO_OP_AVERAGE_POOL_2D,   /* disco_pool2d_t */
    DISCO_OP_MAX_POOL_2D,       /* disco_pool2d_t */
    DISCO_OP_MEAN,              /* disco_mean_t */
    DISCO_OP_PAD,               /* disco_pad_t */
    DISCO_OP_CONCATENATION,     /* array of input_count disco_copy_channels_t */
    DISCO_OP_SELECT_CHANNELS,   /* disco_select_channels_t */
    DISCO_OP_RESHAPE,           /* NULL; whole tensor */
    DISCO_OP_RELU,              /* disco_relu_t */
    DISCO_OP_SOFTMAX,           /* disco_softmax_t */
    DISCO_OP_MUL                /* disco_mul_t */
} disco_op_kind_t;

typedef struct {
    uint16_t tensor;
    uint16_t channels; /* leading channels that the op reads; if more than the computed ones, it reads the halo */
} disco_operand_t;

/* A kernel that the generated code has specialised for one op. It is called with the op's rows in order, in ranges that begin
 * at multiples of the op's `row_step`. */
typedef void (*disco_run_rows_t)(uint16_t row_begin, uint16_t row_end);

typedef struct {
    disco_op_kind_t kind;
    const disco_operand_t *inputs;
    uint16_t input_count;
    uint16_t output;
    const void
        *params; /* structure named beside the kind; with `run` only its window, where it begins with one, else NULL */
    disco_run_rows_t run; /* NULL: the portable kernel */
    uint16_t row_step;    /* output rows between two looks at the links: all, or a multiple of what `run` takes */
    uint16_t joined; /* 1: its rows are computed right after the same rows of the op before it; see model_check.c */
} disco_op_t;

/* Channels of one tensor that go to one peer. The route's stream is [height][width][channel_count] bytes. */
typedef struct {
    uint16_t exchange; /* number of the exchange, the same on all nodes, rising in program order */
    uint16_t tensor;
    uint16_t last_op; /* all bytes must be packed when this op has ended: its buffer may be written again after it */
    uint8_t peer;
    uint16_t channel_count;
    const uint16_t *channels; /* positions in this node's pixel */
} disco_send_t;

/* Channels that come from one peer; they lie next to each other in the pixel. */
typedef struct {
    uint16_t exchange;
    uint16_t tensor;
    uint16_t
        open_op; /* the buffer is free for halo bytes from the start of this op; not falling with the exchange number */
    uint8_t peer;
    uint16_t channel_count;
    uint16_t first_channel; /* position of the first in the pixel */
} disco_receive_t;

/* What the executor writes while it runs; static arrays of the generated code, one entry per op, send and receive. */
typedef struct {
    uint64_t start, end; /* port ticks; end - start >= compute + wait + send */
    uint64_t compute, wait,
        send; /* kernels; blocked on halo rows or on the line; packing and protocol work. Interrupts are in wait alone */
    uint32_t checksum; /* CRC-32 of the output channels that it computes, when asked for */
} disco_op_record_t;

typedef struct {
    uint32_t final_bytes;  /* bytes of the stream whose rows are final */
    uint32_t packed_bytes; /* bytes handed to the link */
    uint32_t frames;
    uint64_t first_queued, last_packed; /* port ticks */
} disco_send_state_t;

typedef struct {
    uint32_t received_bytes; /* bytes of the stream that are in the buffer, in order from 0 */
} disco_receive_state_t;

typedef struct {
    uint16_t abi; /* DISCO_MODEL_ABI */
    uint8_t node, node_count;
    uint8_t bundle_id[DISCO_BUNDLE_ID_BYTES];
    const disco_tensor_t *tensors;
    const disco_op_t *ops;
    const disco_send_t *sends;       /* by rising exchange, so that those of one tensor lie together */
    const disco_receive_t *receives; /* by rising exchange, likewise */
    const uint16_t *inputs;          /* tensors */
    const uint16_t *outputs;         /* tensors; DISCO_NONE where this node owns no channel of that output */
    uint16_t tensor_count, op_count, send_count, receive_count, input_count, output_count;
    uint16_t exchange_count; /* of the whole model */
    uint32_t arena_bytes;
    int8_t *arena;                         /* static, 8-byte aligned */
    disco_op_record_t *op_records;         /* static, op_count */
    uint32_t *step_ticks;                  /* static, step_count: port ticks that each step of each op computed */
    uint16_t step_count;                   /* in a run, in the order of execution; 0 where they are not recorded */
    disco_send_state_t *send_states;       /* static, send_count */
    disco_receive_state_t *receive_states; /* static, receive_count */
    disco_link_t *peer_links; /* static, node_count - 1, to the peers in rising node order; NULL for one node */
} disco_model_t;

/* Whether the description makes sense: every index, channel range, buffer and ordering rule above. ERR_ARGUMENT or
 * ERR_UNSUPPORTED; `op` is then the op at fault, or DISCO_NONE. The executor relies on all of it. */
DISCO_MUST_CHECK disco_status_t disco_model_check(const disco_model_t *model, uint16_t *op);

/* Defined by the generated disco_model.c. */
extern const disco_model_t disco_model;

#ifdef __cplusplus
}
#endif

#endif
