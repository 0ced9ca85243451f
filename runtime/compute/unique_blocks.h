/* unique_blocks.h - the distinct blocks of a result, and where they and their operands are found. */
#ifndef SHARDRT_COMPUTE_UNIQUE_BLOCKS_H
#define SHARDRT_COMPUTE_UNIQUE_BLOCKS_H

#include "shardrt.h"

struct distinct {
  int64_t count;
  int64_t *shards; /* of each, the number of its first shard, in the result and in every operand */
};

/* Checks the operands (work_check; EINVAL, too, where shards of `out` with one box would be computed from different
 * ones), gives `out` its buffers (work_outputs) and lists its blocks: none where this
 * process holds nothing of it. */
int distinct_begin(const char *what, int32_t nin, const shardrt_array *const *in, shardrt_array *out,
                   struct distinct *self);
/* The same where such are parts of one sum. */
int distinct_begin_parts(const char *what, int32_t nin, const shardrt_array *const *in, shardrt_array *out,
                         struct distinct *self);
void distinct_end(struct distinct *self);

/* The memory of a block in the result or in an operand. */
void *distinct_data(const struct distinct *self, const shardrt_array *array, int64_t block);
/* Which of this process's devices a block is on: one that has memory of its own. */
int32_t distinct_device(const struct distinct *self, const shardrt_array *array, int64_t block);
/* Fills all blocks of the result with zeros. EDEVICE. */
int distinct_zero(const struct distinct *self, shardrt_array *out);

#endif
