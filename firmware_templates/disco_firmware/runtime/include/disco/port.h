/*
 * What a board gives to the runtime. A port is one folder (bsp/<family>) that implements these functions; nothing else in the
 * runtime knows a register. Link 0 leads to the host; links 1.. lead to the peers (disco_board.h says which peer).
 */
#ifndef DISCO_PORT_H
#define DISCO_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "disco/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one tick of disco_port_ticks() is. Sent to the host in WELCOME. */
typedef enum {
    DISCO_UNIT_INSTRUCTIONS = 0,   /* emulated board under instruction counting: never shown as time */
    DISCO_UNIT_CYCLES = 1,         /* cycles of the core clock, disco_port_info_t.ticks_per_second of them a second */
    DISCO_UNIT_NANOSECONDS = 2,    /* nanoseconds of a monotonic clock */
    DISCO_UNIT_CYCLES_ESTIMATE = 3 /* cycles as an emulator estimates them: never shown as time */
} disco_unit_t;

typedef struct {
    const char *board;         /* name of the target, e.g. "qemu-mps2-an386" (at most 31 characters) */
    const char *core;          /* e.g. "cortex-m4" (at most 15 characters) */
    disco_unit_t unit;         /* what disco_port_ticks() counts */
    uint32_t ticks_per_second; /* of disco_port_ticks(); 0 where they are no time */
    uint32_t clock_hz;         /* core clock, 0 when unknown */
    uint32_t
        resolution_ticks; /* smallest step of disco_port_ticks(); 0: they do not count the unit, the port has tried */
    uint32_t free_ram_bytes;       /* RAM left beside the firmware's own static data and stack, 0 when unknown */
    uint32_t stack_bytes;          /* room that is kept for the stack, 0 when unknown */
    uint8_t link_count;            /* links that exist: 1 + number of peer links */
    bool (*is_lost)(uint8_t link); /* whether a line is gone for good; NULL where a line does not tell */
} disco_port_info_t;

/* Sets up clocks, counter and links. argc/argv are those of main on a hosted port, 0/NULL on a board. */
DISCO_MUST_CHECK disco_status_t disco_port_init(int argc, char **argv);

/* The constant facts of this board; valid after disco_port_init. */
const disco_port_info_t *disco_port_info(void);

/* Monotonic 64-bit counter in the port's unit. Callable at any time but not from interrupt handlers. */
uint64_t disco_port_ticks(void);

/* disco_port_ticks() less what the port's interrupt handlers (entry and exit included) have taken of them, both read at one moment: so a
 * computation counts the same whatever comes in meanwhile. Only differences mean something. */
uint64_t disco_port_task_ticks(void);

/* The most bytes of the stack that were ever in use, handlers included; 0 when unknown. Not of the current run alone. */
uint32_t disco_port_stack_used(void);

/* Milliseconds of a monotonic clock for deadlines; wraps at 2^32. On emulated boards this is virtual time. */
uint32_t disco_port_milliseconds(void);

/* Takes at most `capacity` received bytes of `link` without waiting; returns how many (0 when there are none). */
size_t disco_port_read(uint8_t link, uint8_t *bytes, size_t capacity);

/* Hands over at most `length` bytes for sending on `link` without waiting; returns how many were taken (0 when the line is full). */
size_t disco_port_write(uint8_t link, const uint8_t *bytes, size_t length);

/* Sleeps until a byte may have arrived on any link, or about 10 ms (2 ms on hosted ports) have passed. May return early. */
void disco_port_wait(void);

/* Last resort after a failure that cannot be reported over a link: never returns (boards halt with a visible sign, hosted ports exit). */
void disco_port_fatal(disco_status_t status);

#ifdef __cplusplus
}
#endif

#endif
