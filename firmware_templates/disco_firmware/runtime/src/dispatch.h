/* From an op of the model's description to its kernel. */
#ifndef DISCO_DISPATCH_H
#define DISCO_DISPATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "disco/model.h"

/* Whether `kind` (any number) is an operator that this runtime has. */
bool disco_dispatch_knows(disco_op_kind_t kind);

/* Whether the op writes its whole output in one call, whatever the rows (RESHAPE). */
bool disco_dispatch_is_whole(disco_op_kind_t kind);

/* Whether an output row needs the same row of each input, and no other. */
bool disco_dispatch_is_row_by_row(disco_op_kind_t kind);

/* Whether the parameters of the operator begin with its disco_window_t. */
bool disco_dispatch_has_window(disco_op_kind_t kind);

/* Computes the output rows [row_begin, row_end) of an op whose kind is known. */
void disco_dispatch(const disco_model_t *model, const disco_op_t *op, uint16_t row_begin, uint16_t row_end);

#endif
