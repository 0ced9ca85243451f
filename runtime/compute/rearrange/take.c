// build: -O3
/* take.c - elements at indices along an axis of each shard, and the way back: its gradient. */
#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/simd.h"
#include "compute/reduce/reduce_loops.h"
#include "compute/unique_blocks.h"
#include "compute/work.h"
#include "memory/convert.h"
#include "platform/accelerator.h"
#include "system/cache_stream.h"

enum {
  WORTH = 64 << 10, /* elements that are worth a task */
  SPAN = 128        /* columns that a thread adds to, so that there are some for each */
};

/* The whole array is [outer, size, inner], the taken one [outer, count, inner]. */
struct taking {
  const struct unique_blocks *blocks;
  const shardrt_array *x, *indices;
  shardrt_array *out;
  int64_t outer, size, count, inner;
  bool own;                  /* each outer one has indices of its own, and not all the same */
  int64_t rows;              /* of a task: of what is taken, or outer ones */
  int64_t spans;             /* of `inner`, of a task each */
  int64_t tasks;             /* of a block */
  int32_t dtype, lane;       /* of the elements; in which they are added */
  char *room;                /* for lanes, where they are not elements: those of all blocks */
  const shardrt_array *base; /* on the way back: what is there before; NULL: zeros */
  bool sets;                 /* on the way back: the last one takes a place, none is added */
  bool streams;              /* what is taken, past the caches */
  atomic_bool outside;       /* whether an index of its own was outside the axis, as it was taken */
};

static int check_take_dtypes(const char *what, int32_t whole, int32_t index, int32_t taken) {
  if (whole != taken)
    return error_set(SHARDRT_EINVAL, "%s: %s and %s", what, shardrt_dtype_name(whole), shardrt_dtype_name(taken));
  if (index == SHARDRT_INT32 || index == SHARDRT_INT64) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s: indices are int32 or int64, not %s", what, shardrt_dtype_name(index));
}

/* Whole and taken have the same axes but for `axis`, which has the indices' in its place; the whole may have sizes of 1
 * before them. */
static int check_take(const char *what, const shardrt_array *whole, const shardrt_array *indices, int32_t axis,
                      const shardrt_array *taken, struct taking *self) {
  self->outer = self->count = self->inner = 1;
  int code =
      check_take_dtypes(what, shardrt_array_dtype(whole), shardrt_array_dtype(indices), shardrt_array_dtype(taken));
  if (code != SHARDRT_OK) return code;
  const int32_t more = shardrt_array_ndim(indices), left = shardrt_array_ndim(taken), ndim = left - more + 1;
  const int32_t lead = shardrt_array_ndim(whole) - ndim;
  if (ndim < 1 || lead < 0 || axis < 0 || axis >= ndim)
    return error_set(SHARDRT_EINVAL, "%s: indices of %d dimensions in place of axis %d of %d do not make %d", what,
                     more, axis, shardrt_array_ndim(whole), left);
  int64_t all[SHARDRT_MAX_NDIM], at[SHARDRT_MAX_NDIM], to[SHARDRT_MAX_NDIM];
  work_shard_shape(whole, all);
  work_shard_shape(indices, at);
  work_shard_shape(taken, to);
  for (int32_t d = 0; d < lead; d++)
    if (all[d] > 1) return error_set(SHARDRT_EINVAL, "%s: the whole has %d dimensions too many", what, lead);
  const int64_t *from = all + lead;
  self->size = from[axis];
  for (int32_t d = 0; d < left; d++) {
    const int64_t wanted = d < axis ? from[d] : d < axis + more ? at[d - axis] : from[d - more + 1];
    if (to[d] != wanted)
      return error_set(SHARDRT_EINVAL,
                       "%s: what is taken has %" PRId64 " in dimension %d of a shard; it must be %" PRId64, what, to[d],
                       d, wanted);
    int64_t *part = d < axis ? &self->outer : d < axis + more ? &self->count : &self->inner;
    *part *= wanted;
  }
  return SHARDRT_OK;
}

static int64_t index_at(const void *indices, int32_t dtype, int64_t i) {
  return dtype == SHARDRT_INT32 ? ((const int32_t *)indices)[i] : ((const int64_t *)indices)[i];
}

