/* blas.h - OpenBLAS, opened at its first use.
 *
 * It is loaded when it is needed and not when the program starts, which it would make slower by milliseconds. It starts
 * no threads of its own: our threads call it, each for a part of a product. Matrices are row-major; `wide` is float64,
 * otherwise float32. */
#ifndef SHARDRT_COMPUTE_MATMUL_BLAS_H
#define SHARDRT_COMPUTE_MATMUL_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/* EINVAL: it is not installed, or is not what it should be. Main thread. */
int blas_open(void);

/* One operand of a product: its memory, elements from one row to the next, whether it is to be read transposed. */
struct blas_matrix {
  const void *data;
  int32_t pitch;
  bool transposed;
};

/* out[m, n] = a[m, k] b[k, n], on this thread; `add`: added to what stands in out. After blas_open, which succeeded; no
 * size is 0. Any thread. */
void blas_multiply(bool wide, bool add, int32_t m, int32_t n, int32_t k, struct blas_matrix a, struct blas_matrix b,
                   void *out, int32_t pitch);

#endif
