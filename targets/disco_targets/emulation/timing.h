/* How many cycles a core is taken to need. */
#ifndef DISCO_TIMING_H
#define DISCO_TIMING_H

#include "thumb.h"

typedef struct {
    uint8_t cycles;     /* whenever the instruction is executed */
    uint8_t per_access; /* for every access to memory that it makes: none where its condition is false */
} timing_t;

typedef struct {
    const char *name; /* as boards name it */
    /* Costs of `count` instructions that follow each other, the first of them reached from anywhere. */
    void (*block)(const thumb_t *instructions, size_t count, timing_t *timings);
    uint8_t unaligned_half;    /* more cycles for a halfword at an odd address */
    uint8_t unaligned_word[4]; /* and for a word at an address of this remainder */
    uint8_t taken;        /* more cycles for a conditional branch that is taken; 0 where the core predicts branches */
    uint8_t mispredicted; /* more cycles for one that was predicted wrongly; 0 where it does not predict */
} core_t;

extern const core_t timing_cortex_m4, timing_cortex_m7;

#endif