/* Whether an index is outside the axis; a loop without a way out becomes vectors. */
static bool any_outside(const void *indices, int32_t dtype, int64_t n, int64_t size) {
  bool outside = false;
  if (dtype == SHARDRT_INT32 && size <= INT32_MAX) {
    const int32_t *all = indices, least = -(int32_t)size, most = (int32_t)size - 1;
    for (int64_t i = 0; i < n; i++) outside |= (all[i] < least) | (all[i] > most);
  } else {
    for (int64_t i = 0; i < n; i++) {
      const int64_t index = index_at(indices, dtype, i);
      outside |= (index < -size) | (index >= size);
    }
  }
  return outside;
}

/* All indices are within the axis, before anything is taken. */
static int check_indices(const struct taking *self) {
  const int32_t dtype = shardrt_array_dtype(self->indices);
  const int64_t n = self->outer * self->inner > 0 ? self->count * (self->own ? self->outer : 1) : 0;
  for (int64_t b = 0; b < self->blocks->count; b++) {
    const void *indices = unique_blocks_data(self->blocks, self->indices, b);
    if (!any_outside(indices, dtype, n, self->size)) continue;
    for (int64_t i = 0; i < n; i++) {
      const int64_t index = index_at(indices, dtype, i);
      if (index < -self->size || index >= self->size)
        return error_set(SHARDRT_EINVAL, "index %" PRId64 " is outside an axis of %" PRId64, index, self->size);
    }
  }
  return SHARDRT_OK;
}

/* ---- on devices that have memory of their own ------------------------------------------------------------------- */

static struct accelerator_taking device_taking(const struct taking *self) {
  return (struct accelerator_taking){.dtype = self->dtype,
                                     .index_dtype = shardrt_array_dtype(self->indices),
                                     .outer = self->outer,
                                     .size = self->size,
                                     .inner = self->inner,
                                     .count = self->count};
}

/* Replicas of indices are looked at once: it means to wait for a device. */
static int check_on_devices(const char *what, const struct taking *self) {
  const struct accelerator_taking taking = device_taking(self);
  int code = SHARDRT_OK;
  for (int64_t b = 0; b < self->blocks->count && self->outer * self->inner > 0 && code == SHARDRT_OK; b++) {
    const int64_t shard = self->blocks->shards[b];
    if (work_replica(self->indices, shard) == shard)
      code = accelerator_get()->kernels->check_indices(what, unique_blocks_device(self->blocks, self->out, b), &taking,
                                                       unique_blocks_data(self->blocks, self->indices, b));
  }
  return code;
}

/* `add`: the way back. */
static int take_on_devices(const char *what, const struct taking *self, bool add) {
  const struct accelerator *a = accelerator_get();
  const struct accelerator_taking taking = device_taking(self);
  int code = check_on_devices(what, self);
  for (int64_t b = 0; b < self->blocks->count && code == SHARDRT_OK; b++)
    code = (add ? a->kernels->take_add : a->kernels->take)(
        what, unique_blocks_device(self->blocks, self->out, b), &taking, unique_blocks_data(self->blocks, self->x, b),
        unique_blocks_data(self->blocks, self->indices, b), unique_blocks_data(self->blocks, self->out, b));
  return code;
}

/* ---- there ------------------------------------------------------------------------------------------------------ */

/* Single elements of `size` ones: no calls, and indices of each dtype in a loop of their own. */
#define TAKE_EACH(type, index_t)                                                                                       \
  do {                                                                                                                 \
    const type *restrict source = from;                                                                                \
    type *restrict target = to;                                                                                        \
    const index_t *restrict all = indices;                                                                             \
    for (int64_t i = 0; i < n; i++) target[i] = source[all[i] < 0 ? all[i] + size : all[i]];                           \
  } while (0)
#define TAKE_ELEMENTS(type)                                                                                            \
  static void take_##type(const void *from, const void *indices, int32_t dtype, int64_t size, void *to, int64_t n) {   \
    if (dtype == SHARDRT_INT32)                                                                                        \
      TAKE_EACH(type, int32_t);                                                                                        \
    else                                                                                                               \
      TAKE_EACH(type, int64_t);                                                                                        \
  }
TAKE_ELEMENTS(simd_1)
TAKE_ELEMENTS(simd_2)
TAKE_ELEMENTS(simd_4)
TAKE_ELEMENTS(simd_8)

