/* random_state.h - numpy's RandomState, as far as shuffling goes: the same seed gives the same order, to the last
 * element. Its stream is frozen: https://numpy.org/doc/stable/reference/random/legacy.html */
#ifndef SHARDRT_DATASET_MEGATRON_RANDOM_STATE_H
#define SHARDRT_DATASET_MEGATRON_RANDOM_STATE_H

#include <stddef.h>
#include <stdint.h>

enum { RANDOM_STATE_WORDS = 624 };

/* The Mersenne Twister MT19937. */
struct random_state {
  uint32_t key[RANDOM_STATE_WORDS];
  int32_t used; /* words of the key that were given out */
};

/* numpy.random.RandomState(seed). */
void random_state_seed(struct random_state *self, uint32_t seed);
/* Its shuffle() of an array of one dimension, of `count` elements of 4 or 8 bytes. */
void random_state_shuffle_32(struct random_state *self, uint32_t *elements, int64_t count);
void random_state_shuffle_64(struct random_state *self, int64_t *elements, int64_t count);

#endif
