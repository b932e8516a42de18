/*
 * A port for tests: every link is an inherited stream socket. Arguments: the file descriptors of links 0, 1, ...; "--slow US" sleeps so
 * long around every kernel call. Ends with 0 when the host's line closes.
 */
#include "disco/port.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define MAX_LINKS 8

static struct pollfd lines[MAX_LINKS];
static uint8_t line_count;
static long slow_us;

static uint64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

disco_status_t disco_port_init(int argc, char **argv) {
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--slow") == 0 && i + 1 < argc) {
            slow_us = strtol(argv[++i], NULL, 10);
        } else if (line_count < MAX_LINKS) {
            lines[line_count].fd = (int)strtol(argv[i], NULL, 10);
            lines[line_count].events = POLLIN;
            ++line_count;
        }
    }
    return line_count > 0 ? DISCO_OK : DISCO_ERR_PORT;
}

const disco_port_info_t *disco_port_info(void) {
    static disco_port_info_t info = {"test", "host", DISCO_UNIT_NANOSECONDS, 1000000000u, 0, 1, 12345, 4096, 0, NULL};
    info.link_count = line_count;
    return &info;
}

uint64_t disco_port_ticks(void) {
    return monotonic_ns();
}

/* Asked around every kernel call: the place to be slow. */
uint32_t disco_port_stack_used(void) {
    return 1234;
}

uint64_t disco_port_task_ticks(void) {
    const struct timespec pause = {0, slow_us * 1000};
    if (slow_us > 0) {
        nanosleep(&pause, NULL);
    }
    return monotonic_ns();
}

uint32_t disco_port_milliseconds(void) {
    return (uint32_t)(monotonic_ns() / 1000000u);
}

size_t disco_port_read(uint8_t link, uint8_t *bytes, size_t capacity) {
    const ssize_t count = recv(lines[link].fd, bytes, capacity, MSG_DONTWAIT);
    if (count == 0) {
        lines[link].events = 0;
        if (link == 0) {
            exit(0);
        }
    }
    return count > 0 ? (size_t)count : 0;
}

size_t disco_port_write(uint8_t link, const uint8_t *bytes, size_t length) {
    const ssize_t count = send(lines[link].fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    return count > 0 ? (size_t)count : 0;
}

void disco_port_wait(void) {
    (void)poll(lines, line_count, 2);
}

void disco_port_fatal(disco_status_t status) {
    exit(100 + (int)status);
}
