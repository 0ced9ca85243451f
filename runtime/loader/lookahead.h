/* lookahead.h - a thread that goes ahead of a loader's workers and has what the next batches need brought into the
 * page cache, as long as it finds any of it missing. It changes nothing that anybody sees but the time that reads take.
 */
#ifndef SHARDRT_LOADER_LOOKAHEAD_H
#define SHARDRT_LOADER_LOOKAHEAD_H

#include "loader/plan/cursor.h"
#include "loader/plan/plan.h"

struct lookahead;

/* Where the loader is. `first` is the number of the oldest batch still in use; it begins at `place`. Workers were given
 * those before `end`, which begins at `end_place`. */
struct lookahead_view {
  int64_t first;
  int64_t end;
  struct cursor place;
  struct cursor end_place;
};

struct block_orders;

/* Starts the thread; the plan stays the caller's and outlives it, as do `blocks`, NULL unless the order is one of
 * these. $SHARDRT_AHEAD chooses its way: "io_uring" (as when it is not set), "threads" or "off", with which *out is
 * NULL. */
int lookahead_new(const struct plan *plan, const struct cursor_rules *rules, uint64_t seed, bool shuffle,
                  struct block_orders *blocks, struct lookahead **out);
/* Ends the thread, when what it has in flight has ended. */
void lookahead_free(struct lookahead *self);
/* Tells where the loader is now. Costs nearly nothing while all is in the page cache. */
void lookahead_tell(struct lookahead *self, const struct lookahead_view *view);
/* The loader goes on from somewhere else, of which it will tell. */
void lookahead_forget(struct lookahead *self);

/* How many bytes it has had brought in, and how: as ahead_way; "off" where there is none. */
void lookahead_stats(const struct lookahead *self, int64_t *bytes, const char **way);
/* Of these, what was downloaded from servers. */
int64_t lookahead_downloaded(const struct lookahead *self);

#endif
