/* values.h - the values of a page, out of whatever encoding they are in.
 * https://parquet.apache.org/docs/file-format/data-pages/encodings/ */
#ifndef SHARDRT_DATASET_PARQUET_ENCODING_VALUES_H
#define SHARDRT_DATASET_PARQUET_ENCODING_VALUES_H

#include "dataset/column/column.h"
#include "dataset/column/page.h"
#include "dataset/parquet/encoding/raw_page.h"

enum { VALUES_AT_MOST = 1 << 30 }; /* bytes of a page's */

struct values {
  const uint8_t *data;           /* n elements, packed; or what the spans lie in */
  const struct page_span *spans; /* n, of values of bytes; else NULL */
};

/* A raw_page_keeps, whose context is a parquet_column. */
bool values_keep(const void *column, int32_t encoding);

/* Decodes n values. They lie in the page's memory, or where the raw page's stay; where `passing`, elements
 * and spans may also lie where they are gone with the arena. `dictionary` may be NULL where there is none. EFORMAT:
 * they are malformed, cut off or more than 1 GiB. EINVAL: an encoding that shardrt does not read. ENOMEM. */
int values_decode(const struct column *column, const struct raw_page *raw, int64_t n,
                  const struct column_page *dictionary, bool passing, struct column_page *page, struct reader *reader,
                  struct values *out);

#endif
