/* array_record_file.h - one ArrayRecord file: where its footer says that the records are. */
#ifndef SHARDRT_DATASET_RECORD_ARRAY_RECORD_FILE_H
#define SHARDRT_DATASET_RECORD_ARRAY_RECORD_FILE_H

#include "storage/stored.h"

/* Where a chunk of data is. */
struct array_record_chunk {
  size_t offset;
  int64_t first; /* the number of its first record in the file */
};

struct array_record_file {
  struct stored stored;
  struct array_record_chunk *chunks; /* one more than there are: the last one's `first` is the number of records */
  int64_t nchunks;
  size_t decoded;      /* bytes of all records, as the footer tells */
  int64_t first;       /* the number of its first sample among those of all files, */
  int64_t first_chunk; /* of its first chunk, */
  int64_t first_block; /* and of its first block: a chunk, or, where each has one record, a run of them */
};

/* Opens a file and reads its footer. EFORMAT: it is no ArrayRecord file, or was cut off or damaged where it was read;
 * the message names it. EIO. */
int array_record_file_open(const char *path, const shardrt_source_options *options, struct array_record_file *out);
/* Any that is zeroed or was opened, or failed to. */
void array_record_file_close(struct array_record_file *self);

#endif
