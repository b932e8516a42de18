/*
 * The runtime as a process on Linux: every line is a stream socket. Usage:
 *   node --host ADDRESS [--peer NODE=ADDRESS ...] [--board NAME]
 * ADDRESS is fd:N (a connected socket that was inherited), a path of a unix socket (with a slash in it) or IPV4:PORT. The node connects to
 * the host; of each pair of nodes the one with the lower number listens and the other connects.
 */
#define _GNU_SOURCE /* ppoll, accept4 */
#include "disco/port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "disco_board.h"

#define CONNECT_DEADLINE_MS 10000
#define RETRY_MS            10
#define WAIT_MS             2

static int lines[DISCO_BOARD_LINKS];
static bool full[DISCO_BOARD_LINKS]; /* the last write was not taken whole */

static bool is_lost(uint8_t link) {
    return link < DISCO_BOARD_LINKS && lines[link] < 0;
}

static disco_port_info_t info = {
    .board = "posix",
    .core = "host",
    .unit = DISCO_UNIT_NANOSECONDS,
    .ticks_per_second = 1000000000u,
    .clock_hz = 0,
    .resolution_ticks = 1,
    .free_ram_bytes = 0,
    .stack_bytes = 0,
    .link_count = DISCO_BOARD_LINKS,
    .is_lost = is_lost,
};

const disco_port_info_t *disco_port_info(void) {
    return &info;
}

uint64_t disco_port_ticks(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t disco_port_task_ticks(void) {
    return disco_port_ticks();
}

uint32_t disco_port_stack_used(void) {
    return 0; /* the operating system lets it grow */
}

uint32_t disco_port_milliseconds(void) {
    return (uint32_t)(disco_port_ticks() / 1000000u);
}

void disco_port_fatal(disco_status_t status) {
    (void)fprintf(stderr, "node %d: fatal status %d\n", DISCO_BOARD_NODE, (int)status);
    exit(EXIT_FAILURE);
}

/* ---- addresses ------------------------------------------------------------------------------------------------------------- */

typedef union {
    struct sockaddr any;
    struct sockaddr_un path;
    struct sockaddr_in internet;
} address_t;

static bool parse_unix(const char *text, address_t *address, socklen_t *length) {
    const size_t size = strlen(text);
    if (size >= sizeof address->path.sun_path) {
        return false;
    }
    address->path.sun_family = AF_UNIX;
    memcpy(address->path.sun_path, text, size + 1);
    *length = sizeof address->path;
    return true;
}

static bool parse_internet(const char *text, address_t *address, socklen_t *length) {
    char host[64];
    const char *colon = strrchr(text, ':');
    if (colon == NULL || (size_t)(colon - text) >= sizeof host) {
        return false;
    }
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    char *end = NULL;
    const unsigned long port = strtoul(colon + 1, &end, 10);
    if (*end != '\0' || port == 0 || port > 65535) {
        return false;
    }
    address->internet.sin_family = AF_INET;
    address->internet.sin_port = htons((uint16_t)port);
    *length = sizeof address->internet;
    return inet_pton(AF_INET, host, &address->internet.sin_addr) == 1;
}

static bool parse_address(const char *text, address_t *address, socklen_t *length) {
    memset(address, 0, sizeof *address);
    return strchr(text, '/') != NULL ? parse_unix(text, address, length) : parse_internet(text, address, length);
}

/* ---- connections ----------------------------------------------------------------------------------------------------------- */

static int connect_once(const address_t *address, socklen_t length) {
    const int line = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (line < 0) {
        return -1;
    }
    const struct timeval limit = {.tv_sec =
                                      CONNECT_DEADLINE_MS / 1000}; /* or an address that is silent takes minutes */
    (void)setsockopt(line, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(line, &address->any, length) == 0) {
        return line;
    }
    (void)close(line);
    return -1;
}

/* Tries until the other side listens or the deadline has passed. */
static int connect_to(const address_t *address, socklen_t length) {
    const uint32_t start = disco_port_milliseconds();
    int line = connect_once(address, length);
    while (line < 0 && disco_port_milliseconds() - start < CONNECT_DEADLINE_MS) {
        (void)poll(NULL, 0, RETRY_MS);
        line = connect_once(address, length);
    }
    return line;
}

static int accept_at(const address_t *address, socklen_t length) {
    const int listener = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0) {
        return -1;
    }
    const int on = 1;
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    int line = -1;
    if (bind(listener, &address->any, length) == 0 && listen(listener, 1) == 0) {
        struct pollfd waiting = {.fd = listener, .events = POLLIN};
        if (poll(&waiting, 1, CONNECT_DEADLINE_MS) == 1) {
            line = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        }
    }
    (void)close(listener);
    return line;
}

