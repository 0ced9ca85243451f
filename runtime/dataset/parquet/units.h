/* units.h - where the pages of a file's columns are, and which rows each has: from the offset index that the file may
 * have; else the file is gone through once, and the side-car (index_file.h) says it, with a checksum of each page.
 *
 * A unit is a page; where a row goes on in the next page, both are one. */
#ifndef SHARDRT_DATASET_PARQUET_UNITS_H
#define SHARDRT_DATASET_PARQUET_UNITS_H

#include "dataset/index_file.h"
#include "dataset/parquet/metadata/footer.h"

struct parquet_unit {
  int64_t first; /* row of the file */
  size_t offset, bytes;
  int32_t group;
  uint32_t crc; /* CRC-32C, where the file has a side-car of pages */
};

struct parquet_units {
  int64_t count;
  struct parquet_unit *list;
  struct parquet_unit *dictionaries; /* of each row group; bytes = 0: it has none */
};

/* Whether all chunks of the file have an offset index. */
bool parquet_has_offsets(const struct parquet_footer *footer);
/* Opens the file's side-car of pages. EFORMAT; EIO; what decompressing the pages of lists fails with. */
int parquet_open_index(const struct stored *file, const struct parquet_footer *footer,
                       const shardrt_source_options *options, struct reader *arena, struct index_file *out);
/* The units of a column; `index` is that side-car, or has no rows. EFORMAT: what the file says of them is malformed. */
int parquet_units_read(const struct stored *file, const struct parquet_footer *footer, const struct index_file *index,
                       int32_t leaf, struct reader *arena, struct parquet_units *out);
void parquet_units_clear(struct parquet_units *self);

#endif
