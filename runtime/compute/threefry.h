/* threefry.h - the block function of JAX's random numbers: Threefry2x32 of 20 rounds (Salmon, Moraes, Dror, Shaw:
 * "Parallel random numbers: as easy as 1, 2, 3", 2011; Random123's threefry2x32). */
#ifndef SHARDRT_COMPUTE_THREEFRY_H
#define SHARDRT_COMPUTE_THREEFRY_H

#include <stddef.h>
#include <stdint.h>

/* Puts in place of n counters (x0[i], x1[i]) the two words that each gives under a key of two words. */
void threefry_blocks(const uint32_t *key, size_t n, uint32_t *x0, uint32_t *x1);

#endif
