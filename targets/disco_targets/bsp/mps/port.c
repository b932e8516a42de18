/* The runtime on QEMU's MPS2 and MPS3 boards under instruction counting (-icount shift=6), with or without an estimate of cycles. */
#include "disco/port.h"

#include <stdbool.h>

#include "board.h"
#include "cortex_m.h"
#include "disco_board.h"

#define WAKE_MS            10u
#define CALIBRATION_ROUNDS 256u
#define TRIAL_ROUNDS       16384u

extern uint32_t link_bss_end[], link_stack_limit[];

static disco_port_info_t info = {
    .board = DISCO_BOARD_NAME,
    .core = DISCO_BOARD_CORE,
    .unit = DISCO_UNIT_INSTRUCTIONS,
    .ticks_per_second = 0, /* instructions are no time */
    .clock_hz = DISCO_BOARD_CLOCK_HZ,
    .resolution_ticks = 1,
    .link_count = DISCO_BOARD_LINKS,
};
static uint64_t raw_extended;
static uint32_t milliseconds, clock_of_milliseconds; /* the counter when the last of them ended */
static bool estimates;                               /* ticks are the emulator's estimate of cycles */
static uint32_t handler_overhead; /* instructions of CALIBRATION_ROUNDS handlers outside of their two readings */

const disco_port_info_t *disco_port_info(void) {
    return &info;
}

/* 64 bits of the counters; called at least once per 2^32 ticks, and never by handlers. */
static uint64_t raw_ticks(void) {
    raw_extended += (uint32_t)(counter_raw(counter_work) - (uint32_t)raw_extended);
    return raw_extended;
}

/* Instructions, or estimated cycles, which come as they are. */
static uint64_t units(uint64_t raw) {
    return estimates ? raw : raw * DISCO_BOARD_COUNTER_NUMERATOR / DISCO_BOARD_COUNTER_DENOMINATOR;
}

uint64_t disco_port_ticks(void) {
    return units(raw_ticks());
}

/*
 * With interrupts off around the readings none comes between them, and no reading is repeated. What is left is the rounding of ticks that are no whole
 * instructions: a difference of two calls is off by one or two, an op that goes row by row by as much per row at worst (16.6 M instructions of a
 * network repeat to 30).
 */
uint64_t disco_port_task_ticks(void) {
    cortex_m_disable_interrupts();
    const uint64_t in_handlers = uart_load.raw_ticks;
    const uint32_t handlers = uart_load.handlers;
    const uint64_t now = raw_ticks();
    cortex_m_enable_interrupts();
    return units(now - in_handlers) - (uint64_t)handlers * handler_overhead / CALIBRATION_ROUNDS;
}

uint32_t disco_port_stack_used(void) {
    return board_stack_used();
}

/* Without a 64-bit division, for every look at busy links asks. Where 2^32 ticks pass between two calls they are lost: a computation took them, which
 * no deadline counts. */
uint32_t disco_port_milliseconds(void) {
    const uint32_t ticks_each = DISCO_BOARD_CLOCK_HZ / 1000u;
    const uint32_t passed = counter_raw(counter_clock) - clock_of_milliseconds;
    if (passed >= ticks_each) {
        const uint32_t whole = passed / ticks_each;
        milliseconds += whole;
        clock_of_milliseconds += whole * ticks_each;
    }
    return milliseconds;
}

/*
 * Instructions of CALIBRATION_ROUNDS rounds of a loop that lets a handler run, or (with `mask` 0) does the same without. An instruction is no whole
 * number of ticks: pauses of irregular length keep the handlers from reading the counter in step with it, always rounded the same way.
 */
static uint64_t time_rounds(uint32_t mask) {
    const uint64_t start = disco_port_task_ticks();
    uint32_t random = 1;
    for (uint32_t i = 0; i < CALIBRATION_ROUNDS; ++i) {
        uart_pend(mask);
        random = random * 1664525u + 1013904223u;
        cortex_m_pause(random >> 28);
    }
    return disco_port_task_ticks() - start;
}

/* What a handler costs outside of its two counter readings (entry, exit): the same for every handler. */
static void calibrate(void) {
    const uint64_t with = time_rounds(UINT32_MAX);
    handler_overhead = (uint32_t)(with - time_rounds(0));
}

/* Whether the emulator counts instructions (-icount shift=6): without it the counter follows the PC's clock, and a loop of known length shows it. */
static bool counts_instructions(void) {
    const uint64_t start = disco_port_task_ticks();
    cortex_m_spin(TRIAL_ROUNDS);
    const uint64_t counted = disco_port_task_ticks() - start;
    const uint64_t expected = (uint64_t)CORTEX_M_SPIN_INSTRUCTIONS * TRIAL_ROUNDS;
    return counted >= expected && counted < expected + expected / 64u;
}

/*
 * SysTick runs all the time, and may interrupt only while the core sleeps, never a computation. Starting and stopping it around each sleep
 * instead makes the emulator rearm its timers for every received byte: a line then moved 33 kB/s instead of 55.
 */
static void start_wake_up(void) {
    SYSTICK_RELOAD = DISCO_BOARD_CLOCK_HZ / 1000u * WAKE_MS - 1u;
    SYSTICK_VALUE = 0;
    SYSTICK_CONTROL = SYSTICK_RUN;
}

disco_status_t disco_port_init(int argc, char **argv) {
    (void)argc;
    (void)argv;
    cortex_m_disable_interrupts();
    board_use_ram_vectors();
    counter_start();
    estimates = counter_is_estimate() != 0;
    info.unit = estimates ? DISCO_UNIT_CYCLES_ESTIMATE : DISCO_UNIT_INSTRUCTIONS;
    uart_start();
    start_wake_up();
    cortex_m_enable_interrupts();
    calibrate();
    info.resolution_ticks = estimates || counts_instructions() ? 1 : 0;
    info.stack_bytes = board_stack_bytes();
    info.free_ram_bytes = (uint32_t)((uintptr_t)link_stack_limit - (uintptr_t)link_bss_end);
    return DISCO_OK;
}

size_t disco_port_read(uint8_t link, uint8_t *bytes, size_t capacity) {
    return uart_read(link, bytes, capacity);
}

size_t disco_port_write(uint8_t link, const uint8_t *bytes, size_t length) {
    return uart_write(link, bytes, length);
}

void disco_port_wait(void) {
    cortex_m_disable_interrupts();
    if (uart_has_input() == 0) {
        SYSTICK_CONTROL = SYSTICK_RUN | SYSTICK_INTERRUPT;
        cortex_m_wait_for_interrupt();
        SYSTICK_CONTROL = SYSTICK_RUN;
    }
    cortex_m_enable_interrupts();
    (void)raw_ticks();
    (void)disco_port_milliseconds();
}

static void say(const char *text) {
    for (; *text != '\0'; ++text) {
        while (uart_write(0, (const uint8_t *)text, 1) == 0) {
        }
    }
}

void disco_port_fatal(disco_status_t status) {
    cortex_m_disable_interrupts();
    say("\ndisco: fatal status ");
    const char digits[] = {(char)('0' + (int)status / 10 % 10), (char)('0' + (int)status % 10), '\n', '\0'};
    say(digits);
    for (;;) { /* nothing can run on; the board sleeps */
        cortex_m_wait_for_interrupt();
    }
}
