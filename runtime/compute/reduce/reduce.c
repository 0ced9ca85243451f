/* reduce.c - axes that vanish. Neighbouring axes that share a fate are one, so that what is left alternates; then one
 * pass after the other, the innermost first, makes one axis vanish. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/size.h"
#include "compute/elementwise/tiles.h"
#include "compute/reduce/extreme.h"
#include "compute/reduce/pass.h"
#include "compute/reduce/reduce_loops.h"
#include "compute/unique_blocks.h"
#include "compute/work.h"
#include "memory/buffer.h"
#include "memory/convert.h"
#include "platform/accelerator.h"

/* One pass over all blocks. What a pass reads is x's or what the pass before it left: one block after the other in
 * lanes. */
struct reduce_pass {
  struct pass pass;
  int32_t op;   /* SUM, PROD, MAX or MIN */
  int32_t from; /* dtypes: of what it reads, */
  int32_t lane; /* in which it computes, */
  int32_t to;   /* and of what it leaves */
  bool truth;   /* whether elements are not 0 counts, and nothing else */
  bool orders;  /* what it reads are floats, of which lanes say the order only */
  const struct unique_blocks *blocks;
  const struct tiles *tiles; /* NULL: x has data */
  const shardrt_array *x;    /* NULL: it reads `before` */
  shardrt_array *out;        /* NULL: it leaves `after` */
  const char *before;
  char *after;
};

/* A block that a thread reads: where it lies, or what computes it. */
struct pass_block {
  const char *data;
  struct tiles_part *part; /* NULL: it has data */
};

/* n elements of what the pass reads, at most REDUCE_BLOCK, in lanes: until the next call, or in `room`. */
static const void *load_pass_lanes(const struct reduce_pass *self, const struct pass_block *x, size_t first, size_t n,
                                   void *room) {
  double raw[REDUCE_BLOCK]; /* for any elements */
  const bool same = self->from == self->lane && !self->truth;
  const char *from = x->part != NULL
                         ? tiles_read(x->part, (int64_t)first, (int64_t)(first + n), same ? room : (void *)raw)
                         : x->data + first * shardrt_dtype_size(self->from);
  if (self->truth) {
    uint8_t truths[REDUCE_BLOCK];
    convert_elements(self->from, SHARDRT_BOOL, from, truths, n);
    convert_elements(SHARDRT_BOOL, self->lane, truths, room, n);
    return room;
  }
  if (same) return from;
  if (self->orders)
    reduce_order(self->op, self->from, from, room, n);
  else
    convert_elements(self->from, self->lane, from, room, n);
  return room;
}

/* n elements that the pass leaves, of lanes. */
static void store_pass_lanes(const struct reduce_pass *self, const void *lanes, char *out, size_t first, size_t n) {
  char *to = out + first * shardrt_dtype_size(self->to);
  if (reduce_is_ordered(self->op, self->to))
    reduce_values(self->op, self->to, lanes, to, n);
  else
    convert_elements(self->lane, self->to, lanes, to, n);
}

/* Rows that follow one another, `width` elements of each, the first of which is element `at` of x: by halves, down to
 * what is reduced at once. */
static void reduce_rows(const struct reduce_pass *self, const struct pass_block *x, size_t at, size_t rows,
                        size_t width, void *to) {
  const size_t inner = self->pass.inner, base = self->pass.base;
  double room[REDUCE_BLOCK]; /* for any lanes */
  if (rows > base) {
    size_t above = base;
    while (above * 2 < rows) above *= 2;
    reduce_rows(self, x, at, above, width, to);
    reduce_rows(self, x, at + above * inner, rows - above, width, room);
    reduce_into(self->op, self->lane, to, room, width);
  } else if (inner <= PASS_NARROW) {
    reduce_groups(self->op, self->lane, load_pass_lanes(self, x, at, rows * inner, room), to, 1, rows, inner);
  } else {
    memcpy(to, load_pass_lanes(self, x, at, width, room), width * shardrt_dtype_size(self->lane));
    for (size_t i = 1; i < rows; i++)
      reduce_into(self->op, self->lane, to, load_pass_lanes(self, x, at + i * inner, width, room), width);
  }
}

