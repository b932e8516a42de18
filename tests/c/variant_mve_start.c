/* Vector table and reset of a test program on an emulated Cortex-M55: vector registers on, .bss cleared, semihosting
 * opened. Newlib's own start code asks the emulator where stack and heap are, and gets no useful answer on this
 * board. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern uint32_t test_stack_top[];
extern uint8_t __bss_start__[], __bss_end__[];
void initialise_monitor_handles(void);
int main(void);
void test_reset(void);
void test_main(void);
void test_fault(void);
extern void (*const test_vectors[])(void);

__attribute__((used)) void test_main(void) {
    memset(__bss_start__, 0, (size_t)(__bss_end__ - __bss_start__));
    initialise_monitor_handles();
    exit(main());
}

/* No C function may run before: its prologue may save vector registers. */
__attribute__((naked)) void test_reset(void) {
    /* CPACR: full access to coprocessors 10 and 11. */
    __asm__ volatile("ldr r0, =0xE000ED88\n\t"
                     "ldr r1, [r0]\n\t"
                     "orr r1, r1, #0xF00000\n\t"
                     "str r1, [r0]\n\t"
                     "dsb\n\t"
                     "isb\n\t"
                     "b test_main");
}

/* Leaves through a breakpoint that no debugger expects, which ends the emulator with an error. */
void test_fault(void) {
    for (;;) {
        __asm__ volatile("bkpt 0");
    }
}

__attribute__((section(".vectors"), used)) void (*const test_vectors[])(void) = {
    (void (*)(void))test_stack_top, test_reset, test_fault, test_fault, test_fault, test_fault, test_fault, test_fault,
};
