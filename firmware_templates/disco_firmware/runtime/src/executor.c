/* Runs the ops of a node's model in program order, joined ones together, and stamps them. */
#include "disco/executor.h"

#include <string.h>

#include "disco/crc32.h"
#include "disco/port.h"
#include "dispatch.h"
#include "exchange.h"

void disco_executor_init(disco_executor_t *executor, const disco_model_t *model) {
    memset(executor, 0, sizeof *executor);
    executor->model = model;
    executor->op = DISCO_NONE;
    executor->failure.op = DISCO_NONE;
    executor->failure.exchange = DISCO_NONE;
    executor->failure.peer = DISCO_NO_NODE;
}

disco_status_t disco_executor_fail(disco_executor_t *executor, disco_status_t status, uint16_t exchange, uint8_t peer) {
    if (executor->failure.status == DISCO_OK) {
        executor->failure.status = status;
        executor->failure.op = executor->op;
        executor->failure.exchange = exchange;
        executor->failure.peer = peer;
    }
    return status;
}

/* ---- rows ------------------------------------------------------------------------------------------------------------------ */

static uint16_t clip_row(int32_t row, uint16_t height) {
    if (row < 0) {
        return 0;
    }
    return row < height ? (uint16_t)row : (uint16_t)(height - 1);
}

static int32_t last_window_row(const disco_window_t *window, uint16_t row) {
    return (int32_t)row * window->stride_h + (int32_t)(window->kernel_h - 1) * window->dilation_h - window->pad_top;
}

uint16_t disco_executor_last_input_row(const disco_model_t *model, const disco_op_t *op, uint16_t row) {
    const uint16_t height = model->tensors[op->inputs[0].tensor].height;
    if (disco_dispatch_has_window(op->kind)) {
        return clip_row(last_window_row(op->params, row), height);
    }
    switch (op->kind) {
    case DISCO_OP_PAD:
        return clip_row((int32_t)row - ((const disco_pad_t *)op->params)->pad_top, height);
    case DISCO_OP_MEAN:
    case DISCO_OP_RESHAPE:
        return (uint16_t)(height - 1);
    default:
        return clip_row(row, height); /* pixel by pixel */
    }
}

static bool reads_halo(const disco_model_t *model, const disco_operand_t *operand) {
    return operand->channels > model->tensors[operand->tensor].channels;
}

static bool is_exchanged(const disco_model_t *model, const disco_op_t *op) {
    bool exchanged = model->tensors[op->output].send_count > 0;
    for (uint16_t i = 0; i < op->input_count; ++i) {
        exchanged = exchanged || reads_halo(model, &op->inputs[i]);
    }
    return exchanged;
}

/* The op behind the last one that is joined to op `first`, one to another. */
static uint16_t end_of_joined(const disco_model_t *model, uint16_t first) {
    uint16_t end = (uint16_t)(first + 1);
    while (end < model->op_count && model->ops[end].joined != 0) {
        ++end;
    }
    return end;
}

/* Where the operating system moves the bytes during the computation and a look at the links costs calls of it, a tensor that is
 * exchanged goes in so few steps: enough for a slow line to be busy meanwhile. */
#define STREAM_STEPS 4u

/* Rows that the ops [first, end) compute between two looks at the links. A fixed property of the model, not of what has come in
 * already: so that an op's compute count is the same in every run. */
static uint16_t row_step(const disco_model_t *model, uint16_t first, uint16_t end) {
    const disco_op_t *op = &model->ops[first];
    bool exchanged = false;
    for (uint16_t i = first; i < end; ++i) {
        exchanged = exchanged || is_exchanged(model, &model->ops[i]);
    }
    if (!exchanged || disco_dispatch_is_whole(op->kind)) {
        return model->tensors[op->output].height;
    }
    if (op->run != NULL) {
        return op->row_step;
    }
    return DISCO_STREAM_LINES ? (uint16_t)((model->tensors[op->output].height + STREAM_STEPS - 1u) / STREAM_STEPS) : 1;
}

/* Waits for the halo that the output rows before `row_end` need. The last ones wait for all of it, needed or not: after the op the
 * buffer may be used for something else. */
static disco_status_t await_input(disco_executor_t *executor, const disco_op_t *op, uint16_t row_end) {
    const disco_model_t *model = executor->model;
    const bool last = row_end == model->tensors[op->output].height;
    const uint16_t rows = (uint16_t)(disco_executor_last_input_row(model, op, (uint16_t)(row_end - 1)) + 1);
    disco_status_t status = DISCO_OK;
    for (uint16_t i = 0; i < op->input_count && status == DISCO_OK; ++i) {
        const disco_tensor_t *tensor = &model->tensors[op->inputs[i].tensor];
        if (reads_halo(model, &op->inputs[i])) {
            status = disco_exchange_await_rows(executor, tensor, last ? tensor->height : rows);
        }
    }
    return status;
}

static void compute_rows(disco_executor_t *executor, const disco_op_t *op, uint16_t row_begin, uint16_t row_end) {
    const disco_model_t *model = executor->model;
    const uint64_t before = disco_port_task_ticks();
    disco_dispatch(model, op, row_begin, row_end);
    const uint64_t ticks = disco_port_task_ticks() - before;
    model->op_records[executor->op].compute += ticks;
    if (executor->step < model->step_count) {
        model->step_ticks[executor->step++] = ticks < UINT32_MAX ? (uint32_t)ticks : UINT32_MAX;
    }
}