/* Outer ones so small that several stand in a block. */
static void reduce_small(const struct reduce_pass *self, const struct pass_block *x, const struct pass_part *part,
                         char *out) {
  const size_t n = self->pass.n, inner = self->pass.inner, several = REDUCE_BLOCK / (n * inner);
  double room[REDUCE_BLOCK], reduced[REDUCE_BLOCK];
  for (size_t o = part->first; o < part->last;) {
    const size_t count = part->last - o < several ? part->last - o : several;
    const void *lanes = load_pass_lanes(self, x, o * n * inner, count * n * inner, room);
    reduce_groups(self->op, self->lane, lanes, reduced, count, n, inner);
    store_pass_lanes(self, reduced, out, o * inner, count * inner);
    o += count;
  }
}

static void reduce_large(const struct reduce_pass *self, const struct pass_block *x, const struct pass_part *part,
                         char *out) {
  const size_t n = self->pass.n, inner = self->pass.inner;
  double reduced[REDUCE_BLOCK];
  for (size_t o = part->first; o < part->last; o++)
    for (size_t c = part->left; c < part->right; c += REDUCE_BLOCK) {
      const size_t width = part->right - c < REDUCE_BLOCK ? part->right - c : REDUCE_BLOCK;
      const size_t to = (o * self->pass.chunks + part->number) * inner + c;
      reduce_rows(self, x, (o * n + part->top) * inner + c, part->bottom - part->top, width, reduced);
      store_pass_lanes(self, reduced, out, to, width);
    }
}

/* Elements that a pass leaves of a block. */
static size_t elements_left(const struct pass *pass) {
  return pass->outer * pass->chunks * pass->inner;
}

static void reduce_task(void *context, int64_t number) {
  const struct reduce_pass *self = context;
  const struct pass *pass = &self->pass;
  const int64_t block = number / pass->tasks;
  const struct pass_part part = pass_part(pass, number % pass->tasks);
  const size_t lane = shardrt_dtype_size(self->lane);
  struct tiles_part tiles;
  struct pass_block x = {.data = NULL};
  if (self->x == NULL) {
    x.data = self->before + (size_t)block * pass->outer * pass->n * pass->inner * lane;
  } else if (self->tiles == NULL) {
    x.data = unique_blocks_data(self->blocks, self->x, block);
  } else {
    x.part = &tiles;
    tiles_begin(&tiles, self->tiles, self->blocks->shards[block], REDUCE_BLOCK);
  }
  char *out = self->out != NULL ? unique_blocks_data(self->blocks, self->out, block)
                                : self->after + (size_t)block * elements_left(pass) * lane;
  if (pass->inner <= PASS_NARROW && pass->n <= pass->base)
    reduce_small(self, &x, &part, out);
  else
    reduce_large(self, &x, &part, out);
}

/* ---- axes ------------------------------------------------------------------------------------------------------- */

/* What is left of a shape when sizes of 1 are left out and neighbours of one fate are one. */
struct axes {
  int32_t count;
  size_t size[SHARDRT_MAX_NDIM];
  bool vanishes[SHARDRT_MAX_NDIM];
};

static void axes_add(struct axes *self, size_t size, bool vanishes) {
  if (size == 1) return;
  if (self->count > 0 && self->vanishes[self->count - 1] == vanishes) {
    self->size[self->count - 1] *= size;
    return;
  }
  self->size[self->count] = size;
  self->vanishes[self->count++] = vanishes;
}

/* The pass that makes the innermost axis that is to vanish do so, and what is left then. Without any, a pass over a
 * single row. */
static struct pass axes_next(struct axes *self) {
  int32_t last = self->count - 1;
  while (last >= 0 && !self->vanishes[last]) last--;
  size_t outer = 1, inner = 1;
  struct axes left = {0};
  for (int32_t d = 0; d < self->count; d++) {
    if (d < last) outer *= self->size[d];
    if (d > last) inner *= self->size[d];
    if (d != last) axes_add(&left, self->size[d], self->vanishes[d]);
  }
  const size_t n = last >= 0 ? self->size[last] : 1;
  *self = left;
  return pass_cut(outer, n, inner);
}

static bool axes_done(const struct axes *self) {
  for (int32_t d = 0; d < self->count; d++)
    if (self->vanishes[d]) return false;
  return true;
}

/* ---- all of it -------------------------------------------------------------------------------------------------- */

