/*
 * The CMSDK APB UARTs: received bytes go by interrupt into a ring per link. When a ring is full its interrupt is masked and the byte stays
 * in the UART, which holds the sender back; reading makes room and takes it up again.
 */
#include <stdbool.h>
#include <string.h>

#include "board.h"
#include "cortex_m.h"
#include "disco_board.h"

#define RING_BYTES           1024u /* a power of two */

#define UART_DATA(base)      (*cortex_m_register((base) + 0x0u))
#define UART_STATE(base)     (*cortex_m_register((base) + 0x4u))
#define UART_CONTROL(base)   (*cortex_m_register((base) + 0x8u))
#define UART_INTERRUPT(base) (*cortex_m_register((base) + 0xCu))
#define UART_DIVIDER(base)   (*cortex_m_register((base) + 0x10u))
#define STATE_TX_FULL        1u
#define STATE_RX_FULL        2u
#define CONTROL_TX_RX        3u
#define CONTROL_RX_INTERRUPT 8u
#define INTERRUPT_RX         2u

typedef struct {
    uint8_t bytes[RING_BYTES];
    volatile uint32_t head; /* written by the handler */
    volatile uint32_t tail; /* written by the reader */
    volatile bool masked;
} ring_t;

static const uint32_t bases[] = DISCO_BOARD_UART_ADDRESSES;
static const uint32_t irqs[] = DISCO_BOARD_UART_RX_IRQS;
static ring_t rings[DISCO_BOARD_LINKS];
volatile uart_load_t uart_load;

/* Moves what the UART holds into the ring, and masks the interrupt when it does not fit. Interrupts are off. */
static void drain(uint8_t link) {
    const uint32_t base = bases[link];
    ring_t *ring = &rings[link];
    while ((UART_STATE(base) & STATE_RX_FULL) != 0) {
        if (ring->head - ring->tail == RING_BYTES) {
            UART_CONTROL(base) = CONTROL_TX_RX;
            UART_INTERRUPT(base) = INTERRUPT_RX;
            ring->masked = true;
            return;
        }
        UART_INTERRUPT(base) = INTERRUPT_RX; /* before the data is read, or the next byte's interrupt is lost */
        ring->bytes[ring->head % RING_BYTES] = (uint8_t)UART_DATA(base);
        ++ring->head;
    }
}

static uint8_t link_of(uint32_t irq) {
    uint8_t link = 0;
    while (link + 1 < DISCO_BOARD_LINKS && irqs[link] != irq) {
        ++link;
    }
    return link;
}

/* One handler for all links, so that each costs the same outside of the two readings: what the calibration found for link 0. */
static void handle(void) {
    const uint32_t start = counter_raw(counter_work);
    const uint8_t link = link_of(cortex_m_active_interrupt());
    UART_INTERRUPT(bases[link]) = INTERRUPT_RX;
    drain(link);
    ++uart_load.handlers;
    uart_load.raw_ticks += counter_raw(counter_work) - start;
}

void uart_start(void) {
    for (uint8_t link = 0; link < DISCO_BOARD_LINKS; ++link) {
        UART_DIVIDER(bases[link]) = 16; /* the least that the UART takes; emulated lines have no rate */
        UART_CONTROL(bases[link]) = CONTROL_TX_RX;
        rings[link].masked = true; /* the first read unmasks it: nothing that comes in disturbs the calibration */
        board_set_interrupt(irqs[link], handle);
    }
}

/* Takes the interrupt up again after the reader has made room. */
static void unmask(uint8_t link) {
    cortex_m_disable_interrupts();
    rings[link].masked = false;
    UART_CONTROL(bases[link]) = CONTROL_TX_RX | CONTROL_RX_INTERRUPT;
    drain(link); /* a byte that came before the interrupt was enabled raises none */
    cortex_m_enable_interrupts();
}

__attribute__((noinline)) static size_t take(ring_t *ring, uint8_t *bytes, size_t capacity) {
    const uint32_t tail = ring->tail;
    const uint32_t held = ring->head - tail;
    const size_t count = held < capacity ? held : capacity;
    cortex_m_keep_order(); /* the bytes are read after `head` that tells of them, before `tail` gives them up */
    const uint32_t begin = tail % RING_BYTES;
    const size_t to_end = RING_BYTES - begin;
    if (count <= to_end) {
        memcpy(bytes, ring->bytes + begin, count);
    } else {
        memcpy(bytes, ring->bytes + begin, to_end);
        memcpy(bytes + to_end, ring->bytes, count - to_end);
    }
    cortex_m_keep_order();
    ring->tail = tail + (uint32_t)count;
    return count;
}

size_t uart_read(uint8_t link, uint8_t *bytes, size_t capacity) {
    ring_t *ring = &rings[link];
    if (ring->head == ring->tail && !ring->masked) {
        return 0;
    }
    const size_t count = take(ring, bytes, capacity);
    if (ring->masked) {
        unmask(link);
    }
    return count;
}

size_t uart_write(uint8_t link, const uint8_t *bytes, size_t length) {
    const uint32_t base = bases[link];
    const uint8_t *at = bytes;
    const uint8_t *const end = bytes + length;
    while (at < end && (UART_STATE(base) & STATE_TX_FULL) == 0) {
        UART_DATA(base) = *at++;
    }
    return (size_t)(at - bytes);
}

int uart_has_input(void) {
    for (uint8_t link = 0; link < DISCO_BOARD_LINKS; ++link) {
        if (rings[link].head != rings[link].tail) {
            return 1;
        }
    }
    return 0;
}

void uart_pend(uint32_t mask) {
    NVIC_PEND(irqs[0]) = NVIC_BIT(irqs[0]) & mask;
    cortex_m_barrier();
}
