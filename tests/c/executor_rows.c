/* Prints, for every op of the model, the last input row that each of its output rows needs. */
#include <stdio.h>

#include "disco/executor.h"

int main(void) {
    for (uint16_t i = 0; i < disco_model.op_count; ++i) {
        const disco_op_t *op = &disco_model.ops[i];
        for (uint16_t row = 0; row < disco_model.tensors[op->output].height; ++row) {
            printf("%u ", (unsigned)disco_executor_last_input_row(&disco_model, op, row));
        }
        printf("\n");
    }
    return 0;
}