/* Non-blocking work on the links after a computation. */
static disco_status_t serve_links(disco_executor_t *executor) {
    const uint64_t before = disco_port_task_ticks();
    const disco_status_t status = disco_exchange_serve(executor);
    executor->model->op_records[executor->op].send += disco_port_task_ticks() - before;
    return status;
}

/* ---- ops ------------------------------------------------------------------------------------------------------------------- */

/* The CRC-32 of computed channels, continued over the rows [row_begin, row_end). */
static uint32_t computed_checksum(const disco_model_t *model, const disco_tensor_t *tensor, uint32_t crc,
                                  uint16_t row_begin, uint16_t row_end) {
    const int8_t *pixels = model->arena + tensor->arena_offset;
    for (uint32_t i = (uint32_t)row_begin * tensor->width; i < (uint32_t)row_end * tensor->width; ++i) {
        crc = disco_crc32(crc, (const uint8_t *)&pixels[(size_t)i * tensor->stride], tensor->channels);
    }
    return crc;
}

static void run_rows(disco_executor_t *executor, uint16_t index, uint16_t row_begin, uint16_t row_end) {
    const disco_model_t *model = executor->model;
    const disco_tensor_t *output = &model->tensors[model->ops[index].output];
    executor->op = index;
    compute_rows(executor, &model->ops[index], row_begin, row_end);
    if ((executor->flags & DISCO_RUN_CHECKSUMS) != 0) {
        uint32_t *crc = &model->op_records[index].checksum;
        *crc = computed_checksum(model, output, *crc, row_begin, row_end);
    }
    disco_exchange_rows_final(executor, output, row_end);
}

/* All rows of the ops [first, end), step by step. Only the first waits: the others read nothing else that comes from peers. */
static disco_status_t run_steps(disco_executor_t *executor, uint16_t first, uint16_t end) {
    const disco_model_t *model = executor->model;
    const disco_op_t *op = &model->ops[first];
    const uint16_t height = model->tensors[op->output].height;
    const uint16_t step = row_step(model, first, end);
    for (uint16_t row = 0; row < height;) {
        const uint16_t left = (uint16_t)(height - row);
        const uint16_t row_end = (uint16_t)(row + (step < left ? step : left));
        executor->op = first;
        disco_status_t status = await_input(executor, op, row_end);
        if (status != DISCO_OK) {
            return status;
        }
        for (uint16_t i = first; i < end; ++i) {
            run_rows(executor, i, row, row_end);
        }
        status = serve_links(executor);
        if (status != DISCO_OK) {
            return status;
        }
        row = row_end;
    }
    return DISCO_OK;
}

/* Runs the op and those joined to it, whose records span the same time. */
static disco_status_t run_joined(disco_executor_t *executor, uint16_t first, uint16_t end) {
    disco_op_record_t *records = executor->model->op_records;
    memset(&records[first], 0, (size_t)(end - first) * sizeof *records);
    executor->op = first;
    const uint64_t start = disco_port_ticks();
    disco_status_t status = DISCO_OK;
    if (disco_exchange_open(executor, (uint16_t)(end - 1))) {
        status = serve_links(executor); /* the peers may send as early as can be */
    }
    if (status == DISCO_OK) {
        status = run_steps(executor, first, end);
    }
    for (uint16_t i = first; i < end && status == DISCO_OK; ++i) {
        executor->op = i;
        status = disco_exchange_await_packed(executor, i);
    }
    const uint64_t stop = disco_port_ticks();
    for (uint16_t i = first; i < end; ++i) {
        records[i].start = start;
        records[i].end = stop;
    }
    return status;
}

/* A run ends with nothing under way towards this node, so that the next one starts from a known state. */
static disco_status_t finish(disco_executor_t *executor) {
    const disco_model_t *model = executor->model;
    executor->op = DISCO_NONE;
    (void)disco_exchange_open(executor, model->op_count);
    disco_exchange_resume(executor);
    disco_status_t status = DISCO_OK;
    for (uint16_t i = 0; i < model->receive_count && status == DISCO_OK; ++i) {
        const disco_tensor_t *tensor = &model->tensors[model->receives[i].tensor];
        status = disco_exchange_await_rows(executor, tensor, tensor->height);
    }
    return status;
}

disco_status_t disco_executor_run(disco_executor_t *executor, uint32_t inference, uint32_t deadline_ms,
                                  uint32_t flags) {
    if (inference <= executor->inference) {
        return disco_executor_fail(executor, DISCO_ERR_PROTOCOL, DISCO_NONE, DISCO_NO_NODE);
    }
    executor->inference = inference;
    executor->deadline_ms = deadline_ms;
    executor->flags = flags;
    executor->step = 0;
    executor->start = disco_port_ticks();
    disco_exchange_begin(executor);
    disco_status_t status = DISCO_OK;
    for (uint16_t i = 0; i < executor->model->op_count && status == DISCO_OK;) {
        const uint16_t end = end_of_joined(executor->model, i);
        status = run_joined(executor, i, end);
        i = end;
    }
    if (status == DISCO_OK) {
        status = finish(executor);
    }
    executor->end = disco_port_ticks();
    executor->op = DISCO_NONE;
    return status;
}
