/* cursor.h - where in its epochs a loader stands: plain arithmetic, the same in every process. */
#ifndef SHARDRT_LOADER_PLAN_CURSOR_H
#define SHARDRT_LOADER_PLAN_CURSOR_H

#include "shardrt.h"

/* What a walk through the epochs is made of. */
struct cursor_rules {
  int64_t count;      /* samples */
  int64_t batch_size; /* > 0 */
  int64_t epochs;     /* < 0: without end */
  int32_t remainder;  /* SHARDRT_DROP, … */
};

/* The next batch begins at `row` of `epoch`'s order. Invariant: there is a batch there (cursor_rows > 0), or the walk
 * has ended: epoch == epochs and row == 0. */
struct cursor {
  int64_t epoch;
  int64_t row;
};

/* EINVAL: with SHARDRT_ERROR, batches that do not divide the samples; no batch at all, again and again without end. */
int cursor_check(const struct cursor_rules *rules);
int64_t cursor_steps(const struct cursor_rules *rules); /* batches of an epoch */
/* Puts the cursor at a place, or at the next one where there is a batch. EINVAL: it is outside the epochs; with
 * SHARDRT_ERROR: from there on batches do not divide what is left. */
int cursor_seek(struct cursor *self, const struct cursor_rules *rules, int64_t epoch, int64_t row);
/* Past the batch that stands here. */
void cursor_advance(struct cursor *self, const struct cursor_rules *rules);
/* How many real rows the batch here has; 0: the walk has ended. */
int64_t cursor_rows(const struct cursor *self, const struct cursor_rules *rules);

#endif
