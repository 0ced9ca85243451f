/* prefetcher.h - a thread that goes ahead of a loader's workers and has what the next batches need brought into the
 * page cache, as long as it finds any of it missing. It changes nothing that anybody sees but the time that reads take.
 */
#ifndef SHARDRT_LOADER_PREFETCHER_H
#define SHARDRT_LOADER_PREFETCHER_H

#include "loader/plan/cursor.h"
#include "loader/plan/plan.h"

struct prefetcher;

/* Where the loader is. `first` is the number of the oldest batch still in use; it begins at `place`. Workers were given
 * those before `end`, which begins at `end_place`. */
struct prefetcher_view {
  int64_t first;
  int64_t end;
  struct cursor place;
  struct cursor end_place;
};

/* Starts the thread; the plan stays the caller's and outlives it. $SHARDRT_AHEAD chooses its way: "io_uring" (as when
 * it is not set), "threads" or "off", with which *out is NULL. */
int prefetcher_new(const struct plan *plan, const struct cursor_rules *rules, uint64_t seed, bool shuffle,
                   struct prefetcher **out);
/* Ends the thread, when what it has in flight has ended. */
void prefetcher_free(struct prefetcher *self);
/* Tells where the loader is now. Costs nearly nothing while all is in the page cache. */
void prefetcher_tell(struct prefetcher *self, const struct prefetcher_view *view);
/* The loader goes on from somewhere else, of which it will tell. */
void prefetcher_forget(struct prefetcher *self);

/* How many bytes it has had brought in, and how: as ahead_way; "off" where there is none. */
void prefetcher_stats(const struct prefetcher *self, int64_t *bytes, const char **way);

#endif
