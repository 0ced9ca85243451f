#include "compute/reduce/extreme.h"

#include <string.h>

#include "base/alloc.h"
#include "compute/work.h"
#include "memory/convert.h"

/* One pass over all blocks. Each chunk leaves the best value of its rows, in lanes, and where it stands. */
struct extreme_search {
  struct pass pass;
  int32_t op;
  int32_t from;
  int32_t lane;
  size_t lane_bytes;
  const struct unique_blocks *blocks;
  const shardrt_array *x;
  shardrt_array *out;
  char *best;     /* [block, outer, chunk, inner], where there are several chunks */
  int32_t *where; /* the same */
};

static const void *load_search_lanes(const struct extreme_search *self, const char *x, size_t first, size_t n,
                                     void *room) {
  const char *from = x + first * shardrt_dtype_size(self->from);
  if (self->from == self->lane) return from;
  convert_elements(self->from, self->lane, from, room, n);
  return room;
}

/* The best of n elements, as a lane. */
static void best_of_block(const struct extreme_search *self, const char *x, size_t first, size_t n, void *best) {
  double room[REDUCE_BLOCK], key, value;
  if (!reduce_is_ordered(self->op, self->from)) {
    reduce_groups(self->op, self->lane, load_search_lanes(self, x, first, n, room), best, 1, n, 1);
    return;
  }
  reduce_order(self->op, self->from, x + first * shardrt_dtype_size(self->from), room, n);
  reduce_groups(self->op, reduce_ordered_lane(self->from), room, &key, 1, n, 1);
  reduce_values(self->op, self->from, &key, &value, 1);
  convert_elements(self->from, self->lane, &value, best, 1);
}

/* Elements one behind the other, some of a row: the best of each block by the loops for the best, and then where it
 * stands in the first block that has it. */
static void search_row(const struct extreme_search *self, const char *x, size_t at, size_t top, size_t bottom,
                       void *best, int32_t *where) {
  double room[REDUCE_BLOCK], block_best;
  size_t best_top = top;
  for (size_t i = top; i < bottom; i += REDUCE_BLOCK) {
    const size_t n = bottom - i < REDUCE_BLOCK ? bottom - i : REDUCE_BLOCK;
    best_of_block(self, x, at + i, n, &block_best);
    int32_t better = 0;
    if (i == top)
      memcpy(best, &block_best, self->lane_bytes);
    else
      reduce_better(self->op, self->lane, best, &better, &block_best, 1, 1);
    if (better != 0) best_top = i;
  }
  const size_t n = bottom - best_top < REDUCE_BLOCK ? bottom - best_top : REDUCE_BLOCK;
  *where = (int32_t)(best_top + reduce_find(self->lane, load_search_lanes(self, x, at + best_top, n, room), n, best));
}

/* `width` elements of each of some rows that lie `inner` apart. */
static void search_columns(const struct extreme_search *self, const char *x, size_t at, size_t top, size_t bottom,
                           size_t width, void *best, int32_t *where) {
  double room[REDUCE_BLOCK];
  const size_t inner = self->pass.inner;
  memcpy(best, load_search_lanes(self, x, at + top * inner, width, room), width * self->lane_bytes);
  for (size_t k = 0; k < width; k++) where[k] = (int32_t)top;
  for (size_t i = top + 1; i < bottom; i++)
    reduce_better(self->op, self->lane, best, where, load_search_lanes(self, x, at + i * inner, width, room),
                  (int32_t)i, width);
}

static void search_task(void *context, int64_t number) {
  const struct extreme_search *self = context;
  const struct pass *pass = &self->pass;
  const int64_t block = number / pass->tasks;
  const struct pass_part part = pass_part(pass, number % pass->tasks);
  const char *x = unique_blocks_data(self->blocks, self->x, block);
  double room[REDUCE_BLOCK];
  for (size_t o = part.first; o < part.last; o++)
    for (size_t c = part.left; c < part.right; c += REDUCE_BLOCK) {
      const size_t width = part.right - c < REDUCE_BLOCK ? part.right - c : REDUCE_BLOCK;
      const size_t to = (o * pass->chunks + part.number) * pass->inner + c, at = o * pass->n * pass->inner + c;
      const size_t kept = (size_t)block * pass->outer * pass->chunks * pass->inner + to;
      void *best = pass->chunks == 1 ? (void *)room : self->best + kept * self->lane_bytes;
      int32_t *where =
          pass->chunks == 1 ? (int32_t *)unique_blocks_data(self->blocks, self->out, block) + to : self->where + kept;
      if (pass->inner == 1)
        search_row(self, x, at, part.top, part.bottom, best, where);
      else
        search_columns(self, x, at, part.top, part.bottom, width, best, where);
    }
}

/* The best of all chunks of one row. */
static void search_end(void *context, int64_t row) {
  const struct extreme_search *self = context;
  const size_t inner = self->pass.inner, chunks = self->pass.chunks, outer = self->pass.outer;
  const size_t first = (size_t)row * chunks * inner;
  int32_t *out = unique_blocks_data(self->blocks, self->out, row / (int64_t)outer);
  for (size_t k = 0; k < inner; k++) {
    int32_t chunk = 0;
    for (size_t c = 1; c < chunks; c++)
      reduce_better(self->op, self->lane, self->best + (first + k) * self->lane_bytes, &chunk,
                    self->best + (first + c * inner + k) * self->lane_bytes, (int32_t)c, 1);
    out[(size_t)row % outer * inner + k] = self->where[first + (size_t)chunk * inner + k];
  }
}

int extreme_run(int32_t op, const struct pass *pass, const struct unique_blocks *blocks, const shardrt_array *x,
                shardrt_array *out) {
  const int32_t from = shardrt_array_dtype(x), lane = reduce_lane(from);
  struct extreme_search self = {
      .pass = *pass, .op = op, .from = from, .lane = lane, .blocks = blocks, .x = x, .out = out};
  self.lane_bytes = shardrt_dtype_size(lane);
  const size_t rows = (size_t)blocks->count * pass->outer,
               kept = pass->chunks > 1 ? rows * pass->chunks * pass->inner : 0;
  self.best = alloc_array(kept, self.lane_bytes);
  self.where = self.best == NULL ? NULL : alloc_array(kept, sizeof *self.where);
  if (self.where == NULL) {
    alloc_free(self.best);
    return ALLOC_FAILED;
  }
  work_spread(search_task, &self, blocks->count * pass->tasks);
  if (kept > 0) work_spread(search_end, &self, (int64_t)rows);
  alloc_free(self.where);
  alloc_free(self.best);
  return SHARDRT_OK;
}
