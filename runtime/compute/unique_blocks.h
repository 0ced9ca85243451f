/* unique_blocks.h - the distinct blocks of a result, and where they and their operands are found. */
#ifndef SHARDRT_COMPUTE_UNIQUE_BLOCKS_H
#define SHARDRT_COMPUTE_UNIQUE_BLOCKS_H

#include "shardrt.h"

struct unique_blocks {
  int64_t count;
  int64_t *shards; /* of each, the number of its first shard, in the result and in every operand */
};

/* Checks the operands (work_check; EINVAL, too, where shards of `out` with one box would be computed from different
 * ones), gives `out` its buffers (work_outputs) and lists its blocks: none where this
 * process holds nothing of it. */
int unique_blocks_begin(const char *what, int32_t nin, const shardrt_array *const *in, shardrt_array *out,
                        struct unique_blocks *self);
/* The same where such are parts of one sum. */
int unique_blocks_begin_parts(const char *what, int32_t nin, const shardrt_array *const *in, shardrt_array *out,
                              struct unique_blocks *self);
void unique_blocks_end(struct unique_blocks *self);

/* The memory of a block in the result or in an operand. */
void *unique_blocks_data(const struct unique_blocks *self, const shardrt_array *array, int64_t block);
/* Which of this process's devices a block is on: one that has memory of its own. */
int32_t unique_blocks_device(const struct unique_blocks *self, const shardrt_array *array, int64_t block);
/* Fills all blocks of the result with zeros. EDEVICE. */
int unique_blocks_zero(const struct unique_blocks *self, shardrt_array *out);

#endif
