/* key.h - the random bits that a key gives to each element of an array, by themselves. */
#ifndef SHARDRT_COMPUTE_KEY_H
#define SHARDRT_COMPUTE_KEY_H

#include "shardrt.h"

enum { KEY_TILE = 1024 }; /* elements that are best asked for together */

/* EINVAL where the key cannot give `width` bits to each of `size` elements: the older layout counts in 32 bits. */
int key_check(const shardrt_key *key, int64_t size, int32_t width);

/* The random bits, `width` of them (8, 16 or 32), of n <= KEY_TILE of an array's `size` elements: those at the
 * row-major places `at`. Needs what key_check checks. */
void key_bits(const shardrt_key *key, int64_t size, int32_t width, const int64_t *at, size_t n, uint32_t *bits);

#endif