/* Passes until no axis is left that vanishes; `first` is all but the sizes. */
static int run_passes(struct reduce_pass *self, struct axes axes, shardrt_array *out, int32_t out_dtype) {
  char *before = NULL;
  bool chunked = false, done = false;
  int code = SHARDRT_OK;
  while (code == SHARDRT_OK && !done) {
    self->pass = chunked ? pass_cut(self->pass.outer, self->pass.chunks, self->pass.inner) : axes_next(&axes);
    chunked = self->pass.chunks > 1;
    done = !chunked && axes_done(&axes);
    self->before = before;
    self->after =
        done ? NULL
             : alloc_array((size_t)self->blocks->count, elements_left(&self->pass) * shardrt_dtype_size(self->lane));
    self->out = done ? out : NULL;
    self->to = done ? out_dtype : self->lane;
    if (!done && self->after == NULL)
      code = ALLOC_FAILED;
    else
      work_spread(reduce_task, self, self->blocks->count * self->pass.tasks);
    alloc_free(before);
    before = self->after;
    self->x = NULL;
    self->truth = self->orders = false;
    self->from = self->lane;
  }
  alloc_free(before);
  return code;
}

/* ---- on devices that have memory of their own ------------------------------------------------------------------- */

static const char *const names[SHARDRT_REDUCE_COUNT] = {"sum", "prod", "max", "min", "any", "all", "argmax", "argmin"};

/* The dtype of what is left between passes. */
static int32_t lane_between(int32_t op, int32_t to) {
  return op == SHARDRT_SUM || op == SHARDRT_PROD ? reduce_lane(to) : to;
}

/* One block on its own device, pass by pass, each from memory that is given back as soon as the next pass is put there.
 */
static int reduce_on_device(const struct unique_blocks *blocks, int64_t block, int32_t op, const shardrt_array *x,
                            const struct axes *axes, shardrt_array *out) {
  const struct accelerator *a = accelerator_get();
  const int32_t device = unique_blocks_device(blocks, out, block), to = shardrt_array_dtype(out);
  const int32_t between = lane_between(op, to);
  struct axes left = *axes;
  const void *from = unique_blocks_data(blocks, x, block);
  struct accelerator_reduction reduction = {.op = op, .from = shardrt_array_dtype(x)};
  shardrt_buffer *before = NULL;
  int code = SHARDRT_OK;
  bool done = false;
  while (code == SHARDRT_OK && !done) {
    const struct pass pass = axes_next(&left);
    const size_t bytes = pass.outer * pass.inner * shardrt_dtype_size(between);
    done = axes_done(&left);
    reduction.outer = (int64_t)pass.outer;
    reduction.n = (int64_t)pass.n;
    reduction.inner = (int64_t)pass.inner;
    reduction.to = done ? to : between;
    shardrt_buffer *after = NULL;
    if (!done) code = buffer_on_device(device, ACCELERATOR_MAIN, ACCELERATOR_SCRATCH, bytes, &after);
    void *target = done ? unique_blocks_data(blocks, out, block) : code < 0 ? NULL : shardrt_buffer_data(after);
    if (code == SHARDRT_OK) code = a->kernels->reduce(names[op], device, &reduction, from, target);
    shardrt_buffer_free(before);
    before = after;
    from = target;
    reduction.from = between;
  }
  shardrt_buffer_free(before);
  return code;
}

static bool is_float(int32_t dtype) {
  return dtype >= SHARDRT_FLOAT16;
}

static int check_reduce_dtypes(int32_t op, int32_t from, int32_t to) {
  const char *wanted = NULL;
  if (op == SHARDRT_SUM || op == SHARDRT_PROD)
    wanted = to == SHARDRT_BOOL || (is_float(from) && !is_float(to)) ? "a number, and a float of floats" : NULL;
  else if (op == SHARDRT_MAX || op == SHARDRT_MIN)
    wanted = from == to ? NULL : "the same";
  else if (op == SHARDRT_ANY || op == SHARDRT_ALL)
    wanted = to == SHARDRT_BOOL ? NULL : "bool";
  else
    wanted = to == SHARDRT_INT32 ? NULL : "int32";
  if (wanted == NULL) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s of %s as %s: the result must be %s", names[op], shardrt_dtype_name(from),
                   shardrt_dtype_name(to), wanted);
}

static int find_axes(const char *what, const shardrt_array *x, int32_t naxes, const int32_t *axes, bool *vanishes) {
  const int32_t ndim = shardrt_array_ndim(x);
  for (int32_t i = 0; i < naxes; i++) {
    if (axes[i] < 0 || axes[i] >= ndim)
      return error_set(SHARDRT_EINVAL, "%s over axis %d of an array of %d dimensions", what, axes[i], ndim);
    if (vanishes[axes[i]]) return error_set(SHARDRT_EINVAL, "%s over axis %d twice", what, axes[i]);
    vanishes[axes[i]] = true;
  }
  return SHARDRT_OK;
}

