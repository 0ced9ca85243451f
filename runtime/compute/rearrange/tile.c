// build: -O3
/* tile.c - compiled with -O3. */
#include "compute/rearrange/tile.h"

#include <stdint.h>
#include <string.h>

#include "base/simd.h"

/* Vectors of 16 bytes, which every x86-64 and every AArch64 has. */
typedef uint8_t vector_1 __attribute__((vector_size(16)));
typedef uint16_t vector_2 __attribute__((vector_size(16)));
typedef uint32_t vector_4 __attribute__((vector_size(16)));
typedef uint64_t vector_8 __attribute__((vector_size(16)));

/* The lower, and the upper, halves of two vectors, an element of the one and an element of the other by turns. */
#define LOW_1(a, b)  SIMD_SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH_1(a, b) SIMD_SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define LOW_2(a, b)  SIMD_SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_2(a, b) SIMD_SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW_4(a, b)  SIMD_SHUFFLE(a, b, 0, 4, 1, 5)
#define HIGH_4(a, b) SIMD_SHUFFLE(a, b, 2, 6, 3, 7)
#define LOW_8(a, b)  SIMD_SHUFFLE(a, b, 0, 2)
#define HIGH_8(a, b) SIMD_SHUFFLE(a, b, 1, 3)

/* For elements of `size` bytes. A square of as many rows as a vector has elements: when the upper half of the rows is
 * shuffled into the lower half as cards are, as often as the number of rows can be halved, rows have become columns.
 * Squares are taken in patches as wide as a cache line, so that each line comes once. */
#define TILES(size)                                                                                                    \
  enum { SIDE_##size = 16 / (size), PATCH_##size = 64 / (size) };                                                      \
  static inline void square_##size(const simd_##size *from, size_t from_pitch, simd_##size *to, size_t to_pitch) {     \
    vector_##size rows[SIDE_##size], other[SIDE_##size];                                                               \
    for (int k = 0; k < SIDE_##size; k++) memcpy(&rows[k], from + (size_t)k * from_pitch, 16);                         \
    for (int turn = SIDE_##size; turn > 1; turn /= 2) {                                                                \
      for (int k = 0; k < SIDE_##size / 2; k++) {                                                                      \
        other[2 * k] = LOW_##size(rows[k], rows[k + SIDE_##size / 2]);                                                 \
        other[2 * k + 1] = HIGH_##size(rows[k], rows[k + SIDE_##size / 2]);                                            \
      }                                                                                                                \
      memcpy(rows, other, sizeof rows);                                                                                \
    }                                                                                                                  \
    for (int i = 0; i < SIDE_##size; i++) memcpy(to + (size_t)i * to_pitch, &rows[i], 16);                             \
  }                                                                                                                    \
  static inline void plain_##size(const simd_##size *from, size_t from_pitch, simd_##size *to, size_t to_pitch,        \
                                  size_t rows, size_t columns) {                                                       \
    for (size_t i = 0; i < rows; i++)                                                                                  \
      for (size_t k = 0; k < columns; k++) to[i * to_pitch + k] = from[k * from_pitch + i];                            \
  }                                                                                                                    \
  static inline void patch_##size(const simd_##size *from, size_t from_pitch, simd_##size *to, size_t to_pitch,        \
                                  size_t rows, size_t columns) {                                                       \
    const size_t whole_rows = rows - rows % SIDE_##size, whole_columns = columns - columns % SIDE_##size;              \
    for (size_t k = 0; k < whole_columns; k += SIDE_##size)                                                            \
      for (size_t i = 0; i < whole_rows; i += SIDE_##size)                                                             \
        square_##size(from + k * from_pitch + i, from_pitch, to + i * to_pitch + k, to_pitch);                         \
    plain_##size(from + whole_rows, from_pitch, to + whole_rows * to_pitch, to_pitch, rows - whole_rows,               \
                 whole_columns);                                                                                       \
    plain_##size(from + whole_columns * from_pitch, from_pitch, to + whole_columns, to_pitch, rows,                    \
                 columns - whole_columns);                                                                             \
  }                                                                                                                    \
  static void tile_##size(const void *from, size_t from_pitch, void *to, size_t to_pitch, size_t rows,                 \
                          size_t columns) {                                                                            \
    const simd_##size *source = from;                                                                                  \
    simd_##size *target = to;                                                                                          \
    for (size_t i = 0; i < rows; i += PATCH_##size)                                                                    \
      for (size_t k = 0; k < columns; k += PATCH_##size)                                                               \
        patch_##size(source + k * from_pitch + i, from_pitch, target + i * to_pitch + k, to_pitch,                     \
                     rows - i < PATCH_##size ? rows - i : PATCH_##size,                                                \
                     columns - k < PATCH_##size ? columns - k : PATCH_##size);                                         \
  }
TILES(1)
TILES(2)
TILES(4)
TILES(8)

void tile_transpose(size_t element_bytes, const void *from, size_t from_pitch, void *to, size_t to_pitch, size_t rows,
                    size_t columns) {
  switch (element_bytes) {
  case 1:
    tile_1(from, from_pitch, to, to_pitch, rows, columns);
    break;
  case 2:
    tile_2(from, from_pitch, to, to_pitch, rows, columns);
    break;
  case 4:
    tile_4(from, from_pitch, to, to_pitch, rows, columns);
    break;
  default:
    tile_8(from, from_pitch, to, to_pitch, rows, columns);
  }
}
