/* softmax.c - rows to exp(x) over its sum, or the logarithm of that, while a row is in the cache. Each step is rounded,
 * and sums are taken in the order, as where every step is a pass of its own (reduce.c, elementwise.c). */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "compute/elementwise/kernel.h"
#include "compute/reduce/reduce_loops.h"
#include "compute/unique_blocks.h"
#include "compute/work.h"
#include "memory/array.h"
#include "memory/convert.h"
#include "platform/accelerator.h"
#include "system/cache_stream.h"

enum { WORTH = 64 << 10 }; /* elements that are worth a task */

struct softmax {
  const struct unique_blocks *blocks;
  const shardrt_array *x;
  shardrt_array *out;
  int32_t dtype, lane;
  bool is_log;
  bool streams; /* past the caches */
  size_t rows, n;
  size_t each; /* rows of a task */
  int64_t tasks;
  kernel *subtract, *divide, *exp, *log;
};

/* Lanes of up to a block of elements, one more of each row. */
union lanes {
  double any[REDUCE_BLOCK];
  char bytes[REDUCE_BLOCK * sizeof(double)];
};

static size_t lane_bytes(const struct softmax *self) {
  return shardrt_dtype_size(self->lane);
}

static void compute(kernel *of, const void *a, const void *b, void *to, size_t n) {
  const void *const from[] = {a, b, b};
  of(from, to, n);
}

/* n elements as lanes: where they lie, or in `room`. */
static const void *load(const struct softmax *self, const void *from, size_t n, union lanes *room) {
  if (self->dtype == self->lane) return from;
  convert_elements(self->dtype, self->lane, from, room, n);
  return room;
}

/* Lanes as the numbers of the dtype that they are stored as. */
static void round_lanes(const struct softmax *self, union lanes *lanes, size_t n) {
  if (self->dtype == self->lane) return;
  union lanes raw;
  convert_elements(self->lane, self->dtype, lanes, &raw, n);
  convert_elements(self->dtype, self->lane, &raw, lanes, n);
}

/* Each of `rows` lanes n times. */
static void repeat(const struct softmax *self, const union lanes *one, size_t rows, size_t n, union lanes *to) {
  const size_t lane = lane_bytes(self);
  for (size_t r = 0; r < rows; r++) {
    char *row = to->bytes + r * n * lane;
    memcpy(row, one->bytes + r * lane, lane);
    for (size_t done = 1; done < n; done *= 2)
      memcpy(row + done * lane, row, (n - done < done ? n - done : done) * lane);
  }
}

/* The largest of each of `rows` rows of n, a block in all at most, as what reduce_order makes of it. */
static void largest_keys(const struct softmax *self, const char *x, size_t rows, size_t n, union lanes *to) {
  union lanes keys;
  reduce_order(SHARDRT_MAX, self->dtype, x, &keys, rows * n);
  reduce_groups(SHARDRT_MAX, reduce_ordered_lane(self->dtype), &keys, to, rows, n, 1);
}

static void lanes_of_keys(const struct softmax *self, const union lanes *keys, size_t n, union lanes *to) {
  union lanes raw;
  reduce_values(SHARDRT_MAX, self->dtype, keys, &raw, n);
  convert_elements(self->dtype, self->lane, &raw, to, n);
}

/* What the results of rows are made of their sums: these, or their logarithms. */
static void finish_sums(const struct softmax *self, union lanes *sums, size_t rows) {
  round_lanes(self, sums, rows);
  if (!self->is_log) return;
  union lanes logs;
  compute(self->log, sums, sums, &logs, rows);
  round_lanes(self, &logs, rows);
  memcpy(sums, &logs, rows * lane_bytes(self));
}

