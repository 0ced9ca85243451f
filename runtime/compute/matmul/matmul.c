/* matmul.c - products of matrices, batches of them.
 *
 * A product is cut into tiles by its sizes and the number of its processes, and each is computed by one thread; so are
 * the bits of the result the same on any number of threads, and in all replicas. (OpenBLAS's are not, nor the same in
 * tiles of another size, on some processors.) A transposed operand is read as it lies. Shards of the result with one
 * box whose operands differ are parts of one sum, which one thread adds up tile by tile, in the shards' order: no part
 * is ever stored by itself. Where devices have memory of their own, product.c does it. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "compute/matmul/blas.h"
#include "compute/matmul/partial_sums.h"
#include "compute/matmul/product.h"
#include "compute/matmul/wrap.h"
#include "compute/reduce/reduce_loops.h"
#include "compute/unique_blocks.h"
#include "compute/work.h"
#include "memory/array.h"
#include "memory/convert.h"
#include "platform/accelerator.h"

enum {
  TILE = 2 << 20,        /* elements of the largest tile: smaller ones cost some percent of OpenBLAS's speed */
  TILE_ADDED = 1 << 18,  /* the same where parts are added up: a tile stays in the cache from one to the next */
  TILE_LEAST = 1 << 16,  /* elements of a tile that is smaller only so that there are */
  TILES = 16,            /* so many in all, for as many threads */
  WORTH = 1 << 20,       /* products of two numbers that are worth a task */
  CONVERT = 64 << 10,    /* elements whose conversion is */
  LEAST_SIDE = 64,       /* of a tile, but for the last ones */
  HALF_SIDE = 16,        /* of a half is a multiple of it */
  WORTH_HALVES = 3 << 20 /* products of two numbers that are worth two tiles, where that is all the process computes */
};

/* An operand or the result, in the dtype in which it is computed: where it lies, or a copy. */
struct side {
  const shardrt_array *array;
  int64_t count;         /* of pieces: an operand has one for each term, the result one for each block */
  const int64_t *shards; /* of each */
  int32_t dtype;
  int32_t lane;
  size_t elements; /* of a piece */
  char *copy;      /* of its pieces, one behind the other; NULL: it is computed as it lies */
  int64_t *first;  /* of each piece: the first one that has the same memory, whose copy it shares */
};

struct product {
  const struct unique_blocks *blocks;
  struct partial_sums terms; /* a block is a box */
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

static char *side_own(const struct side *side, int64_t piece) {
  return shardrt_buffer_data(shardrt_array_buffer(side->array, side->shards[piece]));
}

static char *side_data(const struct side *side, int64_t piece) {
  if (side->copy == NULL) return side_own(side, piece);
  const int64_t at = side->first == NULL ? piece : side->first[piece];
  return side->copy + (size_t)at * side->elements * shardrt_dtype_size(side->lane);
}

/* ---- one tile --------------------------------------------------------------------------------------------------- */

static struct wrap_matrix strided(const void *data, int64_t rows, int64_t columns, bool transposed) {
  return transposed ? (struct wrap_matrix){data, 1, (size_t)rows} : (struct wrap_matrix){data, (size_t)columns, 1};
}

/* Of one matrix of the batch, the tile of m rows and n columns from row i and column j on; `add`: to what is there. */
static void multiply(const struct product *self, const char *a, const char *b, char *out, int64_t i, int64_t j,
                     bool add) {
  const int64_t m = self->m - i < self->tile_m ? self->m - i : self->tile_m;
  const int64_t n = self->n - j < self->tile_n ? self->n - j : self->tile_n;
  const size_t lane = shardrt_dtype_size(self->lane);
  const bool wide = lane == 8;
  a += (size_t)(self->transpose_a ? i : i * self->k) * lane;
  b += (size_t)(self->transpose_b ? j * self->k : j) * lane;
  out += (size_t)(i * self->n + j) * lane;
  if (self->lane < SHARDRT_FLOAT16) {
    wrap_multiply(wide, add, (size_t)m, (size_t)n, (size_t)self->k, strided(a, self->m, self->k, self->transpose_a),
                  strided(b, self->k, self->n, self->transpose_b), out, (size_t)self->n);
    return;
  }
  const struct blas_matrix left = {a, (int32_t)(self->transpose_a ? self->m : self->k), self->transpose_a};
  const struct blas_matrix right = {b, (int32_t)(self->transpose_b ? self->k : self->n), self->transpose_b};
  blas_multiply(wide, add, (int32_t)m, (int32_t)n, (int32_t)self->k, left, right, out, (int32_t)self->n);
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
    const int64_t begin = self->terms.begin[block];
    for (int64_t term = begin; term < self->terms.begin[block + 1]; term++)
      multiply(self, side_data(&self->a, term) + (size_t)(a * self->m * self->k) * lane,
               side_data(&self->b, term) + (size_t)(b * self->k * self->n) * lane,
               side_data(&self->out, block) + (size_t)(batch * self->m * self->n) * lane,
               tile / self->tiles_n * self->tile_m, tile % self->tiles_n * self->tile_n, term > begin);
  }
}

