/* epoch_order.h - which sample stands where in an epoch. */
#ifndef SHARDRT_DATASET_ORDER_EPOCH_ORDER_H
#define SHARDRT_DATASET_ORDER_EPOCH_ORDER_H

#include "dataset/order/feistel.h"
#include "shardrt.h"

struct block_orders;

/* The order of one epoch: the source's own; a permutation of [0, count) that is computed, never stored (feistel.h); or
 * one over blocks (block_order.h), whose tables all who need them share. */
struct epoch_order {
  uint64_t seed;
  int64_t epoch;
  int64_t count;
  bool shuffle;
  struct block_orders *blocks; /* borrowed; NULL: it is one of the other two */
  struct feistel_keys keys;    /* drawn from (seed, epoch, count), */
  int32_t rounds;              /* for so many rounds */
};

/* Needs count >= 0 and epoch >= 0. Without shuffle the order is the source's own. */
void epoch_order_set(struct epoch_order *self, uint64_t seed, int64_t epoch, int64_t count, bool shuffle);

/* The samples at n positions of an epoch of a source, from `first` on; all below count, which is the source's length.
 * Of a mix, each part has the order of its own epochs, drawn from the seed and the part's place in the mix. `epochs`
 * become the epochs that the samples are in. ENOMEM, where the order is one over blocks. */
int epoch_order_samples(const struct epoch_order *self, const shardrt_source *source, int64_t first, int64_t n,
                        int64_t *samples, int64_t *epochs);

/* The sample at a position, where there are no blocks and no mix; and those at n positions from `first` on. */
int64_t epoch_order_at(const struct epoch_order *self, int64_t position);
void epoch_order_many(const struct epoch_order *self, int64_t first, int64_t n, int64_t *samples);

#endif
