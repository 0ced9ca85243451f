/* mix.h - several sources in given proportions.
 *
 * The samples of a mix are numbered as in a concatenation of its parts. Which part's turn it is at which position comes
 * from a pattern of `period` positions that repeats without end, over the borders of epochs; each part goes through its
 * own samples again and again, once for each of its own epochs. In every `period` positions that follow one another
 * each part has exactly its share; of the first n positions it has its share to within one sample, and so of any n that
 * follow one another to within two. */
#ifndef SHARDRT_DATASET_VIEW_MIX_H
#define SHARDRT_DATASET_VIEW_MIX_H

#include "shardrt.h"

struct mix;

/* Whose turn it is at a position. */
struct mix_turn {
  int64_t first, count; /* the samples of the part, in the mix */
  int64_t before;       /* how often it was its turn before, from position 0 of the first epoch on */
};

/* How many positions an epoch has. */
int64_t mix_length(const struct mix *self);
/* Needs 0 <= position; positions count through all epochs. */
struct mix_turn mix_turn_at(const struct mix *self, int64_t position);
/* The sample at a position where each part's samples are taken in their own order. */
int64_t mix_sample(const struct mix *self, int64_t position);

#endif
