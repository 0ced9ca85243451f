// build: -O3
/* strides.c - compiled with -O3, as are convert.c, resample.c and flip.c. */
#include "memory/strides.h"

#include <string.h>

#include "base/simd.h"

void strides_add(struct strides *self, size_t extent, size_t step) {
  if (extent == 1) return;
  const int32_t top = self->levels - 1;
  if (top >= 0 && step == self->step[top] * self->extent[top]) {
    self->extent[top] *= extent;
    return;
  }
  self->extent[self->levels] = extent;
  self->step[self->levels++] = step;
}

/* The two loops that matter: of the output, n elements that stand one behind the other and come from `step` apart; of
 * the input, `rows` elements that stand one behind the other and go to `pitch` apart. */
struct plane {
  size_t n;
  size_t step;
  size_t rows;
  size_t pitch;
};

enum { TILE = 32, PIXEL = 3 }; /* in tiles, what one loop has brought to the cache is there for the other */

/* The plane is taken by value: what is stored through a simd_1 * might else be a part of it, for all that gcc knows. */
#define PLANE_LOOPS(type)                                                                                              \
  SIMD_INLINE void tiles_##type(struct plane p, const void *from, void *to) {                                          \
    const type *restrict source = from;                                                                                \
    type *restrict target = to;                                                                                        \
    for (size_t i0 = 0; i0 < p.rows; i0 += TILE)                                                                       \
      for (size_t k0 = 0; k0 < p.n; k0 += TILE) {                                                                      \
        const size_t i1 = p.rows - i0 < TILE ? p.rows : i0 + TILE, k1 = p.n - k0 < TILE ? p.n : k0 + TILE;             \
        for (size_t i = i0; i < i1; i++)                                                                               \
          for (size_t k = k0; k < k1; k++) target[i * p.pitch + k] = source[i + k * p.step];                           \
      }                                                                                                                \
  }                                                                                                                    \
  /* Three channels of pixels to a row for each: what makes HWC into CHW. */                                           \
  SIMD_INLINE void split_##type(struct plane p, const void *from, void *to) {                                          \
    const type *restrict source = from;                                                                                \
    type *restrict a = to, *restrict b = a + p.pitch, *restrict c = b + p.pitch;                                       \
    for (size_t k = 0; k < p.n; k++) {                                                                                 \
      a[k] = source[PIXEL * k];                                                                                        \
      b[k] = source[PIXEL * k + 1];                                                                                    \
      c[k] = source[PIXEL * k + 2];                                                                                    \
    }                                                                                                                  \
  }                                                                                                                    \
  SIMD_INLINE void body_##type(struct plane p, const void *from, void *to) {                                           \
    if (p.rows == PIXEL && p.step == PIXEL)                                                                            \
      split_##type(p, from, to);                                                                                       \
    else                                                                                                               \
      tiles_##type(p, from, to);                                                                                       \
  }                                                                                                                    \
  static void plain_##type(const struct plane *p, const void *from, void *to) {                                        \
    body_##type(*p, from, to);                                                                                         \
  }                                                                                                                    \
  SIMD_AVX2 static void avx2_##type(const struct plane *p, const void *from, void *to) {                               \
    body_##type(*p, from, to);                                                                                         \
  }
PLANE_LOOPS(simd_1)
PLANE_LOOPS(simd_2)
PLANE_LOOPS(simd_4)
PLANE_LOOPS(simd_8)

typedef void plane_loop(const struct plane *p, const void *from, void *to);

static plane_loop *loop_for(size_t element_bytes) {
  const bool avx2 = simd_has_avx2();
  switch (element_bytes) {
  case 1:
    return avx2 ? avx2_simd_1 : plain_simd_1;
  case 2:
    return avx2 ? avx2_simd_2 : plain_simd_2;
  case 4:
    return avx2 ? avx2_simd_4 : plain_simd_4;
  default:
    return avx2 ? avx2_simd_8 : plain_simd_8;
  }
}

void strides_copy(const struct strides *self, size_t element_bytes, const void *from, void *to) {
  /* Where the input is packed, some loop has a step of 1, unless there is a single element; where that is not the
   * innermost one, it makes a plane with it. */
  struct plane p = {.n = 1, .step = 1, .rows = 1, .pitch = 1};
  int32_t own = 0;
  size_t pitches[SHARDRT_MAX_NDIM], at[SHARDRT_MAX_NDIM] = {0}, pitch = 1;
  for (int32_t level = 0; level < self->levels; level++) {
    pitches[level] = pitch;
    pitch *= self->extent[level];
    if (level > 0 && self->step[level] == 1) own = level;
  }
  if (self->levels > 0) {
    p.n = self->extent[0];
    p.step = self->step[0];
  }
  if (own > 0) {
    p.rows = self->extent[own];
    p.pitch = pitches[own];
  }
  plane_loop *const loop = loop_for(element_bytes);
  const char *source = from;
  char *target = to;
  for (;;) {
    if (p.step == 1)
      memcpy(target, source, p.n * element_bytes);
    else
      loop(&p, source, target);
    int32_t level = 1;
    for (; level < self->levels; level++) {
      if (level == own) continue;
      source += self->step[level] * element_bytes;
      target += pitches[level] * element_bytes;
      if (++at[level] < self->extent[level]) break;
      source -= at[level] * self->step[level] * element_bytes;
      target -= at[level] * pitches[level] * element_bytes;
      at[level] = 0;
    }
    if (level >= self->levels) return;
  }
}
