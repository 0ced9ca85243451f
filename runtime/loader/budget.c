#include "loader/budget.h"

#include "base/error.h"
#include "base/size.h"
#include "system/machine.h"

enum { LEAST_LANDING = 2 };

/* A few batches, so that a collection is not needed for each, but of small ones more, and of large ones less. */
static size_t slack_of(size_t batch_bytes) {
  enum { BATCHES = 4, LEAST = 6 << 20, MOST = 12 << 20 };
  return batch_bytes < LEAST / BATCHES ? LEAST : batch_bytes > MOST / BATCHES ? MOST : BATCHES * batch_bytes;
}

static int too_many(int32_t batches, size_t bytes) {
  return error_set(SHARDRT_EOVERFLOW, "%d batches of %zu bytes do not fit in 64 bits", (int)batches, bytes);
}

int32_t budget_landing(const struct upload_plan *uploads, int32_t prefetch) {
  if (uploads == NULL) return 0;
  return prefetch > LEAST_LANDING ? prefetch : LEAST_LANDING;
}

/* `prefetch` of them as they are read, two as the caller has them (who holds one while he asks for the next), and,
 * where they move, one that is on the way. */
int budget_set(struct budget *self, const struct plan *plan, const struct batch_reshard *reshard,
               const struct upload_plan *uploads, int32_t prefetch) {
  const size_t handed_out = reshard->any ? 3 : 2, ahead = uploads != NULL ? uploads->batch_bytes : plan->batch_bytes;
  struct budget made = {.slack = slack_of(reshard->batch_bytes), .landing = budget_landing(uploads, prefetch)};
  size_t out;
  if (!size_multiply(ahead, (size_t)prefetch, &made.bytes) || !size_multiply(reshard->batch_bytes, handed_out, &out) ||
      !size_add(made.bytes, out, &made.bytes) || !size_add(made.bytes, made.slack, &made.bytes))
    return too_many(prefetch + 1, ahead);
  made.pool = made.bytes;
  if (uploads != NULL && !size_multiply(plan->batch_bytes, (size_t)prefetch + (size_t)made.landing, &made.pool))
    return too_many(prefetch + made.landing, plan->batch_bytes);
  made.past_caches = made.pool > machine_shared_cache();
  *self = made;
  return SHARDRT_OK;
}