static int64_t half_of(int64_t side) {
  return ((side + 1) / 2 + LEAST_SIDE - 1) / LEAST_SIDE * LEAST_SIDE;
}

static double elements_of(const shardrt_array *array) {
  double elements = 1;
  for (int32_t d = 0; d < shardrt_array_ndim(array); d++) elements *= (double)shardrt_array_shape(array)[d];
  return elements;
}

/* Whether a box of the result is a sum of several terms: where the contracted dimension is cut into more parts than the
 * result has. */
static bool adds_terms(const struct product *self) {
  const shardrt_array *a = self->a.array, *b = self->b.array;
  const int32_t na = shardrt_array_ndim(a), nb = shardrt_array_ndim(b);
  const int64_t *x = shardrt_array_shape(a), *y = shardrt_array_shape(b);
  const double k = (double)x[na - (self->transpose_a ? 2 : 1)];
  double product = (double)x[na - (self->transpose_a ? 1 : 2)] * (double)y[nb - (self->transpose_b ? 2 : 1)];
  for (int32_t d = 3; d <= na || d <= nb; d++) {
    const int64_t in_a = d <= na ? x[na - d] : 1, in_b = d <= nb ? y[nb - d] : 1;
    product *= (double)(in_a > in_b ? in_a : in_b);
  }
  return k / (double)self->k > elements_of(self->out.array) / product;
}

/* Elements of a tile, at most; a product with a vector reads as much as it computes, so that `depth` is k there. It
 * follows from what all processes know: replicas in different ones are cut alike. */
static int64_t largest_tile(const struct product *self, int64_t depth) {
  const shardrt_array *out = self->out.array;
  const double block = (double)self->out.elements, own = elements_of(out) / (double)array_processes(out);
  const double share = (own < block ? block : own) * (double)depth / TILES;
  const int64_t most = adds_terms(self) ? TILE_ADDED : TILE;
  return (share < TILE_LEAST ? TILE_LEAST : share > (double)most ? most : (int64_t)share) / depth;
}

/* Into two tiles, where one would leave all threads but one idle. (As small ones as a large product has would cost more
 * of OpenBLAS's speed than they gain.) */
static void cut_in_two(struct product *self) {
  const double own = elements_of(self->out.array) / (double)array_processes(self->out.array);
  const bool is_all = own <= (double)self->out.elements && self->batches == 1;
  if (!is_all || self->m == 1 || self->n == 1 || self->m * self->n <= WORTH_HALVES / self->k) return;
  int64_t *side = self->m > self->n ? &self->tile_m : &self->tile_n;
  const int64_t half = ((*side + 1) / 2 + HALF_SIDE - 1) / HALF_SIDE * HALF_SIDE;
  if (half < *side) *side = half;
}

