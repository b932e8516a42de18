/* The few registers and instructions of the Cortex-M cores that the port needs (Armv6-M, v7-M and v8-M architecture reference manuals). */
#ifndef DISCO_CORTEX_M_H
#define DISCO_CORTEX_M_H

#include <stdint.h>

#define CORTEX_M_SYSTEM_VECTORS 16u

static inline volatile uint32_t *cortex_m_register(uint32_t address) {
    return (volatile uint32_t *)address;
}

#define SYSTICK_CONTROL            (*cortex_m_register(0xE000E010u))
#define SYSTICK_RUN                5u /* counts the core's clock */
#define SYSTICK_INTERRUPT          2u
#define SYSTICK_RELOAD             (*cortex_m_register(0xE000E014u))
#define SYSTICK_VALUE              (*cortex_m_register(0xE000E018u))
#define SCB_VECTOR_TABLE           (*cortex_m_register(0xE000ED08u))
#define SCB_CONFIGURATION          (*cortex_m_register(0xE000ED14u))
#define CORTEX_M_TRAP_UNALIGNED    (1u << 3)
#define SCB_COPROCESSOR_ACCESS     (*cortex_m_register(0xE000ED88u))
#define CORTEX_M_FLOAT_AND_VECTORS (0xFu << 20) /* full access to coprocessors 10 and 11 */
#define NVIC_ENABLE(irq)           (*cortex_m_register(0xE000E100u + 4u * ((irq) / 32u)))
#define NVIC_PEND(irq)             (*cortex_m_register(0xE000E200u + 4u * ((irq) / 32u)))
#define NVIC_BIT(irq)              (1u << ((irq) % 32u))

/* The compiler moves no access to memory past it. */
static inline void cortex_m_keep_order(void) {
    __asm__ volatile("" ::: "memory");
}

static inline void cortex_m_disable_interrupts(void) {
    __asm__ volatile("cpsid i" ::: "memory");
}

static inline void cortex_m_enable_interrupts(void) {
    __asm__ volatile("cpsie i" ::: "memory");
}

static inline void cortex_m_wait_for_interrupt(void) {
    __asm__ volatile("wfi" ::: "memory");
}

static inline uint32_t *cortex_m_stack_pointer(void) {
    uint32_t *pointer;
    __asm__ volatile("mov %0, sp" : "=r"(pointer));
    return pointer;
}

/* The number of the interrupt whose handler runs. */
static inline uint32_t cortex_m_active_interrupt(void) {
    uint32_t exception;
    __asm__ volatile("mrs %0, ipsr" : "=r"(exception));
    return exception - CORTEX_M_SYSTEM_VECTORS;
}

/* So many rounds of a loop of a few instructions. */
static inline void cortex_m_pause(uint32_t rounds) {
    for (; rounds > 0; --rounds) {
        __asm__ volatile("nop");
    }
}

/* `rounds` (at least 1) rounds of exactly CORTEX_M_SPIN_INSTRUCTIONS. */
#define CORTEX_M_SPIN_INSTRUCTIONS 2u
static inline void cortex_m_spin(uint32_t rounds) {
    __asm__ volatile("1: subs %0, %0, #1\n\tbne 1b" : "+l"(rounds) : : "cc");
}

static inline void cortex_m_barrier(void) {
    __asm__ volatile("dsb\n\tisb" ::: "memory");
}

#endif
