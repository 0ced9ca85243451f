/* budget.h - how much memory a loader's batches may take. */
#ifndef SHARDRT_LOADER_BUDGET_H
#define SHARDRT_LOADER_BUDGET_H

#include "loader/move.h"
#include "loader/plan.h"
#include "loader/upload.h"

/* Where devices have memory of their own: so many batches that were handed out, or dropped, may still be copied there
 * from the blocks in which they were made. */
enum { LANDING = 2 };

struct budget {
  size_t bytes;     /* of the batches in the making together with those handed out, and the slack */
  size_t pool;      /* of the blocks in which they are made: the same, but where these are copied from */
  size_t slack;     /* of these, what batches that were let go may take until they are collected */
  bool past_caches; /* no cache holds so much */
};

/* For `prefetch` batches in the making, which are copied by `uploads`, if that is not NULL. EOVERFLOW. */
int budget_set(struct budget *self, const struct plan *plan, const struct move *move, const struct upload_plan *uploads,
               int32_t prefetch);

#endif
