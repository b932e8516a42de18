/* One small function per operator: it makes the portable kernel's views of the arena and calls it. Ops with a specialised kernel bring
 * their own. */
#include "dispatch.h"

#include <stddef.h>

typedef void (*runner_t)(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin, uint16_t row_end);

static disco_input_t input_view(const disco_model_t *model, const disco_op_t *op, uint16_t index) {
    const disco_operand_t *operand = &op->inputs[index];
    const disco_tensor_t *tensor = &model->tensors[operand->tensor];
    const disco_input_t view = {model->arena + tensor->arena_offset, tensor->height, tensor->width, operand->channels,
                                tensor->stride};
    return view;
}

static disco_output_t output_view(const disco_model_t *model, const disco_op_t *op) {
    const disco_tensor_t *tensor = &model->tensors[op->output];
    const disco_output_t view = {model->arena + tensor->arena_offset, tensor->height, tensor->width, tensor->channels,
                                 tensor->stride};
    return view;
}

static void run_conv2d(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin, uint16_t row_end) {
    const disco_input_t in = input_view(model, op, 0);
    const disco_output_t out = output_view(model, op);
    disco_conv2d_s8(op->params, &in, &out, row_begin, row_end);
}

static void run_depthwise_conv2d(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin,
                                 uint16_t row_end) {
    const disco_input_t in = input_view(model, op, 0);
    const disco_output_t out = output_view(model, op);
    disco_depthwise_conv2d_s8(op->params, &in, &out, row_begin, row_end);
}

static void run_fully_connected(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin,
                                uint16_t row_end) {
    const disco_input_t in = input_view(model, op, 0);
    const disco_output_t out = output_view(model, op);
    disco_fully_connected_s8(op->params, &in, &out, row_begin, row_end);
}

static void run_add(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin, uint16_t row_end) {
    const disco_input_t in1 = input_view(model, op, 0);
    const disco_input_t in2 = input_view(model, op, 1);
    const disco_output_t out = output_view(model, op);
    disco_add_s8(op->params, &in1, &in2, &out, row_begin, row_end);
}

static void run_mul(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin, uint16_t row_end) {
    const disco_input_t in1 = input_view(model, op, 0);
    const disco_input_t in2 = input_view(model, op, 1);
    const disco_output_t out = output_view(model, op);
    disco_mul_s8(op->params, &in1, &in2, &out, row_begin, row_end);
}

static void run_average_pool2d(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin, uint16_t row_end) {
    const disco_input_t in = input_view(model, op, 0);
    const disco_output_t out = output_view(model, op);
    disco_average_pool2d_s8(op->params, &in, &out, row_begin, row_end);
}

static void run_max_pool2d(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin, uint16_t row_end) {
    const disco_input_t in = input_view(model, op, 0);
    const disco_output_t out = output_view(model, op);
    disco_max_pool2d_s8(op->params, &in, &out, row_begin, row_end);
}

static void run_mean(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin, uint16_t row_end) {
    const disco_input_t in = input_view(model, op, 0);
    const disco_output_t out = output_view(model, op);
    disco_mean_s8(op->params, &in, &out, row_begin, row_end);
}

static void run_pad(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin, uint16_t row_end) {
    const disco_input_t in = input_view(model, op, 0);
    const disco_output_t out = output_view(model, op);
    disco_pad_s8(op->params, &in, &out, row_begin, row_end);
}

static void run_concatenation(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin, uint16_t row_end) {
    const disco_copy_channels_t *params = op->params;
    const disco_output_t out = output_view(model, op);
    for (uint16_t i = 0; i < op->input_count; ++i) {
        const disco_input_t in = input_view(model, op, i);
        disco_copy_channels_s8(&params[i], &in, &out, row_begin, row_end);
    }
}

static void run_select_channels(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin,
                                uint16_t row_end) {
    const disco_input_t in = input_view(model, op, 0);
    const disco_output_t out = output_view(model, op);
    disco_select_channels_s8(op->params, &in, &out, row_begin, row_end);
}

static void run_reshape(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin, uint16_t row_end) {
    const disco_input_t in = input_view(model, op, 0);
    const disco_output_t out = output_view(model, op);
    (void)row_begin;
    (void)row_end;
    disco_reshape_s8(&in, &out);
}

static void run_relu(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin, uint16_t row_end) {
    const disco_input_t in = input_view(model, op, 0);
    const disco_output_t out = output_view(model, op);
    disco_relu_s8(op->params, &in, &out, row_begin, row_end);
}

static void run_softmax(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin, uint16_t row_end) {
    const disco_input_t in = input_view(model, op, 0);
    const disco_output_t out = output_view(model, op);
    disco_softmax_s8(op->params, &in, &out, row_begin, row_end);
}

static const runner_t runners[] = {
    [DISCO_OP_CONV_2D] = run_conv2d,
    [DISCO_OP_DEPTHWISE_CONV_2D] = run_depthwise_conv2d,
    [DISCO_OP_FULLY_CONNECTED] = run_fully_connected,
    [DISCO_OP_ADD] = run_add,
    [DISCO_OP_AVERAGE_POOL_2D] = run_average_pool2d,
    [DISCO_OP_MAX_POOL_2D] = run_max_pool2d,
    [DISCO_OP_MEAN] = run_mean,
    [DISCO_OP_PAD] = run_pad,
    [DISCO_OP_CONCATENATION] = run_concatenation,
    [DISCO_OP_SELECT_CHANNELS] = run_select_channels,
    [DISCO_OP_RESHAPE] = run_reshape,
    [DISCO_OP_RELU] = run_relu,
    [DISCO_OP_SOFTMAX] = run_softmax,
    [DISCO_OP_MUL] = run_mul,
};

bool disco_dispatch_knows(disco_op_kind_t kind) {
    return (size_t)kind < sizeof runners / sizeof runners[0];
}

bool disco_dispatch_is_whole(disco_op_kind_t kind) {
    return kind == DISCO_OP_RESHAPE;
}

bool disco_dispatch_is_row_by_row(disco_op_kind_t kind) {
    return kind == DISCO_OP_ADD || kind == DISCO_OP_MUL || kind == DISCO_OP_CONCATENATION ||
           kind == DISCO_OP_SELECT_CHANNELS || kind == DISCO_OP_RELU;
}

bool disco_dispatch_has_window(disco_op_kind_t kind) {
    return kind == DISCO_OP_CONV_2D || kind == DISCO_OP_DEPTHWISE_CONV_2D || kind == DISCO_OP_AVERAGE_POOL_2D ||
           kind == DISCO_OP_MAX_POOL_2D;
}

void disco_dispatch(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin, uint16_t row_end) {
    if (op->run != NULL) {
        op->run(row_begin, row_end);
    } else {
        runners[op->kind](model, op, row_begin, row_end);
    }
}