static int open_line(const char *text, bool listens) {
    if (strncmp(text, "fd:", 3) == 0) {
        char *end = NULL;
        const long line = strtol(text + 3, &end, 10);
        return text[3] != '\0' && *end == '\0' && line >= 0 && line <= INT_MAX ? (int)line : -1;
    }
    address_t address;
    socklen_t length = 0;
    if (!parse_address(text, &address, &length)) {
        return -1;
    }
    return listens ? accept_at(&address, length) : connect_to(&address, length);
}

static disco_status_t attach(uint8_t link, const char *text, bool listens) {
    const int line = open_line(text, listens);
    if (line < 0 || fcntl(line, F_SETFL, O_NONBLOCK) != 0) {
        (void)fprintf(stderr, "node %d: no line at %s: %s\n", DISCO_BOARD_NODE, text, strerror(errno));
        return DISCO_ERR_PORT;
    }
    const int on = 1;
    (void)setsockopt(line, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* no effect on unix sockets */
    lines[link] = line;
    return DISCO_OK;
}

static disco_status_t attach_peer(const char *text) {
    char *end = NULL;
    const long node = strtol(text, &end, 10);
    if (end == text || *end != '=' || node < 0 || node >= DISCO_BOARD_NODE_COUNT || node == DISCO_BOARD_NODE) {
        (void)fprintf(stderr, "node %d: --peer %s is not NODE=ADDRESS\n", DISCO_BOARD_NODE, text);
        return DISCO_ERR_ARGUMENT;
    }
    const uint8_t link = (uint8_t)(node < DISCO_BOARD_NODE ? node + 1 : node);
    return attach(link, end + 1, DISCO_BOARD_NODE < node);
}

static disco_status_t take_option(const char *name, const char *value) {
    if (strcmp(name, "--host") == 0) {
        return attach(0, value, false);
    }
    if (strcmp(name, "--board") == 0) {
        info.board = value;
        return DISCO_OK;
    }
    return strcmp(name, "--peer") == 0 ? attach_peer(value) : DISCO_ERR_ARGUMENT;
}

disco_status_t disco_port_init(int argc, char **argv) {
    (void)signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < DISCO_BOARD_LINKS; ++i) {
        lines[i] = -1;
    }
    disco_status_t status = DISCO_OK;
    for (int i = 1; i < argc && status == DISCO_OK; i += 2) {
        status = i + 1 < argc ? take_option(argv[i], argv[i + 1]) : DISCO_ERR_ARGUMENT;
    }
    if (status == DISCO_OK && lines[0] < 0) {
        status = DISCO_ERR_ARGUMENT;
    }
    if (status == DISCO_ERR_ARGUMENT) {
        (void)fprintf(stderr, "usage: %s --host ADDRESS [--peer NODE=ADDRESS ...] [--board NAME]\n", argv[0]);
    }
    return status;
}

/* ---- bytes ----------------------------------------------------------------------------------------------------------------- */

static bool is_open(uint8_t link) {
    return link < DISCO_BOARD_LINKS && lines[link] >= 0;
}

/* The other side has gone: without a host there is nothing left to do; a lost peer shows as a wait that ends at its deadline. */
static void lose(uint8_t link) {
    if (link == 0) {
        exit(EXIT_SUCCESS);
    }
    (void)close(lines[link]);
    lines[link] = -1;
}

/* What a read or write that gave `count` has moved; errno tells why it gave less than one. */
static size_t moved(uint8_t link, ssize_t count, bool reading) {
    if (count > 0) {
        return (size_t)count;
    }
    const bool again = count < 0 && (errno == EAGAIN || errno == EINTR);
    if (!again && (reading || count < 0)) {
        lose(link);
    }
    return 0;
}

size_t disco_port_read(uint8_t link, uint8_t *bytes, size_t capacity) {
    if (!is_open(link) || capacity == 0) {
        return 0;
    }
    return moved(link, read(lines[link], bytes, capacity), true);
}

size_t disco_port_write(uint8_t link, const uint8_t *bytes, size_t length) {
    if (!is_open(link) || length == 0) {
        return 0;
    }
    const size_t taken = moved(link, write(lines[link], bytes, length), false);
    full[link] = taken < length;
    return taken;
}

void disco_port_wait(void) {
    struct pollfd waiting[DISCO_BOARD_LINKS];
    for (int i = 0; i < DISCO_BOARD_LINKS; ++i) {
        const short room = full[i] ? POLLOUT : 0;
        waiting[i] =
            (struct pollfd){.fd = lines[i], .events = (short)(POLLIN | room)}; /* poll skips negative descriptors */
    }
    (void)poll(waiting, DISCO_BOARD_LINKS, WAIT_MS);
}