static void take_elements(size_t bytes, const void *from, const void *indices, int32_t dtype, int64_t size, void *to,
                          int64_t n) {
  assert(bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
  (bytes == 1   ? take_simd_1
   : bytes == 2 ? take_simd_2
   : bytes == 4 ? take_simd_4
                : take_simd_8)(from, indices, dtype, size, to, n);
}

/* Rows of `inner` elements that stand one behind the other in what is taken. */
static void take_task(void *context, int64_t number) {
  struct taking *self = context;
  const int64_t block = number / self->tasks, first = number % self->tasks * self->rows,
                all = self->outer * self->count;
  const int64_t last = all - first < self->rows ? all : first + self->rows;
  const int32_t dtype = shardrt_array_dtype(self->indices);
  const void *indices = unique_blocks_data(self->blocks, self->indices, block);
  const size_t bytes = (size_t)self->inner * shardrt_dtype_size(self->dtype);
  const char *from = unique_blocks_data(self->blocks, self->x, block);
  char *to = unique_blocks_data(self->blocks, self->out, block);
  for (int64_t row = first; row < last && self->inner == 1;) {
    const int64_t at = row % self->count, left = self->count - at, n = left < last - row ? left : last - row;
    const void *own = (const char *)indices + (size_t)(self->own ? row : at) * shardrt_dtype_size(dtype);
    if (self->own && any_outside(own, dtype, n, self->size)) {
      atomic_store_explicit(&self->outside, true, memory_order_relaxed);
      return;
    }
    take_elements(bytes, from + (size_t)(row / self->count * self->size) * bytes, own, dtype, self->size,
                  to + (size_t)row * bytes, n);
    row += n;
  }
  for (int64_t row = first; row < last && self->inner != 1; row++) {
    const int64_t index = index_at(indices, dtype, row % self->count);
    assert(index >= -self->size && index < self->size);
    const int64_t at = row / self->count * self->size + (index < 0 ? index + self->size : index);
    if (self->streams)
      cache_stream(to + (size_t)row * bytes, from + (size_t)at * bytes, bytes);
    else
      memcpy(to + (size_t)row * bytes, from + (size_t)at * bytes, bytes);
  }
  if (self->streams) cache_stream_end();
}

/* Indices that each outer one has of its own are looked at as they are taken: each is in the cache then. */
static int take_here(struct taking *self) {
  assert(!self->own || self->inner == 1);
  const int code = self->own ? SHARDRT_OK : check_indices(self);
  const int64_t rows = self->outer * self->count;
  if (code != SHARDRT_OK || rows == 0 || self->inner == 0) return code;
  self->streams = (size_t)self->inner * shardrt_dtype_size(self->dtype) >= CACHE_STREAM_LEAST &&
                  work_streams(1, &self->x, 1, &self->out);
  self->rows = (WORTH - 1) / self->inner + 1;
  self->tasks = (rows - 1) / self->rows + 1;
  work_spread(take_task, self, self->blocks->count * self->tasks);
  return atomic_load_explicit(&self->outside, memory_order_relaxed) ? check_indices(self) : SHARDRT_OK;
}

int shardrt_take(const shardrt_array *x, const shardrt_array *indices, int32_t axis, shardrt_array *out) {
  struct taking self = {.x = x, .indices = indices, .out = out, .dtype = shardrt_array_dtype(x)};
  if (shardrt_array_ndim(x) + shardrt_array_ndim(indices) - 1 != shardrt_array_ndim(out))
    return error_set(SHARDRT_EINVAL, "take: indices of %d dimensions in place of one of %d do not make %d",
                     shardrt_array_ndim(indices), shardrt_array_ndim(x), shardrt_array_ndim(out));
  int code = check_take("take", x, indices, axis, out, &self);
  if (code != SHARDRT_OK) return code;
  struct unique_blocks blocks;
  code = unique_blocks_begin("take", 2, (const shardrt_array *const[]){x, indices}, out, &blocks);
  if (code != SHARDRT_OK) return code;
  self.blocks = &blocks;
  if (accelerator_get() != NULL) {
    code = take_on_devices("take", &self, false);
    unique_blocks_end(&blocks);
    return code;
  }
  code = take_here(&self);
  unique_blocks_end(&blocks);
  return code;
}

/* Rows {…, n} and indices {…, k} lie alike but for their last dimension. */
static int check_take_rows(const shardrt_array *x, const shardrt_array *indices, const shardrt_array *out,
                           struct taking *self) {
  int code = check_take_dtypes("take_rows", self->dtype, shardrt_array_dtype(indices), shardrt_array_dtype(out));
  if (code != SHARDRT_OK) return code;
  if (accelerator_get() != NULL)
    return error_set(SHARDRT_EINVAL, "take_rows: of devices with memory of their own, where take of places does it");
  const int32_t ndim = shardrt_array_ndim(x);
  int64_t from[SHARDRT_MAX_NDIM], at[SHARDRT_MAX_NDIM], to[SHARDRT_MAX_NDIM];
  work_shard_shape(x, from);
  work_shard_shape(indices, at);
  work_shard_shape(out, to);
  bool alike = ndim > 0 && shardrt_array_ndim(indices) == ndim && shardrt_array_ndim(out) == ndim;
  for (int32_t d = 0; d < ndim && alike; d++) alike = at[d] == to[d] && (d == ndim - 1 || from[d] == at[d]);
  if (!alike)
    return error_set(SHARDRT_EINVAL, "take_rows: shards of the rows, the indices and the result do not go together");
  self->outer = self->inner = 1;
  for (int32_t d = 0; d < ndim - 1; d++) self->outer *= from[d];
  self->size = from[ndim - 1];
  self->count = at[ndim - 1];
  return SHARDRT_OK;
}

int shardrt_take_rows(const shardrt_array *x, const shardrt_array *indices, shardrt_array *out) {
  struct taking self = {.x = x, .indices = indices, .out = out, .dtype = shardrt_array_dtype(x), .own = true};
  int code = check_take_rows(x, indices, out, &self);
  struct unique_blocks blocks;
  if (code == SHARDRT_OK)
    code = unique_blocks_begin("take_rows", 2, (const shardrt_array *const[]){x, indices}, out, &blocks);
  if (code != SHARDRT_OK) return code;
  self.blocks = &blocks;
  code = take_here(&self);
  unique_blocks_end(&blocks);
  return code;
}

/* ---- the way back ----------------------------------------------------------------------------------------------- */

/* A few outer ones, or some columns of one, whole: so each element is added to by one thread, in the order of the
 * indices. */
static void add_task(void *context, int64_t number) {
  const struct taking *self = context;
  const int64_t block = number / self->tasks, task = number % self->tasks;
  const int64_t first = task / self->spans * self->rows, left = task % self->spans * SPAN;
  const int64_t last = self->outer - first < self->rows ? self->outer : first + self->rows;
  const size_t n = (size_t)(self->inner - left < SPAN ? self->inner - left : SPAN);
  const int32_t dtype = shardrt_array_dtype(self->indices);
  const void *indices = unique_blocks_data(self->blocks, self->indices, block);
  const size_t element = shardrt_dtype_size(self->dtype), lane = shardrt_dtype_size(self->lane);
  const bool convert = self->room != NULL;
  const char *dy = unique_blocks_data(self->blocks, self->x, block);
  const char *base = self->base != NULL ? unique_blocks_data(self->blocks, self->base, block) : NULL;
  char *out = unique_blocks_data(self->blocks, self->out, block);
  char *sums = convert ? self->room + (size_t)(block * self->outer * self->size * self->inner) * lane : out;
  double room[SPAN];
  /* Runs of elements that are one behind the other, of all rows: each row's part, or all. */
  const bool is_whole = self->spans == 1;
  const int64_t runs = is_whole ? 1 : self->size;
  const size_t each = is_whole ? (size_t)self->size * n : n;
  for (int64_t o = first; o < last; o++) {
    const int64_t start = o * self->size;
    for (int64_t i = start; i < start + runs; i++) {
      const size_t at = (size_t)(i * self->inner + left);
      if (base == NULL)
        memset(sums + at * lane, 0, each * lane);
      else
        convert_elements(self->dtype, self->lane, base + at * element, sums + at * lane, each);
    }
    for (int64_t i = 0; i < self->count; i++) {
      const int64_t index = index_at(indices, dtype, i), row = start + (index < 0 ? index + self->size : index);
      assert(row >= start && row < start + self->size);
      const char *from = dy + (size_t)((o * self->count + i) * self->inner + left) * element;
      if (self->sets) {
        memcpy(sums + (size_t)(row * self->inner + left) * lane, from, n * lane);
        continue;
      }
      if (convert) convert_elements(self->dtype, self->lane, from, room, n);
      reduce_into(SHARDRT_SUM, self->lane, sums + (size_t)(row * self->inner + left) * lane,
                  convert ? (const void *)room : from, n);
    }
    for (int64_t i = start; i < start + runs && convert; i++) {
      const size_t at = (size_t)(i * self->inner + left);
      convert_elements(self->lane, self->dtype, sums + at * lane, out + at * element, each);
    }
  }
}

static int add_here(struct taking *self) {
  const struct unique_blocks *blocks = self->blocks;
  const int64_t elements = work_shard_elements(self->out);
  int code = check_indices(self);
  if (code == SHARDRT_OK && self->lane != self->dtype) {
    self->room = alloc_array((size_t)(blocks->count * elements), shardrt_dtype_size(self->lane));
    if (self->room == NULL) code = ALLOC_FAILED;
  }
  if (code == SHARDRT_OK && elements > 0) {
    self->spans = (self->inner - 1) / SPAN + 1;
    self->rows = self->spans > 1 ? 1 : (WORTH - 1) / ((self->count + self->size) * self->inner) + 1;
    self->tasks = ((self->outer - 1) / self->rows + 1) * self->spans;
    work_spread(add_task, self, blocks->count * self->tasks);
  }
  alloc_free(self->room);
  return code;
}

int shardrt_take_add(const shardrt_array *dy, const shardrt_array *indices, int32_t axis, shardrt_array *out) {
  const int32_t dtype = shardrt_array_dtype(out);
  struct taking self = {.x = dy, .indices = indices, .out = out, .dtype = dtype, .lane = reduce_lane(dtype)};
  if (dtype == SHARDRT_BOOL) return error_set(SHARDRT_EINVAL, "take_add: bools are not added");
  int code = check_take("take_add", out, indices, axis, dy, &self);
  if (code != SHARDRT_OK) return code;
  struct unique_blocks blocks;
  code = unique_blocks_begin("take_add", 2, (const shardrt_array *const[]){dy, indices}, out, &blocks);
  if (code != SHARDRT_OK) return code;
  self.blocks = &blocks;
  code = accelerator_get() != NULL ? take_on_devices("take_add", &self, true) : add_here(&self);
  unique_blocks_end(&blocks);
  return code;
}

static int check_update(const shardrt_array *x, int32_t sets, const shardrt_array *out) {
  const int32_t ndim = shardrt_array_ndim(out), dtype = shardrt_array_dtype(out);
  int64_t shape[SHARDRT_MAX_NDIM] = {0}, wanted[SHARDRT_MAX_NDIM] = {0};
  if (accelerator_get() != NULL)
    return error_set(SHARDRT_EINVAL, "take_update: of devices with memory of their own, where take_add does it");
  if (sets == 0 && dtype == SHARDRT_BOOL) return error_set(SHARDRT_EINVAL, "take_update: bools are not added");
  work_shard_shape(x, shape);
  work_shard_shape(out, wanted);
  bool alike = shardrt_array_dtype(x) == dtype && shardrt_array_ndim(x) == ndim;
  for (int32_t d = 0; d < ndim && alike; d++) alike = shape[d] == wanted[d];
  return alike ? SHARDRT_OK : error_set(SHARDRT_EINVAL, "take_update: the array and the result differ");
}

int shardrt_take_update(const shardrt_array *x, const shardrt_array *values, const shardrt_array *indices, int32_t axis,
                        int32_t sets, shardrt_array *out) {
  const int32_t dtype = shardrt_array_dtype(out);
  struct taking self = {.x = values, .indices = indices, .out = out, .dtype = dtype, .base = x, .sets = sets != 0};
  self.lane = self.sets ? dtype : reduce_lane(dtype);
  int code = check_update(x, sets, out);
  if (code == SHARDRT_OK) code = check_take("take_update", out, indices, axis, values, &self);
  if (code != SHARDRT_OK) return code;
  struct unique_blocks blocks;
  code = unique_blocks_begin("take_update", 3, (const shardrt_array *const[]){x, values, indices}, out, &blocks);
  if (code != SHARDRT_OK) return code;
  self.blocks = &blocks;
  code = add_here(&self);
  unique_blocks_end(&blocks);
  return code;
}
