/* budget.h - how much memory a loader's batches may take. */
#ifndef SHARDRT_LOADER_BUDGET_H
#define SHARDRT_LOADER_BUDGET_H

#include "loader/batch_reshard.h"
#include "loader/plan/plan.h"
#include "loader/upload.h"

struct budget {
  size_t bytes;     /* of the batches in the making together with those handed out, and the slack */
  size_t pool;      /* of the blocks in which they are made: the same, but where these are copied from */
  int32_t landing;  /* how many batches that were handed out or dropped may still have theirs; 0: none is copied */
  size_t slack;     /* of these, what batches that were let go may take until they are collected */
  bool past_caches; /* no cache holds so much */
};

/* Of what is copied to devices as many batches may land as are made ahead, and two where that is one. This is how many
 * steps the recipe may be ahead of the devices, too. */
int32_t budget_landing(const struct upload_plan *uploads, int32_t prefetch);

/* For `prefetch` batches in the making, which are copied by `uploads`, if that is not NULL. EOVERFLOW. */
int budget_set(struct budget *self, const struct plan *plan, const struct batch_reshard *reshard,
               const struct upload_plan *uploads, int32_t prefetch);

#endif
