/* matmul_api.h - products of matrices: a part of shardrt.h. */
#ifndef SHARDRT_COMPUTE_MATMUL_MATMUL_API_H
#define SHARDRT_COMPUTE_MATMUL_MATMUL_API_H

#include "compute/compute_api.h"

/* out = a b: [.., M, K] x [.., K, N] -> [.., M, N]; transpose_a: a is [.., K, M], transpose_b: b is [.., N, K]. Both
 * have 2 dimensions or more; the leading ones (the shorter list is filled up with 1s) are equal or 1, and are
 * broadcast; of out's leading ones only the elements count. All three have one dtype, not bool; of float16 and bfloat16
 * `out` may be float32. float32 and float64 by OpenBLAS, which is loaded at the first call (EINVAL: it is not
 * installed); float16 and bfloat16 are computed in float32 and rounded at the end; whole numbers wrap. K = 0 gives
 * zeros. Where shards of out have one box, but their operands' boxes differ, the products are parts of one sum, which
 * is what out gets: it is added up over what this process has, each pair of boxes once. The result's bits depend on the
 * shapes, the flags, these parts and the kind of processor, not on how many threads there are. `precision` is how exact
 * a product of float32 is at least: SHARDRT_PRECISION_TF32 lets devices that have TF32 round the operands to its 11
 * significant bits; the host computes in float32. */
enum { SHARDRT_PRECISION_FLOAT32, SHARDRT_PRECISION_TF32, SHARDRT_PRECISIONS };
int shardrt_matmul(const shardrt_array *a, const shardrt_array *b, int32_t transpose_a, int32_t transpose_b,
                   int32_t precision, shardrt_array *out);

#endif
