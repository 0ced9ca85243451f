// build: -O3
/* reduce_loops.c - compiled with -O3, and every loop twice, as memory/convert.c is. No sum is made in another order
 * than it is written in, so both give the same bits. */
#include "compute/reduce/reduce_loops.h"

#include <assert.h>
#include <string.h>

#include "base/simd.h"

int32_t reduce_lane(int32_t dtype) {
  switch (dtype) {
  case SHARDRT_INT64:
  case SHARDRT_UINT64:
  case SHARDRT_FLOAT64:
    return dtype;
  case SHARDRT_UINT8:
  case SHARDRT_UINT16:
  case SHARDRT_UINT32:
    return SHARDRT_UINT32;
  case SHARDRT_FLOAT16:
  case SHARDRT_BFLOAT16:
  case SHARDRT_FLOAT32:
    return SHARDRT_FLOAT32;
  default:
    return SHARDRT_INT32;
  }
}

/* A row of so few elements is reduced one by one; a long one is read from the front to the end, as the processor looks
 * ahead best, and becomes so many elements on the way. */
enum { FEW = 16, STRIPE = 64 };

/* The loops of one operation on one kind of lanes, in C `type`; `expression` is of a and b. `half` holds what a group
 * has been halved to: a row in the middle, of an odd number, waits for the next turn. */
#define REDUCE_LOOPS(OP, LANE, type, expression)                                                                       \
  SIMD_INLINE void into_body_##OP##_##LANE(void *to, const void *x, size_t n) {                                        \
    type *restrict target = to;                                                                                        \
    const type *restrict source = x;                                                                                   \
    for (size_t k = 0; k < n; k++) {                                                                                   \
      const type a = target[k], b = source[k];                                                                         \
      target[k] = (type)(expression);                                                                                  \
    }                                                                                                                  \
  }                                                                                                                    \
  SIMD_INLINE type few_##OP##_##LANE(const type *x, size_t n) {                                                        \
    type a = x[0];                                                                                                     \
    for (size_t k = 1; k < n; k++) {                                                                                   \
      const type b = x[k];                                                                                             \
      a = (type)(expression);                                                                                          \
    }                                                                                                                  \
    return a;                                                                                                          \
  }                                                                                                                    \
  SIMD_INLINE void halve_##OP##_##LANE(type *to, const type *low, const type *high, size_t n) {                        \
    _Pragma("GCC ivdep") for (size_t k = 0; k < n; k++) { /* `to` may be `low` */                                      \
      const type a = low[k], b = high[k];                                                                              \
      to[k] = (type)(expression);                                                                                      \
    }                                                                                                                  \
  }                                                                                                                    \
  SIMD_INLINE void stripes_##OP##_##LANE(type *to, const type *x, size_t stripes) {                                    \
    type sums[STRIPE];                                                                                                 \
    memcpy(sums, x, sizeof sums);                                                                                      \
    for (size_t i = 1; i < stripes; i++)                                                                               \
      for (size_t k = 0; k < STRIPE; k++) {                                                                            \
        const type a = sums[k], b = x[i * STRIPE + k];                                                                 \
        sums[k] = (type)(expression);                                                                                  \
      }                                                                                                                \
    memcpy(to, sums, sizeof sums);                                                                                     \
  }                                                                                                                    \
  SIMD_INLINE void groups_body_##OP##_##LANE(const void *x, void *to, size_t count, size_t rows, size_t width) {       \
    const type *source = x;                                                                                            \
    type *target = to, half[REDUCE_BLOCK];                                                                             \
    for (size_t g = 0; g < count; g++, source += rows * width, target += width) {                                      \
      const type *from = source;                                                                                       \
      size_t left = rows;                                                                                              \
      if (width == 1 && rows >= 8 * STRIPE) {                                                                          \
        const size_t stripes = rows / STRIPE;                                                                          \
        left = rows - (stripes - 1) * STRIPE;                                                                          \
        stripes_##OP##_##LANE(half, from, stripes);                                                                    \
        memcpy(half + STRIPE, from + stripes * STRIPE, (left - STRIPE) * sizeof(type));                                \
        from = half;                                                                                                   \
      }                                                                                                                \
      while (left > (width == 1 ? FEW : 1)) {                                                                          \
        const size_t pairs = left / 2, low = left - pairs;                                                             \
        halve_##OP##_##LANE(half, from, from + low * width, pairs * width);                                            \
        if (pairs < low && from != half) memcpy(half + pairs * width, from + pairs * width, width * sizeof(type));     \
        from = half;                                                                                                   \
        left = low;                                                                                                    \
      }                                                                                                                \
      if (width == 1)                                                                                                  \
        target[0] = few_##OP##_##LANE(from, left);                                                                     \
      else                                                                                                             \
        memcpy(target, from, width * sizeof(type));                                                                    \
    }                                                                                                                  \
  }                                                                                                                    \
  static void into_plain_##OP##_##LANE(void *to, const void *x, size_t n) {                                            \
    into_body_##OP##_##LANE(to, x, n);                                                                                 \
  }                                                                                                                    \
  SIMD_AVX2 static void into_avx2_##OP##_##LANE(void *to, const void *x, size_t n) {                                   \
    into_body_##OP##_##LANE(to, x, n);                                                                                 \
  }                                                                                                                    \
  static void groups_plain_##OP##_##LANE(const void *x, void *to, size_t count, size_t rows, size_t width) {           \
    groups_body_##OP##_##LANE(x, to, count, rows, width);                                                              \
  }                                                                                                                    \
  SIMD_AVX2 static void groups_avx2_##OP##_##LANE(const void *x, void *to, size_t count, size_t rows, size_t width) {  \
    groups_body_##OP##_##LANE(x, to, count, rows, width);                                                              \
  }

