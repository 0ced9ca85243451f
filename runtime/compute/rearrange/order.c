/* order.c - the indices that bring each row of a shard in order: a radix sort of keys with their indices, a byte at a
 * time from the lowest on, without those bytes that all keys of a row share. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "compute/rearrange/order_key.h"
#include "compute/unique_blocks.h"
#include "compute/work.h"
#include "platform/accelerator.h"

enum {
  FEW = 24, /* elements that are put in their places one by one */
  DIGITS = 256,
  KEY_BYTES = 8,
  TASKS_OF_A_THREAD = 4
};

struct entry {
  uint64_t key;
  int32_t index;
};

struct ordering {
  const struct unique_blocks *blocks;
  const shardrt_array *x;
  shardrt_array *out;
  struct order_kind kind;
  int64_t rows, n; /* rows of all blocks together; elements of a row */
  int64_t wanted;  /* of each row: the first of its order */
  int64_t block_rows;
  int64_t tasks;
  struct entry *room; /* for each task, two rows */
};

static uint64_t bits_at(const void *row, int32_t bytes, int64_t i) {
  switch (bytes) {
  case 1:
    return ((const simd_1 *)row)[i];
  case 2:
    return ((const simd_2 *)row)[i];
  case 4:
    return ((const simd_4 *)row)[i];
  default:
    return ((const simd_8 *)row)[i];
  }
}

static void sort_few(struct entry *entries, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    const struct entry one = entries[i];
    int64_t k = i;
    for (; k > 0 && entries[k - 1].key > one.key; k--) entries[k] = entries[k - 1];
    entries[k] = one;
  }
}

