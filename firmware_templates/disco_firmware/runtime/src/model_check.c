/* Checks a generated model once, so that the executor need not doubt it at every step. */
#include <stdbool.h>
#include <stddef.h>

#include "disco/executor.h"
#include "disco/model.h"
#include "dispatch.h"

/* Part [first, first + count) of an array of `size` entries. */
static bool within(uint32_t first, uint32_t count, uint32_t size) {
    return first <= size && count <= size - first;
}

static bool frame_is_sound(const disco_model_t *model) {
    const bool nodes =
        model->node_count >= 1 && model->node_count <= DISCO_MAX_PEERS + 1 && model->node < model->node_count;
    const bool links = model->node_count == 1 || model->peer_links != NULL;
    const bool ops = model->op_count < DISCO_NONE &&
                     (model->op_count == 0 || (model->ops != NULL && model->op_records != NULL)) &&
                     (model->step_count == 0 || model->step_ticks != NULL);
    const bool sends = model->send_count == 0 || (model->sends != NULL && model->send_states != NULL);
    const bool receives = model->receive_count == 0 || (model->receives != NULL && model->receive_states != NULL);
    return model->abi == DISCO_MODEL_ABI && nodes && links && ops && sends && receives && model->arena != NULL;
}

static bool tensor_is_sound(const disco_model_t *model, const disco_tensor_t *tensor) {
    const uint64_t bytes = (uint64_t)tensor->height * tensor->width * tensor->stride;
    return bytes > 0 && tensor->channels <= tensor->stride && model->arena_bytes <= INT32_MAX &&
           bytes <= model->arena_bytes && within(tensor->arena_offset, (uint32_t)bytes, model->arena_bytes) &&
           within(tensor->first_send, tensor->send_count, model->send_count) &&
           within(tensor->first_receive, tensor->receive_count, model->receive_count);
}

static bool kernel_is_sound(const disco_op_t *op) {
    if (op->run != NULL) {
        return op->row_step > 0 && (op->params != NULL || !disco_dispatch_has_window(op->kind));
    }
    return op->params != NULL || op->kind == DISCO_OP_RESHAPE;
}

static bool op_is_sound(const disco_model_t *model, const disco_op_t *op) {
    const uint16_t inputs_needed = op->kind == DISCO_OP_ADD || op->kind == DISCO_OP_MUL ? 2 : 1;
    if (op->input_count < inputs_needed || op->inputs == NULL || op->output >= model->tensor_count) {
        return false;
    }
    for (uint16_t i = 0; i < op->input_count; ++i) {
        const disco_operand_t *operand = &op->inputs[i];
        if (operand->tensor >= model->tensor_count || operand->channels > model->tensors[operand->tensor].stride) {
            return false;
        }
    }
    return kernel_is_sound(op);
}

/* A joined op computes the rows that the op before it has just computed, from these and from what was there before both. */
static bool join_is_sound(const disco_model_t *model, uint16_t index) {
    const disco_op_t *op = &model->ops[index];
    if (op->joined == 0) {
        return true;
    }
    if (index == 0 || !disco_dispatch_is_row_by_row(op->kind) || disco_dispatch_is_whole(op[-1].kind) ||
        model->tensors[op->output].height != model->tensors[op[-1].output].height) {
        return false;
    }
    for (uint16_t i = 0; i < op->input_count; ++i) {
        if (op->inputs[i].channels > model->tensors[op->inputs[i].tensor].channels) { /* halo: it would have to wait */
            return false;
        }
    }
    const disco_op_t *first = op;
    while (first->joined != 0) {
        --first;
    }
    const uint16_t step = first->run != NULL ? first->row_step : 1;
    return op->run == NULL || step % op->row_step == 0;
}

static bool is_peer(const disco_model_t *model, uint8_t node) {
    return node < model->node_count && node != model->node;
}

static bool send_is_sound(const disco_model_t *model, uint16_t index) {
    const disco_send_t *send = &model->sends[index];
    if (send->tensor >= model->tensor_count || send->exchange >= model->exchange_count ||
        send->last_op >= model->op_count || !is_peer(model, send->peer) || send->channel_count == 0 ||
        send->channels == NULL) {
        return false;
    }
    const disco_tensor_t *tensor = &model->tensors[send->tensor];
    for (uint16_t i = 0; i < send->channel_count; ++i) {
        if (send->channels[i] >= tensor->channels) {
            return false;
        }
    }
    const bool rising = index == 0 || model->sends[index - 1].exchange <= send->exchange;
    return rising && index >= tensor->first_send && index - tensor->first_send < tensor->send_count;
}

static bool receive_is_sound(const disco_model_t *model, uint16_t index) {
    const disco_receive_t *receive = &model->receives[index];
    if (receive->tensor >= model->tensor_count || receive->exchange >= model->exchange_count ||
        receive->open_op >= model->op_count || !is_peer(model, receive->peer) || receive->channel_count == 0) {
        return false;
    }
    const disco_tensor_t *tensor = &model->tensors[receive->tensor];
    const bool halo = receive->first_channel >= tensor->channels &&
                      within(receive->first_channel, receive->channel_count, tensor->stride);
    const disco_receive_t *previous = index > 0 ? &model->receives[index - 1] : receive;
    const bool rising = previous->exchange <= receive->exchange && previous->open_op <= receive->open_op;
    return halo && rising && index >= tensor->first_receive && index - tensor->first_receive < tensor->receive_count;
}

static bool interface_is_sound(const disco_model_t *model) {
    for (uint16_t i = 0; i < model->input_count; ++i) {
        if (model->inputs[i] >= model->tensor_count) {
            return false;
        }
    }
    for (uint16_t i = 0; i < model->output_count; ++i) {
        if (model->outputs[i] >= model->tensor_count && model->outputs[i] != DISCO_NONE) {
            return false;
        }
    }
    return true;
}

static disco_status_t check_ops(const disco_model_t *model, uint16_t *op) {
    for (uint16_t i = 0; i < model->op_count; ++i) {
        *op = i;
        if (!disco_dispatch_knows(model->ops[i].kind)) {
            return DISCO_ERR_UNSUPPORTED;
        }
        if (!op_is_sound(model, &model->ops[i]) || !join_is_sound(model, i)) {
            return DISCO_ERR_ARGUMENT;
        }
    }
    *op = DISCO_NONE;
    return DISCO_OK;
}

disco_status_t disco_model_check(const disco_model_t *model, uint16_t *op) {
    *op = DISCO_NONE;
    bool sound = frame_is_sound(model) && interface_is_sound(model);
    for (uint16_t i = 0; sound && i < model->tensor_count; ++i) {
        sound = tensor_is_sound(model, &model->tensors[i]);
    }
    for (uint16_t i = 0; sound && i < model->send_count; ++i) {
        sound = send_is_sound(model, i);
    }
    for (uint16_t i = 0; sound && i < model->receive_count; ++i) {
        sound = receive_is_sound(model, i);
    }
    return sound ? check_ops(model, op) : DISCO_ERR_ARGUMENT;
}
