/* pruned.h - samples that are known not to count without a look at them: what statistics in files say of a condition.
 */
#ifndef SHARDRT_DATASET_VIEW_PRUNED_H
#define SHARDRT_DATASET_VIEW_PRUNED_H

#include "dataset/view/view.h"

/* Ranges that ascend and do not touch. */
struct pruned {
  bool is_condition; /* the field that was asked is the outcome of one */
  int64_t count, capacity;
  struct sample_range *ranges;
};

/* Adds a range that begins behind all others, or where they end; an empty one is none. */
int pruned_add(struct pruned *self, int64_t first, int64_t count);
void pruned_clear(struct pruned *self);
/* Adds the ranges of another. */
int pruned_join(struct pruned *self, const struct pruned *other);
int64_t pruned_samples(const struct pruned *self);
/* Which of `count` samples from `first` on, 64 at most, are in none: a bit each. */
uint64_t pruned_left(const struct pruned *self, int64_t first, int64_t count);

/* What a base says of a field of its own, for a view that has the same samples as ranges of its own. */
int pruned_by_base(const shardrt_source *view, const shardrt_source *base, int32_t field,
                   const struct condition *condition, view_place *place, struct pruned *out);

#endif
