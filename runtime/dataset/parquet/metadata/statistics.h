/* statistics.h - what a Parquet file says of the values of a row group and of a page: the least, the most, how many
 * nulls there are. https://parquet.apache.org/docs/file-format/pageindex/
 *
 * The footer has them for a row group's column; a column index, which it may point to, for each page. They are read
 * where they are wanted, and not kept. */
#ifndef SHARDRT_DATASET_PARQUET_METADATA_STATISTICS_H
#define SHARDRT_DATASET_PARQUET_METADATA_STATISTICS_H

#include "dataset/parquet/metadata/footer.h"

/* No value is less than the least, or more than the most: they may be no values of the column, as long texts are cut.
 * NaN is left out of them. */
struct parquet_bounds {
  const uint8_t *least, *most; /* PLAIN, of texts without their length; NULL: not known */
  size_t least_bytes, most_bytes;
  int64_t nulls; /* -1: not known */
  bool is_null;  /* all values are, as a page's null_pages say */
};

struct parquet_statistics {
  struct parquet_bounds bounds;
  size_t index_start, index_bytes; /* of the column index; 0: there is none */
};

/* Those of one column, of each row group, in the arena. Bounds whose order is none that is known here are left out. */
int parquet_statistics_read(const struct stored *file, const struct parquet_footer *footer, int32_t leaf,
                            struct reader *arena, const struct parquet_statistics **out);
/* The bounds of the `pages` pages that the column index of a row group tells of, in the arena. EFORMAT: it is
 * malformed, or tells of another number. */
int parquet_column_index_read(const struct stored *file, const struct parquet_statistics *statistics,
                              const struct column_leaf *leaf, int64_t pages, struct reader *arena,
                              const struct parquet_bounds **out);

#endif
