/* random_api.h - keys, and the numbers drawn from them: a part of shardrt.h. */
#ifndef SHARDRT_COMPUTE_RANDOM_RANDOM_API_H
#define SHARDRT_COMPUTE_RANDOM_RANDOM_API_H

#include "compute/compute_api.h"

/* A key of JAX's default generator, Threefry2x32: whoever has it makes the same numbers, in any sharding, on any number
 * of threads. What the two ways to count are stands in compute/random/key.c. */
typedef struct shardrt_key {
  uint32_t words[2];
  int32_t partitionable; /* 0: the older layout, in which a number depends on the size of the whole array, too */
} shardrt_key;
enum { SHARDRT_MAX_KEYS = 1 << 24 };

/* `count` new keys from one, which is not to be used otherwise then. EINVAL: not in [1, SHARDRT_MAX_KEYS]. */
int shardrt_key_split(const shardrt_key *key, int64_t count, shardrt_key *keys);
/* The key's `number`-th other one; out may be key. */
void shardrt_key_fold_in(const shardrt_key *key, uint32_t number, shardrt_key *out);

/* Each fills an array that is being made, every distinct box of this process from its place in the whole array alone.
 * EINVAL: an array of another dtype; one that is too large for the key's layout; numbers that make no sense. */
int shardrt_key_bits(const shardrt_key *key, shardrt_array *out); /* uint8, uint16 or uint32 */
/* float32, in [minval, maxval) but for rounding. EINVAL: minval >= maxval, or the difference is not finite. */
int shardrt_key_uniform(const shardrt_key *key, float minval, float maxval, shardrt_array *out);
int shardrt_key_normal(const shardrt_key *key, shardrt_array *out); /* float32: mean 0, deviation 1 */
/* bool: true with that probability. EINVAL: not in [0, 1]. */
int shardrt_key_bernoulli(const shardrt_key *key, float probability, shardrt_array *out);
/* int32, in [minval, maxval). EINVAL: minval >= maxval, or beyond [-2^31, 2^31]. */
int shardrt_key_randint(const shardrt_key *key, int64_t minval, int64_t maxval, shardrt_array *out);
/* int32: the numbers below its size in random order. EINVAL: not of one dimension, cut, or of 2^31 and more. */
int shardrt_key_permutation(const shardrt_key *key, shardrt_array *out);

#endif
