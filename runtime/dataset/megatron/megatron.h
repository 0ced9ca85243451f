/* megatron.h - the two views of a dataset of Megatron-LM's, and what blends several. */
#ifndef SHARDRT_DATASET_MEGATRON_MEGATRON_H
#define SHARDRT_DATASET_MEGATRON_MEGATRON_H

#include "dataset/megatron/megatron_files.h"

/* Which of `count` things an option `from` … `to` (shares of the whole) means: as Megatron rounds them. */
struct megatron_range {
  int64_t first, stop;
};
struct megatron_range megatron_range_of(const shardrt_megatron_options *options, int64_t count);

/* Whole documents. */
int megatron_documents_open(const char *prefix, const shardrt_megatron_options *options, shardrt_source **out);
/* GPTDataset's samples, at least options->samples of them. */
int megatron_windows_open(const char *prefix, const shardrt_megatron_options *options, shardrt_source **out);

/* BlendedDataset: `samples` of the parts in the proportions of `weights`; with 0, all of each (weights are not looked
 * at). EINVAL: a part would give more than it has. */
int megatron_blend(int32_t nparts, shardrt_source *const *parts, const double *weights, int64_t samples,
                   shardrt_source **out);

/* Weights that come to 1, by numpy's sum. */
void megatron_normalize(int32_t n, const double *weights, double *out);

#endif