/* Wrapping is what unsigned types do, and the bits are the same for signed ones. */
#define REDUCE_ALL(X)                                                                                                  \
  X(SUM, INT32, uint32_t, a + b)                                                                                       \
  X(SUM, INT64, uint64_t, a + b)                                                                                       \
  X(SUM, FLOAT32, float, a + b)                                                                                        \
  X(SUM, FLOAT64, double, a + b)                                                                                       \
  X(PROD, INT32, uint32_t, a *b)                                                                                       \
  X(PROD, INT64, uint64_t, a *b)                                                                                       \
  X(PROD, FLOAT32, float, a *b)                                                                                        \
  X(PROD, FLOAT64, double, a *b)                                                                                       \
  X(MAX, INT32, int32_t, b > a ? b : a)                                                                                \
  X(MAX, UINT32, uint32_t, b > a ? b : a)                                                                              \
  X(MAX, INT64, int64_t, b > a ? b : a)                                                                                \
  X(MAX, UINT64, uint64_t, b > a ? b : a)                                                                              \
  X(MAX, INT16, int16_t, b > a ? b : a)                                                                                \
  X(MIN, INT32, int32_t, b < a ? b : a)                                                                                \
  X(MIN, UINT32, uint32_t, b < a ? b : a)                                                                              \
  X(MIN, INT64, int64_t, b < a ? b : a)                                                                                \
  X(MIN, UINT64, uint64_t, b < a ? b : a)                                                                              \
  X(MIN, INT16, int16_t, b < a ? b : a)
REDUCE_ALL(REDUCE_LOOPS) /* NOLINT(clang-analyzer-core.uninitialized.Assign): a group is not empty */