/* Of no elements: 0, or 1 where all or a product is asked for. */
static void fill_identity(int32_t op, int32_t dtype, char *to, size_t n) {
  const int32_t one = op == SHARDRT_PROD || op == SHARDRT_ALL;
  for (size_t i = 0; i < n; i++) convert_elements(SHARDRT_INT32, dtype, &one, to + i * shardrt_dtype_size(dtype), 1);
}

static int fill_devices(const struct unique_blocks *blocks, int32_t op, shardrt_array *out, size_t n) {
  const struct accelerator *a = accelerator_get();
  const size_t bytes = shardrt_array_shard_bytes(out);
  char *filled = alloc_array(1, bytes);
  if (filled == NULL) return ALLOC_FAILED;
  fill_identity(op, shardrt_array_dtype(out), filled, n);
  int code = SHARDRT_OK;
  for (int64_t b = 0; code == SHARDRT_OK && b < blocks->count; b++)
    code = a->copies->upload(unique_blocks_device(blocks, out, b), ACCELERATOR_MAIN, unique_blocks_data(blocks, out, b),
                             filled, bytes);
  alloc_free(filled);
  return code;
}

static int fill_empty(const struct unique_blocks *blocks, int32_t op, shardrt_array *out) {
  const size_t n = (size_t)work_shard_elements(out);
  if (accelerator_get() != NULL) return fill_devices(blocks, op, out, n);
  for (int64_t b = 0; b < blocks->count; b++)
    fill_identity(op, shardrt_array_dtype(out), unique_blocks_data(blocks, out, b), n);
  return SHARDRT_OK;
}

static int reduce_blocks(const struct unique_blocks *blocks, int32_t op, const struct tiles *tiles,
                         const shardrt_array *x, const struct axes *axes, shardrt_array *out) {
  const int32_t from = shardrt_array_dtype(x), to = shardrt_array_dtype(out);
  if (op == SHARDRT_ARGMAX || op == SHARDRT_ARGMIN) {
    struct axes left = *axes;
    const struct pass pass = axes_next(&left);
    if (!axes_done(&left)) return error_set(SHARDRT_EINVAL, "%s over axes that are no neighbours", names[op]);
    if (pass.n > INT32_MAX)
      return error_set(SHARDRT_EINVAL, "the index of an extreme of %zu elements does not fit in int32", pass.n);
    if (accelerator_get() == NULL)
      return extreme_run(op == SHARDRT_ARGMAX ? SHARDRT_MAX : SHARDRT_MIN, &pass, blocks, x, out);
  }
  if (accelerator_get() != NULL) {
    int code = SHARDRT_OK;
    for (int64_t b = 0; code == SHARDRT_OK && b < blocks->count; b++)
      code = reduce_on_device(blocks, b, op, x, axes, out);
    return code;
  }
  struct reduce_pass pass = {
      .op = op, .from = from, .orders = reduce_is_ordered(op, from), .blocks = blocks, .tiles = tiles, .x = x};
  if (op == SHARDRT_ANY || op == SHARDRT_ALL) {
    pass.op = op == SHARDRT_ANY ? SHARDRT_MAX : SHARDRT_MIN;
    pass.truth = true;
  }
  pass.lane = op == SHARDRT_MAX || op == SHARDRT_MIN ? reduce_ordered_lane(to) : reduce_lane(to);
  return run_passes(&pass, *axes, out, to);
}

/* Of `blocks` that were begun; with `tiles` x has no data yet. */
static int reduce_begun(const struct unique_blocks *blocks, int32_t op, const struct tiles *tiles,
                        const shardrt_array *x, const struct axes *axes, bool empty, shardrt_array *out) {
  if (work_shard_elements(out) == 0) return SHARDRT_OK;
  return empty ? fill_empty(blocks, op, out) : reduce_blocks(blocks, op, tiles, x, axes, out);
}

