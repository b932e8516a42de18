/* The counters: the CMSDK timer (counts down) or the SSE system counter (counts up), with which instructions are counted; and where the
 * emulator's plugin estimates cycles, the memory in which it does (disco_targets/emulation/plugin.c). */
#include "board.h"
#include "cortex_m.h"
#include "disco_board.h"

counter_t counter_clock, counter_work;

#if DISCO_BOARD_COUNTER_CMSDK_TIMER

#define TIMER_CONTROL (*cortex_m_register(DISCO_BOARD_COUNTER_ADDRESS + 0u))
#define TIMER_VALUE   (*cortex_m_register(DISCO_BOARD_COUNTER_ADDRESS + 4u))
#define TIMER_RELOAD  (*cortex_m_register(DISCO_BOARD_COUNTER_ADDRESS + 8u))

static void start_clock(void) {
    TIMER_RELOAD = 0xFFFFFFFFu;
    TIMER_VALUE = 0xFFFFFFFFu;
    TIMER_CONTROL = 1;
    counter_clock = (counter_t){&TIMER_VALUE, 0xFFFFFFFFu};
}

#elif DISCO_BOARD_COUNTER_SSE_COUNTER

static void start_clock(void) {
    *cortex_m_register(DISCO_BOARD_COUNTER_CONTROL_ADDRESS) = 1;
    counter_clock = (counter_t){cortex_m_register(DISCO_BOARD_COUNTER_ADDRESS), 0}; /* the low word */
}

#else
#error "disco_board.h names no counter of this port"
#endif

#ifdef DISCO_BOARD_ESTIMATE_ADDRESS

#define ESTIMATE_MAGIC (*cortex_m_register(DISCO_BOARD_ESTIMATE_ADDRESS + 0u))
#define ESTIMATE_VALUE (*cortex_m_register(DISCO_BOARD_ESTIMATE_ADDRESS + 8u)) /* the low word */
#define ESTIMATING     0x43594331u

int counter_is_estimate(void) {
    return ESTIMATE_MAGIC == ESTIMATING;
}

static void start_work(void) {
    counter_work = counter_is_estimate() ? (counter_t){&ESTIMATE_VALUE, 0} : counter_clock;
}

#else

int counter_is_estimate(void) {
    return 0;
}

static void start_work(void) {
    counter_work = counter_clock;
}

#endif

void counter_start(void) {
    start_clock();
    start_work();
}