static const struct loops {
  void (*into[2])(void *to, const void *x, size_t n);
  void (*groups[2])(const void *x, void *to, size_t count, size_t rows, size_t width);
} loops[SHARDRT_MIN + 1][SHARDRT_DTYPE_COUNT] = {
#define REDUCE_ENTRY(OP, LANE, type, expression)                                                                       \
  [SHARDRT_##OP][SHARDRT_##LANE] = {{into_plain_##OP##_##LANE, into_avx2_##OP##_##LANE},                               \
                                    {groups_plain_##OP##_##LANE, groups_avx2_##OP##_##LANE}},
    REDUCE_ALL(REDUCE_ENTRY)};

static const struct loops *loops_of(int32_t op, int32_t lane) {
  const bool compares = op == SHARDRT_MAX || op == SHARDRT_MIN;
  const int32_t same = lane == SHARDRT_UINT32 ? SHARDRT_INT32 : lane == SHARDRT_UINT64 ? SHARDRT_INT64 : lane;
  return &loops[op][compares ? lane : same];
}

void reduce_into(int32_t op, int32_t lane, void *to, const void *x, size_t n) {
  loops_of(op, lane)->into[simd_has_avx2()](to, x, n);
}

void reduce_groups(int32_t op, int32_t lane, const void *x, void *to, size_t count, size_t rows, size_t width) {
  assert(rows >= 1); /* a group is not empty */
  loops_of(op, lane)->groups[simd_has_avx2()](x, to, count, rows, width);
}

/* ---- floats in order -------------------------------------------------------------------------------------------- */

int32_t reduce_ordered_lane(int32_t dtype) {
  switch (dtype) {
  case SHARDRT_INT16:
  case SHARDRT_FLOAT16:
  case SHARDRT_BFLOAT16:
    return SHARDRT_INT16;
  case SHARDRT_FLOAT32:
    return SHARDRT_INT32;
  case SHARDRT_FLOAT64:
    return SHARDRT_INT64;
  default:
    return reduce_lane(dtype);
  }
}

/* The bits of a float without its sign ascend with it. Of negative ones they are turned round; then NaNs lie at both
 * ends, and `nans`, which is how many each sign has, moves the ones at the wrong end past it to the other. */
#define ORDER_LOOPS(width)                                                                                             \
  SIMD_INLINE void order_body_##width(const void *x, void *to, size_t n, uint##width##_t nans) {                       \
    const int##width##_t *restrict from = x;                                                                           \
    int##width##_t *restrict keys = to;                                                                                \
    for (size_t k = 0; k < n; k++) {                                                                                   \
      const uint##width##_t turned = (uint##width##_t)(from[k] ^ ((from[k] >> (width - 1)) & INT##width##_MAX));       \
      keys[k] = (int##width##_t)(uint##width##_t)(turned - nans);                                                      \
    }                                                                                                                  \
  }                                                                                                                    \
  static void order_plain_##width(const void *x, void *to, size_t n, uint64_t nans) {                                  \
    order_body_##width(x, to, n, (uint##width##_t)nans);                                                               \
  }                                                                                                                    \
  SIMD_AVX2 static void order_avx2_##width(const void *x, void *to, size_t n, uint64_t nans) {                         \
    order_body_##width(x, to, n, (uint##width##_t)nans);                                                               \
  }                                                                                                                    \
  static void values_##width(const void *x, void *to, size_t n, uint64_t nans) {                                       \
    const int##width##_t *keys = x;                                                                                    \
    int##width##_t *values = to;                                                                                       \
    for (size_t k = 0; k < n; k++) {                                                                                   \
      const int##width##_t turned = (int##width##_t)((uint##width##_t)keys[k] + (uint##width##_t)nans);                \
      values[k] = (int##width##_t)(turned ^ ((turned >> (width - 1)) & INT##width##_MAX));                             \
    }                                                                                                                  \
  }
ORDER_LOOPS(16)
ORDER_LOOPS(32)
ORDER_LOOPS(64)

static const struct {
  void (*order[2])(const void *x, void *to, size_t n, uint64_t nans);
  void (*values)(const void *x, void *to, size_t n, uint64_t nans);
  uint64_t nans;
} orders[SHARDRT_DTYPE_COUNT] = {
    [SHARDRT_FLOAT16] = {{order_plain_16, order_avx2_16}, values_16, 0x3FF},
    [SHARDRT_BFLOAT16] = {{order_plain_16, order_avx2_16}, values_16, 0x7F},
    [SHARDRT_FLOAT32] = {{order_plain_32, order_avx2_32}, values_32, 0x7FFFFF},
    [SHARDRT_FLOAT64] = {{order_plain_64, order_avx2_64}, values_64, 0xFFFFFFFFFFFFF},
};