/* The axes of x's shard; in *empty whether none of its elements is reduced. */
static int check_reduce(int32_t op, const shardrt_array *x, int32_t naxes, const int32_t *axes,
                        const shardrt_array *out, struct axes *list, bool *empty) {
  if (op < 0 || op >= SHARDRT_REDUCE_COUNT) return error_set(SHARDRT_EINVAL, "there is no reduction number %d", op);
  bool vanishes[SHARDRT_MAX_NDIM] = {false};
  int code = check_reduce_dtypes(op, shardrt_array_dtype(x), shardrt_array_dtype(out));
  if (code == SHARDRT_OK) code = find_axes(names[op], x, naxes, axes, vanishes);
  if (code != SHARDRT_OK) return code;
  int64_t shape[SHARDRT_MAX_NDIM], kept = 1;
  work_shard_shape(x, shape);
  const int64_t elements = work_shard_elements(out);
  const bool here = shardrt_array_shard_count(out) > 0;
  *list = (struct axes){0};
  *empty = false;
  for (int32_t d = 0; d < shardrt_array_ndim(x); d++) {
    axes_add(list, (size_t)shape[d], vanishes[d]);
    if (!vanishes[d]) kept *= shape[d];
    if (vanishes[d] && shape[d] == 0) *empty = true;
  }
  if (here && kept != elements)
    return error_set(SHARDRT_EINVAL, "%s leaves %" PRId64 " elements of a shard; the result has %" PRId64, names[op],
                     kept, elements);
  const bool any = op == SHARDRT_SUM || op == SHARDRT_PROD || op == SHARDRT_ANY || op == SHARDRT_ALL;
  if (here && *empty && elements > 0 && !any)
    return error_set(SHARDRT_EINVAL, "%s of no elements: there is none", names[op]);
  return SHARDRT_OK;
}

int shardrt_reduce(int32_t op, const shardrt_array *x, int32_t naxes, const int32_t *axes, shardrt_array *out) {
  struct axes list;
  struct unique_blocks blocks;
  bool empty = false;
  int code = check_reduce(op, x, naxes, axes, out, &list, &empty);
  if (code == SHARDRT_OK) code = unique_blocks_begin(names[op], 1, &x, out, &blocks);
  if (code != SHARDRT_OK) return code;
  code = reduce_begun(&blocks, op, NULL, x, &list, empty, out);
  unique_blocks_end(&blocks);
  return code;
}

/* Lists the blocks of the result, and gives it its buffers; x too, where it is stored. */
static int begin_elements(const char *what, int32_t nin, const shardrt_array *const *in, shardrt_array *x, bool stores,
                          shardrt_array *out, struct unique_blocks *blocks) {
  struct unique_blocks stored;
  int code = unique_blocks_begin(what, nin, in, out, blocks);
  if (code != SHARDRT_OK || !stores) return code;
  code = unique_blocks_begin(what, nin, in, x, &stored);
  if (code == SHARDRT_OK && stored.count != blocks->count)
    code = error_set(SHARDRT_EINVAL, "%s: of %" PRId64 " blocks it makes %" PRId64 ": they are to be as many", what,
                     stored.count, blocks->count);
  unique_blocks_end(&stored);
  if (code != SHARDRT_OK) unique_blocks_end(blocks);
  return code;
}

int shardrt_reduce_elements(int32_t op, const shardrt_step *steps, int32_t nsteps, int32_t compute_dtype, int32_t nin,
                            shardrt_array *const *in, shardrt_array *x, int32_t stores, int32_t naxes,
                            const int32_t *axes, shardrt_array *out) {
  const int32_t last = nin + nsteps - 1;
  struct tiles tiles;
  struct axes list;
  struct unique_blocks blocks;
  bool empty = false;
  tiles_given(&tiles, in, 1, &last, &x, stores != 0);
  int code = check_reduce(op, x, naxes, axes, out, &list, &empty);
  if (code == SHARDRT_OK && (op == SHARDRT_ARGMAX || op == SHARDRT_ARGMIN || accelerator_get() != NULL))
    code = error_set(SHARDRT_EINVAL, "%s of what is computed meanwhile: an index, or not on the host", names[op]);
  if (code == SHARDRT_OK) code = program_set(&tiles.program, steps, nsteps, compute_dtype, nin);
  if (code == SHARDRT_OK) code = tiles_set(&tiles);
  if (code == SHARDRT_OK)
    code = begin_elements(names[op], nin, (const shardrt_array *const *)in, x, tiles.stores, out, &blocks);
  if (code != SHARDRT_OK) return code;
  code = reduce_begun(&blocks, op, &tiles, x, &list, empty, out);
  unique_blocks_end(&blocks);
  return code;
}
