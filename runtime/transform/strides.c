/* strides.c - compiled with -O3, as are lanes.c and resample.c. Functions that take the bytes of an element are inlined
 * into a caller that knows them, so that each copy is a load and a store. */
#include "transform/strides.h"

#include <string.h>

#include "transform/simd.h"

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

SIMD_INLINE void tiles(const struct plane *p, const char *restrict from, char *restrict to, size_t size) {
  for (size_t i0 = 0; i0 < p->rows; i0 += TILE)
    for (size_t k0 = 0; k0 < p->n; k0 += TILE) {
      const size_t i1 = p->rows - i0 < TILE ? p->rows : i0 + TILE, k1 = p->n - k0 < TILE ? p->n : k0 + TILE;
      for (size_t i = i0; i < i1; i++)
        for (size_t k = k0; k < k1; k++) memcpy(to + (i * p->pitch + k) * size, from + (i + k * p->step) * size, size);
    }
}

/* Three channels of pixels to a row for each: what makes HWC into CHW. */
SIMD_INLINE void split(const struct plane *p, const char *restrict from, char *restrict to, size_t size) {
  char *restrict a = to, *restrict b = a + p->pitch * size, *restrict c = b + p->pitch * size;
  for (size_t k = 0; k < p->n; k++) {
    memcpy(a + k * size, from + PIXEL * k * size, size);
    memcpy(b + k * size, from + (PIXEL * k + 1) * size, size);
    memcpy(c + k * size, from + (PIXEL * k + 2) * size, size);
  }
}

SIMD_INLINE void any(const struct plane *p, const char *from, char *to, size_t size) {
  if (p->rows == PIXEL && p->step == PIXEL)
    split(p, from, to, size);
  else
    tiles(p, from, to, size);
}

#define EVERY_SIZE                                                                                                     \
  switch (size) {                                                                                                      \
  case 1:                                                                                                              \
    any(p, from, to, 1);                                                                                               \
    return;                                                                                                            \
  case 2:                                                                                                              \
    any(p, from, to, 2);                                                                                               \
    return;                                                                                                            \
  case 4:                                                                                                              \
    any(p, from, to, 4);                                                                                               \
    return;                                                                                                            \
  default:                                                                                                             \
    any(p, from, to, 8);                                                                                               \
    return;                                                                                                            \
  }

static void plane_plain(const struct plane *p, const char *from, char *to, size_t size){EVERY_SIZE}

SIMD_AVX2 static void plane_avx2(const struct plane *p, const char *from, char *to, size_t size) {
  EVERY_SIZE
}

static void copy_plane(const struct plane *p, const char *from, char *to, size_t size) {
  if (simd_has_avx2())
    plane_avx2(p, from, to, size);
  else
    plane_plain(p, from, to, size);
}

void strides_copy(const struct strides *self, size_t element_bytes, const void *from, void *to) {
  /* The input is packed, so that unless it is a single element some loop has a step of 1; where that is not the
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
  const char *source = from;
  char *target = to;
  for (;;) {
    if (p.step == 1)
      memcpy(target, source, p.n * element_bytes);
    else
      copy_plane(&p, source, target, element_bytes);
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