/* The results of rows of n, a block in all: of x less the largest, or of its exp; `sums` as finish_sums leaves them. */
static void store(const struct softmax *self, const void *values, const union lanes *sums, size_t rows, size_t n,
                  char *out) {
  union lanes all, made;
  repeat(self, sums, rows, n, &all);
  kernel *last = self->is_log ? self->subtract : self->divide;
  if (self->dtype == self->lane && values != out && !self->streams) {
    compute(last, values, &all, out, rows * n);
    return;
  }
  compute(last, values, &all, &made, rows * n);
  if (!self->streams) {
    convert_elements(self->lane, self->dtype, &made, out, rows * n);
    return;
  }
  union lanes converted;
  if (self->dtype != self->lane) convert_elements(self->lane, self->dtype, &made, &converted, rows * n);
  cache_stream(out, self->dtype == self->lane ? &made : &converted, rows * n * shardrt_dtype_size(self->dtype));
}

/* Several rows that are a block together. */
static void short_rows(const struct softmax *self, const char *x, size_t rows, char *out) {
  const size_t n = self->n;
  union lanes keys, largest, all, room, shifted, powers, sums;
  largest_keys(self, x, rows, n, &keys);
  lanes_of_keys(self, &keys, rows, &largest);
  repeat(self, &largest, rows, n, &all);
  compute(self->subtract, load(self, x, rows * n, &room), &all, &shifted, rows * n);
  compute(self->exp, &shifted, &shifted, &powers, rows * n);
  round_lanes(self, &powers, rows * n);
  reduce_groups(SHARDRT_SUM, self->lane, &powers, &sums, rows, n, 1);
  finish_sums(self, &sums, rows);
  store(self, self->is_log ? &shifted : &powers, &sums, rows, n, out);
}

/* A row that is longer than a block, in progress. */
struct long_row {
  const struct softmax *self;
  const char *x;
  char *out;
  const union lanes *largest; /* a block of it */
};

/* The sum of exp(x - largest) of elements that follow one another, by halves; softmax keeps these in the result. */
static void sum_powers(const struct long_row *row, size_t at, size_t n, union lanes *to) {
  const struct softmax *self = row->self;
  if (n > REDUCE_BLOCK) {
    size_t above = REDUCE_BLOCK;
    while (above * 2 < n) above *= 2;
    double other;
    sum_powers(row, at, above, to);
    union lanes right;
    sum_powers(row, at + above, n - above, &right);
    memcpy(&other, &right, sizeof other);
    reduce_into(SHARDRT_SUM, self->lane, to, &other, 1);
    return;
  }
  const size_t bytes = shardrt_dtype_size(self->dtype);
  union lanes room, shifted, powers;
  compute(self->subtract, load(self, row->x + at * bytes, n, &room), row->largest, &shifted, n);
  compute(self->exp, &shifted, &shifted, &powers, n);
  round_lanes(self, &powers, n);
  if (!self->is_log) convert_elements(self->lane, self->dtype, &powers, row->out + at * bytes, n);
  reduce_groups(SHARDRT_SUM, self->lane, &powers, to, 1, n, 1);
}

static void long_row(const struct softmax *self, const char *x, char *out) {
  const size_t bytes = shardrt_dtype_size(self->dtype);
  union lanes keys, largest, all, sum;
  for (size_t at = 0; at < self->n; at += REDUCE_BLOCK) {
    union lanes next;
    const size_t n = self->n - at < REDUCE_BLOCK ? self->n - at : REDUCE_BLOCK;
    largest_keys(self, x + at * bytes, 1, n, at == 0 ? &keys : &next);
    if (at > 0) reduce_into(SHARDRT_MAX, reduce_ordered_lane(self->dtype), &keys, &next, 1);
  }
  lanes_of_keys(self, &keys, 1, &largest);
  repeat(self, &largest, 1, REDUCE_BLOCK, &all);
  const struct long_row row = {.self = self, .x = x, .out = out, .largest = &all};
  sum_powers(&row, 0, self->n, &sum);
  finish_sums(self, &sum, 1);
  for (size_t at = 0; at < self->n; at += REDUCE_BLOCK) {
    const size_t n = self->n - at < REDUCE_BLOCK ? self->n - at : REDUCE_BLOCK;
    union lanes room, shifted;
    const void *values = load(self, (self->is_log ? x : out) + at * bytes, n, &room);
    if (self->is_log) {
      compute(self->subtract, values, &all, &shifted, n);
      values = &shifted;
    }
    store(self, values, &sum, 1, n, out + at * bytes);
  }
}

