// build: -O3
/* wrap.c - compiled with -O3, and every loop twice, as memory/convert.c is. Signed and unsigned numbers have the same
 * sums and products of bits. */
#include "compute/matmul/wrap.h"

#include <stdint.h>

#include "base/simd.h"

enum { DEEP = 64, WIDE = 256 }; /* a part of b so large is packed, and stays in the nearest cache */

#define WRAP(type)                                                                                                     \
  SIMD_INLINE void body_##type(bool add, size_t m, size_t n, size_t k, struct wrap_matrix a, struct wrap_matrix b,     \
                               void *out, size_t pitch) {                                                              \
    type part[DEEP][WIDE];                                                                                             \
    const type *left = a.data, *right = b.data;                                                                        \
    for (size_t j0 = 0; j0 < n; j0 += WIDE)                                                                            \
      for (size_t l0 = 0; l0 < k; l0 += DEEP) {                                                                        \
        const size_t width = n - j0 < WIDE ? n - j0 : WIDE, depth = k - l0 < DEEP ? k - l0 : DEEP;                     \
        for (size_t l = 0; l < depth; l++)                                                                             \
          for (size_t j = 0; j < width; j++) part[l][j] = right[(l0 + l) * b.row + (j0 + j) * b.column];               \
        for (size_t i = 0; i < m; i++) {                                                                               \
          type *restrict sums = (type *)out + i * pitch + j0;                                                          \
          for (size_t j = 0; j < width && l0 == 0 && !add; j++) sums[j] = 0;                                           \
          for (size_t l = 0; l < depth; l++) {                                                                         \
            const type factor = left[i * a.row + (l0 + l) * a.column];                                                 \
            for (size_t j = 0; j < width; j++) sums[j] += factor * part[l][j];                                         \
          }                                                                                                            \
        }                                                                                                              \
      }                                                                                                                \
  }                                                                                                                    \
  static void plain_##type(bool add, size_t m, size_t n, size_t k, struct wrap_matrix a, struct wrap_matrix b,         \
                           void *out, size_t pitch) {                                                                  \
    body_##type(add, m, n, k, a, b, out, pitch);                                                                       \
  }                                                                                                                    \
  SIMD_AVX2 static void avx2_##type(bool add, size_t m, size_t n, size_t k, struct wrap_matrix a,                      \
                                    struct wrap_matrix b, void *out, size_t pitch) {                                   \
    body_##type(add, m, n, k, a, b, out, pitch);                                                                       \
  }
WRAP(uint32_t)
WRAP(uint64_t)

void wrap_multiply(bool wide, bool add, size_t m, size_t n, size_t k, struct wrap_matrix a, struct wrap_matrix b,
                   void *out, size_t pitch) {
  const bool avx2 = simd_has_avx2();
  if (wide)
    (avx2 ? avx2_uint64_t : plain_uint64_t)(add, m, n, k, a, b, out, pitch);
  else
    (avx2 ? avx2_uint32_t : plain_uint32_t)(add, m, n, k, a, b, out, pitch);
}
