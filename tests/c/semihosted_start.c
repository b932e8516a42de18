/* Vector table for a test program on an emulated Cortex-M; newlib's start code takes over from there. */
#include <stdint.h>

extern uint32_t test_stack_top[];
void _start(void);
void test_fault(void);
extern void (*const test_vectors[])(void);

/* Leaves through a breakpoint that no debugger expects, which ends the emulator with an error. */
void test_fault(void) {
    for (;;) {
        __asm__ volatile("bkpt 0");
    }
}

__attribute__((section(".vectors"), used)) void (*const test_vectors[])(void) = {
    (void (*)(void))test_stack_top, _start, test_fault, test_fault, test_fault, test_fault, test_fault,
};
