/* tile.c - compiled with -O3, and every loop twice, as transform/lanes.c is. */
#include "compute/tile.h"

#include "transform/simd.h"

/* In tiles: what one loop has brought to the cache is there for the other. */
#define TILES(type)                                                                                                    \
  SIMD_INLINE void body_##type(const void *from, size_t from_pitch, void *to, size_t to_pitch, size_t rows,            \
                               size_t columns) {                                                                       \
    const type *restrict source = from;                                                                                \
    type *restrict target = to;                                                                                        \
    for (size_t i0 = 0; i0 < rows; i0 += TILE_SIDE)                                                                    \
      for (size_t k0 = 0; k0 < columns; k0 += TILE_SIDE) {                                                             \
        const size_t i1 = rows - i0 < TILE_SIDE ? rows : i0 + TILE_SIDE;                                               \
        const size_t k1 = columns - k0 < TILE_SIDE ? columns : k0 + TILE_SIDE;                                         \
        for (size_t i = i0; i < i1; i++)                                                                               \
          for (size_t k = k0; k < k1; k++) target[i * to_pitch + k] = source[k * from_pitch + i];                      \
      }                                                                                                                \
  }                                                                                                                    \
  static void plain_##type(const void *from, size_t from_pitch, void *to, size_t to_pitch, size_t rows,                \
                           size_t columns) {                                                                           \
    body_##type(from, from_pitch, to, to_pitch, rows, columns);                                                        \
  }                                                                                                                    \
  SIMD_AVX2 static void avx2_##type(const void *from, size_t from_pitch, void *to, size_t to_pitch, size_t rows,       \
                                    size_t columns) {                                                                  \
    body_##type(from, from_pitch, to, to_pitch, rows, columns);                                                        \
  }
TILES(simd_1)
TILES(simd_2)
TILES(simd_4)
TILES(simd_8)

typedef void tile_loop(const void *from, size_t from_pitch, void *to, size_t to_pitch, size_t rows, size_t columns);

void tile_transpose(size_t element_bytes, const void *from, size_t from_pitch, void *to, size_t to_pitch, size_t rows,
                    size_t columns) {
  static tile_loop *const loops[4][2] = {{plain_simd_1, avx2_simd_1},
                                         {plain_simd_2, avx2_simd_2},
                                         {plain_simd_4, avx2_simd_4},
                                         {plain_simd_8, avx2_simd_8}};
  const int which = element_bytes == 1 ? 0 : element_bytes == 2 ? 1 : element_bytes == 4 ? 2 : 3;
  loops[which][simd_has_avx2()](from, from_pitch, to, to_pitch, rows, columns);
}
