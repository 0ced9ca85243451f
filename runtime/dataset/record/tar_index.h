/* tar_index.h - which members of an archive are one sample: a row of its index, a column for each field. */
#ifndef SHARDRT_DATASET_RECORD_TAR_INDEX_H
#define SHARDRT_DATASET_RECORD_TAR_INDEX_H

#include "dataset/index_file.h"

enum { TAR_COLUMNS_MOST = 256 };

/* An index_scan. EFORMAT also where the members of a sample do not stand together, or one has a field twice. */
int tar_index_scan(const struct stored *file, struct reader *arena, struct index_writer *writer, const void *context);

/* Whether a column's name is that of .npy arrays, behind which shapes.h notes theirs. */
bool tar_is_array(const char *name);

#endif
