/* mds_shard.h - one shard of an MDS folder: its bytes, decompressed where they need be, and its samples' places. */
#ifndef SHARDRT_DATASET_MDS_MDS_SHARD_H
#define SHARDRT_DATASET_MDS_MDS_SHARD_H

#include "dataset/mds/mds_index.h"
#include "dataset/record/records.h"

/* Opens a shard of `folder`, and its side-car index, whose columns are those of MDS. EFORMAT: it is not what index.json
 * tells of; the message names the file, and the sample and its offset; where damage is to be skipped, it is noted in
 * the index, as in index_file_open. EIO. `changed` and the reader
 * are as in stored_open_again. */
int mds_shard_open(const char *folder, const struct mds_index *index, const struct mds_shard *shard,
                   const shardrt_source_options *options, int64_t changed, struct reader *reader,
                   struct opened_file *out);

#endif
