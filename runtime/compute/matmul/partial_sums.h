/* partial_sums.h - lists the terms of each result block of a product: pairs of operand blocks whose products this
 * process adds up, in the shards' order, each pair once. */
#ifndef SHARDRT_COMPUTE_MATMUL_PARTIAL_SUMS_H
#define SHARDRT_COMPUTE_MATMUL_PARTIAL_SUMS_H

#include "shardrt.h"

struct partial_sums {
  int64_t boxes;  /* of the result, in the order of the first shard of each, which is the order of their numbers */
  int64_t count;  /* of terms, most often as many */
  int64_t *begin; /* the first term of each box, and of what would be the next one */
  int64_t *shard; /* of each term: where its operands are */
};

/* All three have data of the same devices in the same order; boxes of `out` hold elements. */
int partial_sums_begin(struct partial_sums *self, const shardrt_array *a, const shardrt_array *b,
                       const shardrt_array *out);
void partial_sums_end(struct partial_sums *self); /* also where it was not begun, or failed: all 0 then */

#endif