/* One pass, by a byte of the keys. Equal ones keep their order. */
static void sort_pass(const struct entry *from, struct entry *to, int64_t n, int32_t shift) {
  int64_t next[DIGITS] = {0}, sum = 0;
  for (int64_t i = 0; i < n; i++) next[from[i].key >> shift & (DIGITS - 1)]++;
  for (int32_t d = 0; d < DIGITS; d++) {
    const int64_t count = next[d];
    next[d] = sum;
    sum += count;
  }
  for (int64_t i = 0; i < n; i++) to[next[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
}

/* `spare` is as large. Returns which of the two holds the row in order. */
static const struct entry *sort_row(struct entry *entries, struct entry *spare, int64_t n) {
  if (n <= FEW) {
    sort_few(entries, n);
    return entries;
  }
  uint64_t differ = 0;
  for (int64_t i = 1; i < n; i++) differ |= entries[i].key ^ entries[0].key;
  for (int32_t byte = 0; byte < KEY_BYTES; byte++) {
    if ((differ >> (8 * byte) & (DIGITS - 1)) == 0) continue;
    sort_pass(entries, spare, n, 8 * byte);
    struct entry *sorted = spare;
    spare = entries;
    entries = sorted;
  }
  return entries;
}

/* The first few of a row's order, at most n, to `entries`: each element is compared with the last of those that were
 * the first so far, and of few it takes the place. Equal ones keep their order. */
static void select_row(const struct ordering *self, const char *from, struct entry *entries) {
  int64_t found = 0;
  for (int64_t i = 0; i < self->n; i++) {
    const uint64_t key = order_key(self->kind, bits_at(from, self->kind.bytes, i));
    if (found == self->wanted && key >= entries[found - 1].key) continue;
    int64_t k = found < self->wanted ? found++ : found - 1;
    for (; k > 0 && entries[k - 1].key > key; k--) entries[k] = entries[k - 1];
    entries[k] = (struct entry){key, (int32_t)i};
  }
}

/* Every `tasks`-th row. */
static void select_task(void *context, int64_t number) {
  const struct ordering *self = context;
  struct entry *entries = self->room + (size_t)(number * self->wanted);
  for (int64_t row = number; row < self->rows; row += self->tasks) {
    const int64_t block = row / self->block_rows, at = row % self->block_rows;
    const char *from = unique_blocks_data(self->blocks, self->x, block);
    int32_t *to = (int32_t *)unique_blocks_data(self->blocks, self->out, block) + at * self->wanted;
    select_row(self, from + (size_t)(at * self->n * self->kind.bytes), entries);
    for (int64_t i = 0; i < self->wanted; i++) to[i] = entries[i].index;
  }
}

/* Every `tasks`-th row. */
static void order_task(void *context, int64_t number) {
  const struct ordering *self = context;
  struct entry *entries = self->room + (size_t)(2 * number * self->n);
  for (int64_t row = number; row < self->rows; row += self->tasks) {
    const int64_t block = row / self->block_rows, at = row % self->block_rows;
    const char *from = unique_blocks_data(self->blocks, self->x, block);
    int32_t *to = (int32_t *)unique_blocks_data(self->blocks, self->out, block) + at * self->wanted;
    from += (size_t)(at * self->n * self->kind.bytes);
    for (int64_t i = 0; i < self->n; i++)
      entries[i] = (struct entry){order_key(self->kind, bits_at(from, self->kind.bytes, i)), (int32_t)i};
    const struct entry *sorted = sort_row(entries, entries + self->n, self->n);
    for (int64_t i = 0; i < self->wanted; i++) to[i] = sorted[i].index;
  }
}

static struct order_kind kind_of(int32_t dtype, bool descending, bool is_total) {
  struct order_kind kind = {.bytes = (int32_t)shardrt_dtype_size(dtype), .is_total = is_total};
  kind.is_signed = dtype == SHARDRT_INT8 || dtype == SHARDRT_INT16 || dtype == SHARDRT_INT32 || dtype == SHARDRT_INT64;
  if (dtype == SHARDRT_FLOAT16) kind.infinity = 0x7C00U;
  if (dtype == SHARDRT_BFLOAT16) kind.infinity = 0x7F80U;
  if (dtype == SHARDRT_FLOAT32) kind.infinity = 0x7F800000U;
  if (dtype == SHARDRT_FLOAT64) kind.infinity = 0x7FF0000000000000U;
  if (descending) kind.flip = kind.bytes == KEY_BYTES ? UINT64_MAX : ((uint64_t)1 << (8 * kind.bytes)) - 1;
  return kind;
}

static int check_argsort(const shardrt_array *x, const shardrt_array *out, int64_t *shape, int64_t *wanted) {
  int64_t other[SHARDRT_MAX_NDIM] = {0};
  const int32_t ndim = shardrt_array_ndim(x);
  if (ndim < 1 || shardrt_array_ndim(out) != ndim || shardrt_array_dtype(out) != SHARDRT_INT32)
    return error_set(SHARDRT_EINVAL, "argsort of %d dimensions gives int32 of as many, not %s of %d", ndim,
                     shardrt_dtype_name(shardrt_array_dtype(out)), shardrt_array_ndim(out));
  work_shard_shape(x, shape);
  work_shard_shape(out, other);
  *wanted = other[ndim - 1];
  if (memcmp(shape, other, (size_t)(ndim - 1) * sizeof *shape) != 0 || *wanted > shape[ndim - 1])
    return error_set(SHARDRT_EINVAL, "argsort: shards of the array and of the result differ in shape");
  if (*wanted < shape[ndim - 1] && accelerator_get() != NULL)
    return error_set(SHARDRT_EINVAL, "argsort: the first of an order, of devices that have memory of their own");
  if (shape[ndim - 1] > INT32_MAX)
    return error_set(SHARDRT_EINVAL, "argsort of rows of %" PRId64 " elements; int32 numbers fewer", shape[ndim - 1]);
  return SHARDRT_OK;
}

static int order_on_devices(const struct accelerator *platform, const struct ordering *self) {
  int code = SHARDRT_OK;
  for (int64_t b = 0; b < self->blocks->count && code == SHARDRT_OK; b++)
    code = platform->kernels->argsort("argsort", unique_blocks_device(self->blocks, self->out, b), &self->kind,
                                      self->block_rows, self->n, unique_blocks_data(self->blocks, self->x, b),
                                      unique_blocks_data(self->blocks, self->out, b));
  return code;
}

int shardrt_argsort(const shardrt_array *x, int32_t descending, int32_t total, shardrt_array *out) {
  int64_t shape[SHARDRT_MAX_NDIM] = {0};
  int64_t wanted = 0;
  int code = check_argsort(x, out, shape, &wanted);
  struct unique_blocks blocks;
  if (code == SHARDRT_OK) code = unique_blocks_begin("argsort", 1, &x, out, &blocks);
  if (code != SHARDRT_OK) return code;
  struct ordering self = {
      .blocks = &blocks, .x = x, .out = out, .n = shape[shardrt_array_ndim(x) - 1], .wanted = wanted};
  self.kind = kind_of(shardrt_array_dtype(x), descending != 0, total != 0);
  const int64_t elements = work_shard_elements(x);
  self.block_rows = elements > 0 ? elements / self.n : 0;
  self.rows = blocks.count * self.block_rows;
  const struct accelerator *platform = accelerator_get();
  if (self.rows > 0 && platform != NULL) {
    code = order_on_devices(platform, &self);
  } else if (self.rows > 0 && wanted > 0) {
    const bool few = wanted < self.n && wanted <= FEW;
    const int64_t most = (int64_t)TASKS_OF_A_THREAD * work_threads();
    self.tasks = self.rows < most ? self.rows : most;
    self.room = alloc_array((size_t)(self.tasks * (few ? wanted : 2 * self.n)), sizeof *self.room);
    if (self.room == NULL)
      code = ALLOC_FAILED;
    else
      work_spread(few ? select_task : order_task, &self, self.tasks);
    alloc_free(self.room);
  }
  unique_blocks_end(&blocks);
  return code;
}