static void softmax_task(void *context, int64_t number) {
  const struct softmax *self = context;
  const int64_t block = number / self->tasks;
  const size_t first = (size_t)(number % self->tasks) * self->each, bytes = self->n * shardrt_dtype_size(self->dtype);
  const size_t last = self->rows - first < self->each ? self->rows : first + self->each;
  const char *x = unique_blocks_data(self->blocks, self->x, block);
  char *out = unique_blocks_data(self->blocks, self->out, block);
  const size_t several = self->n > REDUCE_BLOCK ? 1 : REDUCE_BLOCK / self->n;
  for (size_t r = first; r < last; r += several) {
    if (self->n > REDUCE_BLOCK)
      long_row(self, x + r * bytes, out + r * bytes);
    else
      short_rows(self, x + r * bytes, last - r < several ? last - r : several, out + r * bytes);
  }
  if (self->streams) cache_stream_end();
}

static int check_softmax(const shardrt_array *x, const shardrt_array *out, int64_t *shape) {
  int64_t other[SHARDRT_MAX_NDIM];
  const int32_t ndim = shardrt_array_ndim(x), dtype = shardrt_array_dtype(x);
  if (ndim == 0 || shardrt_array_ndim(out) != ndim || shardrt_array_dtype(out) != dtype || dtype < SHARDRT_FLOAT16)
    return error_set(SHARDRT_EINVAL, "softmax of %s of %d dimensions, as %s of %d", shardrt_dtype_name(dtype), ndim,
                     shardrt_dtype_name(shardrt_array_dtype(out)), shardrt_array_ndim(out));
  if (accelerator_get() != NULL) return error_set(SHARDRT_EINVAL, "softmax in one pass: not on the host");
  work_shard_shape(x, shape);
  work_shard_shape(out, other);
  if (memcmp(shape, other, (size_t)ndim * sizeof *shape) != 0)
    return error_set(SHARDRT_EINVAL, "softmax: shards of the array and of the result differ in shape");
  return SHARDRT_OK;
}

int shardrt_softmax(const shardrt_array *x, int32_t is_log, shardrt_array *out) {
  int64_t shape[SHARDRT_MAX_NDIM] = {0};
  struct unique_blocks blocks;
  int code = check_softmax(x, out, shape);
  if (code == SHARDRT_OK) code = unique_blocks_begin("softmax", 1, &x, out, &blocks);
  if (code != SHARDRT_OK) return code;
  const int64_t elements = work_shard_elements(x);
  if (elements > 0) {
    const int32_t dtype = shardrt_array_dtype(x), lane = reduce_lane(dtype);
    struct softmax self = {.blocks = &blocks, .x = x, .out = out, .dtype = dtype, .lane = lane, .is_log = is_log != 0};
    self.n = (size_t)shape[shardrt_array_ndim(x) - 1];
    self.streams =
        self.n <= REDUCE_BLOCK && work_streams(1, &x, 1, &out); /* a longer row is read again from the result */
    self.rows = (size_t)elements / self.n;
    self.each = (WORTH - 1) / self.n + 1;
    self.tasks = (int64_t)((self.rows - 1) / self.each + 1);
    self.subtract = kernel_find(SHARDRT_OP_SUB, lane, KERNEL_OF_ALL);
    self.divide = kernel_find(SHARDRT_OP_DIV, lane, KERNEL_OF_ALL);
    self.exp = kernel_find(SHARDRT_OP_EXP, lane, KERNEL_OF_ALL);
    self.log = kernel_find(SHARDRT_OP_LOG, lane, KERNEL_OF_ALL);
    work_spread(softmax_task, &self, blocks.count * self.tasks);
  }
  unique_blocks_end(&blocks);
  return code;
}
