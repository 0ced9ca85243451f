/* footer.h - what the end of a Parquet file says: its columns, its row groups, where their chunks are.
 * https://github.com/apache/parquet-format
 *
 * A schema is a tree; its leaves are the columns. A leaf's name is its path: "image.bytes" of a structure; of a list
 * the names between are left out ("tags", not "tags.list.element"), of a map "m.key" and "m.value". */
#ifndef SHARDRT_DATASET_PARQUET_METADATA_FOOTER_H
#define SHARDRT_DATASET_PARQUET_METADATA_FOOTER_H

#include "dataset/column/leaf.h"
#include "storage/stored.h"

/* A column of a row group. */
struct parquet_chunk {
  int32_t codec;
  int64_t values;      /* with those that are null */
  size_t start, bytes; /* of its pages */
  size_t unpacked;     /* of them without compression */
  size_t index_start;  /* of the offset index; */
  size_t index_bytes;  /* 0: there is none */
  bool is_encrypted;
  bool is_elsewhere; /* in another file */
};

struct parquet_footer {
  size_t start, bytes; /* in the file */
  int64_t rows;
  int32_t nleaves;
  struct column_leaf *leaves;
  int32_t ngroups;
  int64_t *group_rows;
  struct parquet_chunk *chunks; /* of each group, those of all leaves */
};

/* Reads a file's footer. EFORMAT: it is malformed, cut off or encrypted; the message names the file. ENOMEM; EIO. */
int parquet_footer_read(const struct stored *file, struct reader *arena, struct parquet_footer *out);
void parquet_footer_clear(struct parquet_footer *self); /* any that is zeroed or was read */

#endif
