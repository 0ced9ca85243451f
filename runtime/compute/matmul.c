/* matmul.c - products of matrices, batches of them.
 *
 * A product is cut into tiles by its own sizes alone, and each is computed by one thread; so are the bits of the result
 * the same on any number of threads. (OpenBLAS's are not, nor the same in tiles of another size, on some processors.)
 * A transposed operand is read as it lies. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "compute/blas.h"
#include "compute/blocks.h"
#include "compute/fold.h"
#include "compute/work.h"
#include "compute/wrap.h"
#include "transform/lanes.h"

enum {
  TILE = 2 << 20,     /* elements of the largest tile: smaller ones cost some percent of OpenBLAS's speed */
  WORTH = 1 << 20,    /* products of two numbers that are worth a task */
  CONVERT = 64 << 10, /* elements whose conversion is */
  LEAST_SIDE = 64     /* of a tile, but for the last ones */
};

/* An operand or the result, in the dtype in which it is computed: where it lies, or a copy. */
struct side {
  const shardrt_array *array;
  int32_t dtype;
  int32_t lane;
  size_t elements; /* of a block */
  char *copy;      /* of its blocks, one behind the other; NULL: it is computed as it lies */
  int64_t *first;  /* of each block: the first one that has the same memory, whose copy it shares */
};

struct product {
  const struct blocks *blocks;
  struct side a, b, out;
  int32_t lane;
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  int32_t nbatch; /* leading dimensions, and in each operand the matrices from one to the next: 0 where it has 1 */
  int64_t batch[SHARDRT_MAX_NDIM], a_stride[SHARDRT_MAX_NDIM], b_stride[SHARDRT_MAX_NDIM];
  int64_t batches; /* of a block */
  int64_t tile_m, tile_n, tiles_m, tiles_n;
  int64_t each;  /* matrices of a task; 1 where they are cut */
  int64_t tasks; /* of a block */
};

static char *side_data(const struct product *self, const struct side *side, int64_t block) {
  if (side->copy == NULL) return blocks_data(self->blocks, side->array, block);
  const int64_t at = side->first == NULL ? block : side->first[block];
  return side->copy + (size_t)at * side->elements * shardrt_dtype_size(side->lane);
}

/* ---- one tile --------------------------------------------------------------------------------------------------- */

static struct wrap_matrix strided(const void *data, int64_t rows, int64_t columns, bool transposed) {
  return transposed ? (struct wrap_matrix){data, 1, (size_t)rows} : (struct wrap_matrix){data, (size_t)columns, 1};
}

/* Of one matrix of the batch, the tile of m rows and n columns from row i and column j on. */
static void multiply(const struct product *self, const char *a, const char *b, char *out, int64_t i, int64_t j) {
  const int64_t m = self->m - i < self->tile_m ? self->m - i : self->tile_m;
  const int64_t n = self->n - j < self->tile_n ? self->n - j : self->tile_n;
  const size_t lane = shardrt_dtype_size(self->lane);
  const bool wide = lane == 8;
  a += (size_t)(self->transpose_a ? i : i * self->k) * lane;
  b += (size_t)(self->transpose_b ? j * self->k : j) * lane;
  out += (size_t)(i * self->n + j) * lane;
  if (self->lane < SHARDRT_FLOAT16) {
    wrap_multiply(wide, (size_t)m, (size_t)n, (size_t)self->k, strided(a, self->m, self->k, self->transpose_a),
                  strided(b, self->k, self->n, self->transpose_b), out, (size_t)self->n);
    return;
  }
  const struct blas_matrix left = {a, (int32_t)(self->transpose_a ? self->m : self->k), self->transpose_a};
  const struct blas_matrix right = {b, (int32_t)(self->transpose_b ? self->k : self->n), self->transpose_b};
  blas_multiply(wide, (int32_t)m, (int32_t)n, (int32_t)self->k, left, right, out, (int32_t)self->n);
}

static void product_task(void *context, int64_t number) {
  const struct product *self = context;
  const int64_t block = number / self->tasks, task = number % self->tasks, tiles = self->tiles_m * self->tiles_n;
  const int64_t first = task / tiles * self->each, tile = task % tiles;
  const int64_t last = self->batches - first < self->each ? self->batches : first + self->each;
  const size_t lane = shardrt_dtype_size(self->lane);
  for (int64_t batch = first; batch < last; batch++) {
    int64_t rest = batch, a = 0, b = 0;
    for (int32_t d = self->nbatch - 1; d >= 0; d--) {
      const int64_t index = rest % self->batch[d];
      rest /= self->batch[d];
      a += index * self->a_stride[d];
      b += index * self->b_stride[d];
    }
    multiply(self, side_data(self, &self->a, block) + (size_t)(a * self->m * self->k) * lane,
             side_data(self, &self->b, block) + (size_t)(b * self->k * self->n) * lane,
             side_data(self, &self->out, block) + (size_t)(batch * self->m * self->n) * lane,
             tile / self->tiles_n * self->tile_m, tile % self->tiles_n * self->tile_n);
  }
}

