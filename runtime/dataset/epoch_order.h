/* epoch_order.h - which sample stands where in an epoch. */
#ifndef SHARDRT_DATASET_EPOCH_ORDER_H
#define SHARDRT_DATASET_EPOCH_ORDER_H

#include "shardrt.h"

enum { EPOCH_ORDER_MAX_ROUNDS = 24 };

/* The order of one epoch: a permutation of [0, count) that is computed, never stored. A Feistel network over the
 * fewest bits that hold count, walked along its cycle until it lands in [0, count) again (Black and Rogaway, "Ciphers
 * with arbitrary finite domains", 2002). Every round changes one half of the bits by a function of the other, which
 * can be undone whatever the function is: so it is a permutation for every count, also where the two halves differ in
 * width by one. */
struct epoch_order {
  uint64_t seed;
  int64_t epoch;
  int64_t count;
  bool shuffle;
  int32_t rounds;
  int32_t low_bits;                      /* the halves are low_bits and, above them, as many bits or one more */
  uint64_t low_mask, high_mask;          /* of either half, moved down to bit 0 */
  uint64_t keys[EPOCH_ORDER_MAX_ROUNDS]; /* one for each round, drawn from (seed, epoch, count) */
};

/* Needs count >= 0 and epoch >= 0. Without shuffle the order is the source's own. */
void epoch_order_set(struct epoch_order *self, uint64_t seed, int64_t epoch, int64_t count, bool shuffle);

/* The sample at `position` of an epoch of a source; needs 0 <= position < count, which is the source's length. Of a
 * mix, each part has the order of its own epochs, drawn from the seed and the part's place in the mix. *epoch becomes
 * the epoch that the sample is in. */
int64_t epoch_order_sample(const struct epoch_order *self, const shardrt_source *source, int64_t position,
                           int64_t *epoch);

#endif