static void cut(struct product *self) {
  self->tile_m = self->m;
  self->tile_n = self->n;
  const int64_t most = largest_tile(self, self->m == 1 || self->n == 1 ? self->k : 1);
  while (self->tile_m * self->tile_n > most && (self->tile_m > LEAST_SIDE || self->tile_n > LEAST_SIDE)) {
    if (2 * self->tile_m > self->tile_n)
      self->tile_m = half_of(self->tile_m);
    else
      self->tile_n = half_of(self->tile_n);
  }
  if (self->tile_m == self->m && self->tile_n == self->n) cut_in_two(self);
  self->tiles_m = (self->m - 1) / self->tile_m + 1;
  self->tiles_n = (self->n - 1) / self->tile_n + 1;
  const int64_t work = self->m * self->n > WORTH / self->k ? WORTH : self->m * self->n * self->k;
  self->each = self->tiles_m * self->tiles_n > 1 ? 1 : (WORTH - 1) / work + 1;
  self->tasks = ((self->batches - 1) / self->each + 1) * self->tiles_m * self->tiles_n;
}

/* ---- other dtypes ----------------------------------------------------------------------------------------------- */

struct conversion {
  const struct side *side;
  bool back;     /* from the copy, not to it */
  int64_t tasks; /* of a piece */
};

static void convert_task(void *context, int64_t number) {
  const struct conversion *self = context;
  const struct side *side = self->side;
  const int64_t piece = number / self->tasks;
  if (side->first != NULL && side->first[piece] != piece) return;
  const size_t first = (size_t)(number % self->tasks) * CONVERT;
  const size_t n = side->elements - first < CONVERT ? side->elements - first : CONVERT;
  char *own = side_own(side, piece) + first * shardrt_dtype_size(side->dtype);
  char *copy = side_data(side, piece) + first * shardrt_dtype_size(side->lane);
  if (self->back)
    convert_elements(side->lane, side->dtype, copy, own, n);
  else
    convert_elements(side->dtype, side->lane, own, copy, n);
}

static void convert(const struct side *side, bool back) {
  if (side->copy == NULL || side->elements == 0) return;
  struct conversion conversion = {side, back, (int64_t)((side->elements - 1) / CONVERT + 1)};
  work_spread(convert_task, &conversion, side->count * conversion.tasks);
}

/* Room for a copy where the side is not in the lanes in which it is computed. Pieces of an operand may be replicas. */
static int side_begin(struct side *side, int32_t lane, const shardrt_array *array, int64_t count, const int64_t *shards,
                      bool operand) {
  *side = (struct side){.array = array, .count = count, .shards = shards};
  side->dtype = shardrt_array_dtype(array);
  side->lane = lane;
  side->elements = (size_t)work_shard_elements(array);
  if (side->dtype == side->lane) return SHARDRT_OK;
  if (operand) side->first = alloc_array((size_t)count, sizeof *side->first);
  if (operand && side->first == NULL) return ALLOC_FAILED;
  side->copy = alloc_array((size_t)count * side->elements, shardrt_dtype_size(side->lane));
  if (side->copy == NULL) return ALLOC_FAILED;
  for (int64_t piece = 0; piece < count && operand; piece++) {
    int64_t first = 0;
    while (side_own(side, first) != side_own(side, piece)) first++;
    side->first[piece] = first;
  }
  return SHARDRT_OK;
}

static void side_end(struct side *side) {
  alloc_free(side->copy);
  alloc_free(side->first);
}

/* ---- shapes ----------------------------------------------------------------------------------------------------- */