bool reduce_is_ordered(int32_t op, int32_t dtype) {
  return (op == SHARDRT_MAX || op == SHARDRT_MIN) && orders[dtype].nans != 0;
}

static uint64_t moved_nans(int32_t op, int32_t dtype) {
  return op == SHARDRT_MAX ? orders[dtype].nans : -orders[dtype].nans;
}

void reduce_order(int32_t op, int32_t dtype, const void *x, void *to, size_t n) {
  orders[dtype].order[simd_has_avx2()](x, to, n, moved_nans(op, dtype));
}

void reduce_values(int32_t op, int32_t dtype, const void *x, void *to, size_t n) {
  orders[dtype].values(x, to, n, moved_nans(op, dtype));
}

/* ---- where it is ------------------------------------------------------------------------------------------------ */

#define BETTER_LOOPS(LANE, type)                                                                                       \
  SIMD_INLINE void better_body_##LANE(bool most, void *best, int32_t *where, const void *x, int32_t at, size_t n) {    \
    type *restrict a = best;                                                                                           \
    int32_t *restrict index = where;                                                                                   \
    const type *restrict b = x;                                                                                        \
    for (size_t k = 0; k < n; k++) {                                                                                   \
      const bool nan = (b[k] != b[k]) & (a[k] == a[k]), more = most ? b[k] > a[k] : b[k] < a[k];                       \
      index[k] = (more | nan) ? at : index[k];                                                                         \
      a[k] = (more | nan) ? b[k] : a[k];                                                                               \
    }                                                                                                                  \
  }                                                                                                                    \
  static void better_plain_##LANE(bool most, void *best, int32_t *where, const void *x, int32_t at, size_t n) {        \
    if (most)                                                                                                          \
      better_body_##LANE(true, best, where, x, at, n);                                                                 \
    else                                                                                                               \
      better_body_##LANE(false, best, where, x, at, n);                                                                \
  }                                                                                                                    \
  SIMD_AVX2 static void better_avx2_##LANE(bool most, void *best, int32_t *where, const void *x, int32_t at,           \
                                           size_t n) {                                                                 \
    if (most)                                                                                                          \
      better_body_##LANE(true, best, where, x, at, n);                                                                 \
    else                                                                                                               \
      better_body_##LANE(false, best, where, x, at, n);                                                                \
  }                                                                                                                    \
  static size_t find_##LANE(const void *x, size_t n, const void *value) {                                              \
    const type *from = x;                                                                                              \
    type wanted;                                                                                                       \
    memcpy(&wanted, value, sizeof wanted);                                                                             \
    size_t k = 0;                                                                                                      \
    if (wanted != wanted)                                                                                              \
      while (k < n && from[k] == from[k]) k++;                                                                         \
    else                                                                                                               \
      while (k < n && from[k] != wanted) k++;                                                                          \
    return k;                                                                                                          \
  }
#define LANES(X)                                                                                                       \
  X(INT32, int32_t)                                                                                                    \
  X(UINT32, uint32_t)                                                                                                  \
  X(INT64, int64_t)                                                                                                    \
  X(UINT64, uint64_t)                                                                                                  \
  X(FLOAT32, float)                                                                                                    \
  X(FLOAT64, double)
LANES(BETTER_LOOPS)

static const struct {
  void (*better[2])(bool most, void *best, int32_t *where, const void *x, int32_t at, size_t n);
  size_t (*find)(const void *x, size_t n, const void *value);
} where_loops[SHARDRT_DTYPE_COUNT] = {
#define WHERE_ENTRY(LANE, type) [SHARDRT_##LANE] = {{better_plain_##LANE, better_avx2_##LANE}, find_##LANE},
    LANES(WHERE_ENTRY)};

void reduce_better(int32_t op, int32_t lane, void *best, int32_t *where, const void *x, int32_t at, size_t n) {
  where_loops[lane].better[simd_has_avx2()](op == SHARDRT_MAX, best, where, x, at, n);
}

size_t reduce_find(int32_t lane, const void *x, size_t n, const void *value) {
  return where_loops[lane].find(x, n, value);
}