static int64_t half_of(int64_t side) {
  return ((side + 1) / 2 + LEAST_SIDE - 1) / LEAST_SIDE * LEAST_SIDE;
}

static void cut(struct product *self) {
  self->tile_m = self->m;
  self->tile_n = self->n;
  /* A product with a vector reads as much as it computes, so that k counts. */
  const int64_t depth = self->m == 1 || self->n == 1 ? self->k : 1;
  while (self->tile_m * self->tile_n > TILE / depth && (self->tile_m > LEAST_SIDE || self->tile_n > LEAST_SIDE)) {
    if (2 * self->tile_m > self->tile_n)
      self->tile_m = half_of(self->tile_m);
    else
      self->tile_n = half_of(self->tile_n);
  }
  self->tiles_m = (self->m - 1) / self->tile_m + 1;
  self->tiles_n = (self->n - 1) / self->tile_n + 1;
  const int64_t work = self->m * self->n > WORTH / self->k ? WORTH : self->m * self->n * self->k;
  self->each = self->tiles_m * self->tiles_n > 1 ? 1 : (WORTH - 1) / work + 1;
  self->tasks = ((self->batches - 1) / self->each + 1) * self->tiles_m * self->tiles_n;
}

/* ---- other dtypes ----------------------------------------------------------------------------------------------- */

struct conversion {
  const struct product *product;
  const struct side *side;
  bool back;     /* from the copy, not to it */
  int64_t tasks; /* of a block */
};

static void convert_task(void *context, int64_t number) {
  const struct conversion *self = context;
  const struct side *side = self->side;
  const int64_t block = number / self->tasks;
  if (side->first != NULL && side->first[block] != block) return;
  const size_t first = (size_t)(number % self->tasks) * CONVERT;
  const size_t n = side->elements - first < CONVERT ? side->elements - first : CONVERT;
  char *own = (char *)blocks_data(self->product->blocks, side->array, block) + first * shardrt_dtype_size(side->dtype);
  char *copy = side_data(self->product, side, block) + first * shardrt_dtype_size(side->lane);
  if (self->back)
    lanes_convert(side->lane, side->dtype, copy, own, n);
  else
    lanes_convert(side->dtype, side->lane, own, copy, n);
}

static void convert(const struct product *self, const struct side *side, bool back) {
  if (side->copy == NULL || side->elements == 0) return;
  struct conversion conversion = {self, side, back, (int64_t)((side->elements - 1) / CONVERT + 1)};
  work_spread(convert_task, &conversion, self->blocks->count * conversion.tasks);
}

/* Room for a copy where the side is not in the lanes in which it is computed. An operand's blocks may be replicas. */
static int side_begin(const struct product *self, struct side *side, const shardrt_array *array, bool operand) {
  const int64_t count = self->blocks->count;
  *side = (struct side){.array = array, .dtype = shardrt_array_dtype(array), .lane = self->lane};
  side->elements = (size_t)work_shard_elements(array);
  if (side->dtype == side->lane) return SHARDRT_OK;
  if (operand) side->first = alloc_array((size_t)count, sizeof *side->first);
  if (operand && side->first == NULL) return ALLOC_FAILED;
  side->copy = alloc_array((size_t)count * side->elements, shardrt_dtype_size(side->lane));
  if (side->copy == NULL) return ALLOC_FAILED;
  for (int64_t b = 0; b < count && operand; b++) {
    int64_t first = 0;
    while (blocks_data(self->blocks, array, first) != blocks_data(self->blocks, array, b)) first++;
    side->first[b] = first;
  }
  return SHARDRT_OK;
}

static void side_end(struct side *side) {
  alloc_free(side->copy);
  alloc_free(side->first);
}

/* ---- shapes ----------------------------------------------------------------------------------------------------- */

static int check_dtypes(const shardrt_array *a, const shardrt_array *b, const shardrt_array *out) {
  const int32_t x = shardrt_array_dtype(a), y = shardrt_array_dtype(b), z = shardrt_array_dtype(out);
  const bool widened = z == SHARDRT_FLOAT32 && (x == SHARDRT_FLOAT16 || x == SHARDRT_BFLOAT16);
  if (x == y && (z == x || widened) && x != SHARDRT_BOOL) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "a product of %s and %s as %s: all must be one dtype, and not bool",
                   shardrt_dtype_name(x), shardrt_dtype_name(y), shardrt_dtype_name(z));
}