static int check_product_dtypes(const shardrt_array *a, const shardrt_array *b, const shardrt_array *out) {
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

/* ---- on the host ------------------------------------------------------------------------------------------------ */

static int multiply_on_host(struct product *self, const shardrt_array *a, const shardrt_array *b, shardrt_array *out) {
  const struct partial_sums *terms = &self->terms;
  int code = self->lane < SHARDRT_FLOAT16 ? SHARDRT_OK : blas_open();
  if (code == SHARDRT_OK) code = partial_sums_begin(&self->terms, a, b, out);
  if (code == SHARDRT_OK) code = side_begin(&self->a, self->lane, a, terms->count, terms->shard, true);
  if (code == SHARDRT_OK) code = side_begin(&self->b, self->lane, b, terms->count, terms->shard, true);
  if (code == SHARDRT_OK)
    code = side_begin(&self->out, self->lane, out, self->blocks->count, self->blocks->shards, false);
  if (code == SHARDRT_OK) {
    convert(&self->a, false);
    convert(&self->b, false);
    cut(self);
    work_spread(product_task, self, self->blocks->count * self->tasks);
    convert(&self->out, true);
  }
  side_end(&self->out);
  side_end(&self->b);
  side_end(&self->a);
  partial_sums_end(&self->terms);
  return code;
}

/* ---- on devices with memory of their own ------------------------------------------------------------------------ */

static int multiply_on_devices(const struct accelerator *platform, const struct product *self, int32_t precision,
                               const shardrt_array *a, const shardrt_array *b, shardrt_array *out) {
  struct accelerator_product product = {.dtype = shardrt_array_dtype(a),
                                        .out_dtype = shardrt_array_dtype(out),
                                        .transpose_a = self->transpose_a,
                                        .transpose_b = self->transpose_b,
                                        .precision = precision,
                                        .m = self->m,
                                        .n = self->n,
                                        .k = self->k,
                                        .batches = self->batches,
                                        .nbatch = self->nbatch};
  memcpy(product.batch, self->batch, sizeof product.batch);
  memcpy(product.a_stride, self->a_stride, sizeof product.a_stride);
  memcpy(product.b_stride, self->b_stride, sizeof product.b_stride);
  return product_on_devices(platform, &product, self->blocks, a, b, out);
}

static int clear_product(const struct unique_blocks *blocks, shardrt_array *out) {
  const struct accelerator *platform = accelerator_get();
  const size_t bytes = shardrt_array_shard_bytes(out);
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < blocks->count && code == SHARDRT_OK; i++)
    if (platform != NULL)
      code = platform->copies->zero(unique_blocks_device(blocks, out, i), unique_blocks_data(blocks, out, i), bytes);
    else
      memset(unique_blocks_data(blocks, out, i), 0, bytes);
  return code;
}

int shardrt_matmul(const shardrt_array *a, const shardrt_array *b, int32_t transpose_a, int32_t transpose_b,
                   int32_t precision, shardrt_array *out) {
  if (precision < 0 || precision >= SHARDRT_PRECISIONS)
    return error_set(SHARDRT_EINVAL, "a product in precision %d; there are %d", precision, SHARDRT_PRECISIONS);
  int code = check_product_dtypes(a, b, out);
  if (code != SHARDRT_OK) return code;
  struct product self = {.transpose_a = transpose_a != 0, .transpose_b = transpose_b != 0};
  self.lane = reduce_lane(shardrt_array_dtype(a));
  code = find_shapes(&self, a, b, out);
  if (code != SHARDRT_OK) return code;
  struct unique_blocks blocks;
  code = unique_blocks_begin_parts("matmul", 2, (const shardrt_array *const[]){a, b}, out, &blocks);
  if (code != SHARDRT_OK) return code;
  self.blocks = &blocks;
  const struct accelerator *platform = accelerator_get();
  if (blocks.count == 0 || work_shard_elements(out) == 0)
    code = SHARDRT_OK;
  else if (self.k == 0)
    code = clear_product(&blocks, out);
  else
    code = platform != NULL ? multiply_on_devices(platform, &self, precision, a, b, out)
                            : multiply_on_host(&self, a, b, out);
  unique_blocks_end(&blocks);
  return code;
}
