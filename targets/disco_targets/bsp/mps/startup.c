/* Reset: switches vector registers on where there are any, paints the stack, copies .data, clears .bss, moves the vector table to RAM (so that interrupts
 * are set at run time) and calls main. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "board.h"
#include "cortex_m.h"
#include "disco/port.h"

/* From link.ld. */
extern uint32_t link_data_load[], link_data_start[], link_data_end[], link_bss_start[], link_bss_end[],
    link_stack_limit[], link_stack_top[];

#define PAINT      0x5AFE57ACu
#define PAINT_EDGE 16u /* words below the stack pointer that painting itself may use */

int main(int argc, char **argv);
void reset(void); /* link.ld's entry */

static void paint_stack(void) {
    const uint32_t *edge = cortex_m_stack_pointer() - PAINT_EDGE;
    for (uint32_t *word = link_stack_limit; word < edge; ++word) {
        *word = PAINT;
    }
}

uint32_t board_stack_bytes(void) {
    return (uint32_t)((uintptr_t)link_stack_top - (uintptr_t)link_stack_limit);
}

uint32_t board_stack_used(void) {
    const volatile uint32_t *word = link_stack_limit;
    while (word < link_stack_top && *word == PAINT) {
        ++word;
    }
    return (uint32_t)((uintptr_t)link_stack_top - (uintptr_t)word);
}

__attribute__((noinline)) static void start(void) {
    paint_stack();
    memcpy(link_data_start, link_data_load, (size_t)((uintptr_t)link_data_end - (uintptr_t)link_data_start));
    memset(link_bss_start, 0, (size_t)((uintptr_t)link_bss_end - (uintptr_t)link_bss_start));
    (void)main(0, NULL);
}

/*
 * An Armv6-M core can access no unaligned word; another that runs its code shall not either.
 *
 * A compiler that may use floating-point or vector registers may do so in any function, so they are switched on before all else. When an
 * interrupt comes, the core itself saves those that the handler may change (lazily: only when the handler touches one).
 */
void reset(void) {
#if defined(__ARM_ARCH_6M__)
    SCB_CONFIGURATION |= CORTEX_M_TRAP_UNALIGNED;
#endif
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    SCB_COPROCESSOR_ACCESS |= CORTEX_M_FLOAT_AND_VECTORS;
    cortex_m_barrier();
#endif
    start();
}

static void fault(void) {
    disco_port_fatal(DISCO_ERR_PORT);
}

typedef union {
    uint32_t *stack;
    board_handler_t handler;
} vector_t;

/* Systick is entered only to wake the core. */
static void wake(void) {}

__attribute__((section(".vectors"), used)) static const vector_t vectors[CORTEX_M_SYSTEM_VECTORS] = {
    {.stack = link_stack_top}, {.handler = reset}, {.handler = fault}, {.handler = fault},
    {.handler = fault},        {.handler = fault}, {.handler = fault}, {.handler = fault},
    {.handler = fault},        {.handler = fault}, {.handler = fault}, {.handler = fault},
    {.handler = fault},        {.handler = fault}, {.handler = fault}, {.handler = wake},
};

static _Alignas(512) vector_t ram_vectors[CORTEX_M_SYSTEM_VECTORS + BOARD_INTERRUPTS];

void board_use_ram_vectors(void) {
    memcpy(ram_vectors, vectors, sizeof vectors);
    for (uint32_t i = CORTEX_M_SYSTEM_VECTORS; i < CORTEX_M_SYSTEM_VECTORS + BOARD_INTERRUPTS; ++i) {
        ram_vectors[i].handler = fault;
    }
    SCB_VECTOR_TABLE = (uint32_t)(uintptr_t)ram_vectors;
    cortex_m_barrier();
}

void board_set_interrupt(uint32_t irq, board_handler_t handler) {
    ram_vectors[CORTEX_M_SYSTEM_VECTORS + irq].handler = handler;
    NVIC_ENABLE(irq) = NVIC_BIT(irq);
}
