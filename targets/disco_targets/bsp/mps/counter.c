/* The counter that instructions are counted with: the CMSDK timer (counts down) or the SSE system counter (counts up). */
#include "board.h"
#include "cortex_m.h"
#include "disco_board.h"

#if DISCO_BOARD_COUNTER_CMSDK_TIMER

#define TIMER_CONTROL (*cortex_m_register(DISCO_BOARD_COUNTER_ADDRESS + 0u))
#define TIMER_VALUE   (*cortex_m_register(DISCO_BOARD_COUNTER_ADDRESS + 4u))
#define TIMER_RELOAD  (*cortex_m_register(DISCO_BOARD_COUNTER_ADDRESS + 8u))

void counter_start(void) {
    TIMER_RELOAD = 0xFFFFFFFFu;
    TIMER_VALUE = 0xFFFFFFFFu;
    TIMER_CONTROL = 1;
}

uint32_t counter_raw(void) {
    return 0xFFFFFFFFu - TIMER_VALUE;
}

#elif DISCO_BOARD_COUNTER_SSE_COUNTER

void counter_start(void) {
    *cortex_m_register(DISCO_BOARD_COUNTER_CONTROL_ADDRESS) = 1;
}

uint32_t counter_raw(void) {
    return *cortex_m_register(DISCO_BOARD_COUNTER_ADDRESS); /* the low word */
}

#else
#error "disco_board.h names no counter of this port"
#endif
