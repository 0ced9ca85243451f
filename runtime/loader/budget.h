/* budget.h - how much memory a loader's batches may take. */
#ifndef SHARDRT_LOADER_BUDGET_H
#define SHARDRT_LOADER_BUDGET_H

#include "loader/move.h"
#include "loader/plan.h"

struct budget {
  size_t bytes;     /* of the batches in the making together with those handed out, and the slack */
  size_t slack;     /* of these, what batches that were let go may take until they are collected */
  bool past_caches; /* no cache holds so much */
};

/* For `prefetch` batches in the making. EOVERFLOW. */
int budget_set(struct budget *self, const struct plan *plan, const struct move *move, int32_t prefetch);

#endif
