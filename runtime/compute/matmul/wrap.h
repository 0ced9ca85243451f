/* wrap.h - products of matrices of whole numbers, which wrap. */
#ifndef SHARDRT_COMPUTE_MATMUL_WRAP_H
#define SHARDRT_COMPUTE_MATMUL_WRAP_H

#include <stdbool.h>
#include <stddef.h>

/* One operand: its memory, and elements from one row, and from one column, to the next. */
struct wrap_matrix {
  const void *data;
  size_t row, column;
};

/* out[m, n] = a[m, k] b[k, n] in 32 bits, or in 64 where it is `wide`; out is packed but for its pitch. `add`: it is
 * added to what stands in out. */
void wrap_multiply(bool wide, bool add, size_t m, size_t n, size_t k, struct wrap_matrix a, struct wrap_matrix b,
                   void *out, size_t pitch);

#endif
