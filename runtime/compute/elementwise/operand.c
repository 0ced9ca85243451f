// build: -O3 -fno-math-errno -fno-trapping-math
#include "compute/elementwise/operand.h"

#include "base/error.h"
#include "base/simd.h"
#include "compute/work.h"

/* Puts a dimension of the result outside of those that the operand has. */
static void add_outside(struct operand *operand, int64_t size, int64_t stride) {
  const int32_t outer = operand->ndim - 1; /* dimensions are kept innermost first until all are there */
  if (outer >= 0 && stride == operand->strides[outer] * operand->sizes[outer]) {
    operand->sizes[outer] *= size;
    return;
  }
  operand->sizes[operand->ndim] = size;
  operand->strides[operand->ndim] = stride;
  operand->ndim++;
}

static void turn_around(struct operand *operand) {
  for (int32_t d = 0, e = operand->ndim - 1; d < e; d++, e--) {
    const int64_t size = operand->sizes[d], stride = operand->strides[d];
    operand->sizes[d] = operand->sizes[e];
    operand->strides[d] = operand->strides[e];
    operand->sizes[e] = size;
    operand->strides[e] = stride;
  }
}

int operand_set(struct operand *operand, const char *what, int32_t number, const shardrt_array *array, int32_t ndim,
                const int64_t *shape) {
  *operand = (struct operand){.dtype = shardrt_array_dtype(array)};
  operand->size = shardrt_dtype_size(operand->dtype);
  int64_t own[SHARDRT_MAX_NDIM] = {0};
  work_shard_shape(array, own);
  const int32_t own_ndim = shardrt_array_ndim(array);
  int64_t stride = 1;
  for (int32_t i = 1; i <= own_ndim || i <= ndim; i++) { /* the i-th dimension from the right */
    const int64_t size = i <= own_ndim ? own[own_ndim - i] : 1, wanted = i <= ndim ? shape[ndim - i] : 1;
    if (size != wanted && size != 1)
      return error_set(SHARDRT_EINVAL,
                       "%s: operand %d has %lld elements in dimension %d of a shard, the result %lld: it must be as "
                       "many, or 1",
                       what, number, (long long)size, own_ndim - i, (long long)wanted);
    if (wanted != 1) add_outside(operand, wanted, size == 1 ? 0 : stride);
    stride *= size;
  }
  if (operand->ndim == 1 && operand->strides[0] == 0) operand->ndim = 0;
  turn_around(operand);
  return SHARDRT_OK;
}

bool operand_is_one(const struct operand *operand) {
  return operand->ndim == 0;
}

bool operand_is_plain(const struct operand *operand) {
  return operand->ndim == 1;
}

bool operand_repeats(const struct operand *operand) {
  return operand->ndim > 0 && operand->strides[operand->ndim - 1] == 0;
}

/* The indices of a position in all dimensions, and how many elements behind the first the operand has it. */
static int64_t find_position(const struct operand *operand, int64_t position, int64_t *at) {
  int64_t offset = 0, left = position;
  for (int32_t d = operand->ndim - 1; d >= 0; d--) {
    at[d] = left % operand->sizes[d];
    left /= operand->sizes[d];
    offset += at[d] * operand->strides[d];
  }
  return offset;
}

const void *operand_one(const struct operand *operand, const void *shard, int64_t first, int64_t n) {
  const int32_t inner = operand->ndim - 1;
  if (inner < 0) return shard;
  if (!operand_repeats(operand) || n > operand->sizes[inner]) return NULL;
  int64_t at[SHARDRT_MAX_NDIM];
  const int64_t offset = find_position(operand, first, at);
  return n <= operand->sizes[inner] - at[inner] ? (const char *)shard + (size_t)offset * operand->size : NULL;
}

/* n elements to `to`, all of them *from, or those from there on. Runs are often short: no calls. */
#define COPY_RUN(type)                                                                                                 \
  do {                                                                                                                 \
    const type *source = from, one = *source;                                                                          \
    type *target = to;                                                                                                 \
    if (same)                                                                                                          \
      for (int64_t i = 0; i < n; i++) target[i] = one;                                                                 \
    else                                                                                                               \
      for (int64_t i = 0; i < n; i++) target[i] = source[i];                                                           \
  } while (0)

SIMD_INLINE void copy_operand_run(size_t size, const void *restrict from, void *restrict to, int64_t n, bool same) {
  switch (size) {
  case 1:
    COPY_RUN(simd_1);
    break;
  case 2:
    COPY_RUN(simd_2);
    break;
  case 4:
    COPY_RUN(simd_4);
    break;
  default:
    COPY_RUN(simd_8);
    break;
  }
}

SIMD_INLINE const void *gather_body(const struct operand *operand, const void *shard, int64_t first, int64_t n,
                                    void *room) {
  const size_t size = operand->size;
  const int32_t inner = operand->ndim - 1;
  int64_t at[SHARDRT_MAX_NDIM] = {0}, offset = find_position(operand, first, at);
  if (inner < 0 || (operand->strides[inner] != 0 && n <= operand->sizes[inner] - at[inner]))
    return (const char *)shard + (size_t)offset * size;
  for (int64_t done = 0; done < n;) {
    const int64_t rest = operand->sizes[inner] - at[inner], run = n - done < rest ? n - done : rest;
    copy_operand_run(size, (const char *)shard + (size_t)offset * size, (char *)room + (size_t)done * size, run,
                     operand->strides[inner] == 0);
    done += run;
    /* On to the next run: `at` counts up, with carries. */
    offset -= at[inner] * operand->strides[inner];
    at[inner] = 0;
    for (int32_t d = inner - 1; d >= 0; d--) {
      offset += operand->strides[d];
      if (++at[d] < operand->sizes[d]) break;
      offset -= at[d] * operand->strides[d];
      at[d] = 0;
    }
  }
  return room;
}

typedef const void *gather(const struct operand *operand, const void *shard, int64_t first, int64_t n, void *room);

static const void *gather_plain(const struct operand *operand, const void *shard, int64_t first, int64_t n,
                                void *room) {
  return gather_body(operand, shard, first, n, room);
}

SIMD_AVX2 static const void *gather_avx2(const struct operand *operand, const void *shard, int64_t first, int64_t n,
                                         void *room) {
  return gather_body(operand, shard, first, n, room);
}

SIMD_AVX512 static const void *gather_avx512(const struct operand *operand, const void *shard, int64_t first, int64_t n,
                                             void *room) {
  return gather_body(operand, shard, first, n, room);
}

const void *operand_gather(const struct operand *operand, const void *shard, int64_t first, int64_t n, void *room) {
  static gather *const gathers[SIMD_LEVELS] = {gather_plain, gather_avx2, gather_avx512};
  return gathers[simd_level()](operand, shard, first, n, room);
}
