/* What the files of this port share. */
#ifndef DISCO_MPS_BOARD_H
#define DISCO_MPS_BOARD_H

#include <stddef.h>
#include <stdint.h>

#define BOARD_INTERRUPTS 64u

typedef void (*board_handler_t)(void);

/* startup.c */
void board_use_ram_vectors(void);
void board_set_interrupt(uint32_t irq, board_handler_t handler);
/* Room for the stack, and how much of it was ever in use. */
uint32_t board_stack_bytes(void);
uint32_t board_stack_used(void);

/* counter.c. A counter: its value is what the register reads, inverted where it counts down. */
typedef struct {
    const volatile uint32_t *value;
    uint32_t inverted;
} counter_t;

/* Of the clock, for deadlines; and what work is counted in: the same, or cycles where the emulator estimates them. */
extern counter_t counter_clock, counter_work;

void counter_start(void);
int counter_is_estimate(void);

/* Raw ticks of a counter, modulo 2^32, readable anywhere. */
static inline uint32_t counter_raw(counter_t counter) {
    return *counter.value ^ counter.inverted;
}

/* cmsdk_uart.c: one UART per link, received by interrupt from the first read on. */
void uart_start(void);
size_t uart_read(uint8_t link, uint8_t *bytes, size_t capacity);
size_t uart_write(uint8_t link, const uint8_t *bytes, size_t length);
/* True when any link has received bytes that were not read. Call with interrupts off before sleeping. */
int uart_has_input(void);
/* What handlers took: raw ticks of work between their first and last instruction that reads the counter; and how many ran. To be read with
 * interrupts off. */
typedef struct {
    uint64_t raw_ticks;
    uint32_t handlers;
} uart_load_t;

extern volatile uart_load_t uart_load;
/* Lets the receive interrupt of link 0 run once by software (mask all ones), or does the same work without it (mask 0). */
void uart_pend(uint32_t mask);

#endif
