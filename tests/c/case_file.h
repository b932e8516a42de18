/* Reads the case files of the kernel drivers; `source` is opened by the driver. */
#ifndef DISCO_TESTS_CASE_FILE_H
#define DISCO_TESTS_CASE_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *source;

static void die(const char *what) {
    (void)fprintf(stderr, "%s\n", what);
    exit(EXIT_FAILURE);
}

static void read_bytes(void *bytes, size_t length) {
    if (length > 0 && fread(bytes, 1, length, source) != length) {
        die("the case file is too short");
    }
}

static uint32_t read_u32(void) {
    uint32_t value;
    read_bytes(&value, sizeof value);
    return value;
}

static uint32_t read_count(uint32_t limit) {
    const uint32_t count = read_u32();
    if (count > limit) {
        die("the case file holds too large a count");
    }
    return count;
}

#endif