/* The leading dimensions, filled up with 1s. */
static int find_batch(struct product *self, int32_t na, const int64_t *a, int32_t nb, const int64_t *b) {
  const int32_t lead_a = na - 2, lead_b = nb - 2;
  self->nbatch = lead_a > lead_b ? lead_a : lead_b;
  self->batches = 1;
  int64_t in_a = 1, in_b = 1;
  for (int32_t d = self->nbatch - 1; d >= 0; d--) {
    const int32_t da = d - (self->nbatch - lead_a), db = d - (self->nbatch - lead_b);
    const int64_t x = da < 0 ? 1 : a[da], y = db < 0 ? 1 : b[db];
    if (x != y && x != 1 && y != 1)
      return error_set(SHARDRT_EINVAL,
                       "matmul: leading dimensions of %" PRId64 " and %" PRId64 " in a shard; they must be equal or 1",
                       x, y);
    self->batch[d] = x == 1 ? y : x;
    self->a_stride[d] = x == 1 ? 0 : in_a;
    self->b_stride[d] = y == 1 ? 0 : in_b;
    self->batches *= self->batch[d];
    in_a *= x;
    in_b *= y;
  }
  return SHARDRT_OK;
}

static int find_shapes(struct product *self, const shardrt_array *a, const shardrt_array *b, const shardrt_array *out) {
  const int32_t na = shardrt_array_ndim(a), nb = shardrt_array_ndim(b);
  if (na < 2 || nb < 2)
    return error_set(SHARDRT_EINVAL, "matmul of %d and %d dimensions; both must have 2 or more", na, nb);
  int64_t x[SHARDRT_MAX_NDIM], y[SHARDRT_MAX_NDIM];
  work_shard_shape(a, x);
  work_shard_shape(b, y);
  self->m = x[na - (self->transpose_a ? 1 : 2)];
  self->k = x[na - (self->transpose_a ? 2 : 1)];
  self->n = y[nb - (self->transpose_b ? 2 : 1)];
  const int64_t k = y[nb - (self->transpose_b ? 1 : 2)];
  if (self->k != k)
    return error_set(SHARDRT_EINVAL, "matmul over %" PRId64 " and %" PRId64 " elements of a shard", self->k, k);
  int code = find_batch(self, na, x, nb, y);
  if (code != SHARDRT_OK || shardrt_array_shard_count(out) == 0) return code;
  if (self->batches * self->m * self->n != work_shard_elements(out))
    return error_set(SHARDRT_EINVAL,
                     "matmul gives %" PRId64 " matrices of %" PRId64 " by %" PRId64
                     ", the result's shards have %" PRId64 " elements",
                     self->batches, self->m, self->n, work_shard_elements(out));
  if (self->m > INT32_MAX || self->n > INT32_MAX || self->k > INT32_MAX)
    return error_set(SHARDRT_EINVAL, "matmul of sizes beyond %d", INT32_MAX);
  return SHARDRT_OK;
}

static int run(struct product *self, const shardrt_array *a, const shardrt_array *b, shardrt_array *out) {
  int code = self->lane < SHARDRT_FLOAT16 ? SHARDRT_OK : blas_open();
  if (code == SHARDRT_OK) code = side_begin(self, &self->a, a, true);
  if (code == SHARDRT_OK) code = side_begin(self, &self->b, b, true);
  if (code == SHARDRT_OK) code = side_begin(self, &self->out, out, false);
  if (code == SHARDRT_OK) {
    convert(self, &self->a, false);
    convert(self, &self->b, false);
    cut(self);
    work_spread(product_task, self, self->blocks->count * self->tasks);
    convert(self, &self->out, true);
  }
  side_end(&self->out);
  side_end(&self->b);
  side_end(&self->a);
  return code;
}

int shardrt_matmul(const shardrt_array *a, const shardrt_array *b, int32_t transpose_a, int32_t transpose_b,
                   shardrt_array *out) {
  int code = check_dtypes(a, b, out);
  if (code != SHARDRT_OK) return code;
  struct product self = {.transpose_a = transpose_a != 0, .transpose_b = transpose_b != 0};
  self.lane = fold_lane(shardrt_array_dtype(a));
  code = find_shapes(&self, a, b, out);
  if (code != SHARDRT_OK) return code;
  struct blocks blocks;
  code = blocks_begin("matmul", 2, (const shardrt_array *const[]){a, b}, out, &blocks);
  if (code != SHARDRT_OK) return code;
  self.blocks = &blocks;
  for (int64_t i = 0; i < blocks.count && self.k == 0; i++)
    memset(blocks_data(&blocks, out, i), 0, shardrt_array_shard_bytes(out));
  if (blocks.count > 0 && self.k > 0 && work_shard_elements(out) > 0) code = run(&self, a, b, out);
  blocks_end(&blocks);
  return code;
}
